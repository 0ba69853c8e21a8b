"""A commit is believed as far as a site can check it, and none can put a store out of use."""

from dataclasses import replace

import pytest

from fedcommons.errors import ArgumentError, StoreError
from fedcommons.federate.protocol import statements
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.refusals import CommitRefused, NotConfirmed
from fedcommons.federate.site.following import Proof
from fedcommons.federate.site.policy import Policy
from fedcommons.federate.site.site import Site
from tests.federate.attacks.server_asks import Asking, clinic_data
from tests.federate.conftest import PROOFS, committed_to, epoch_of, exchange, sent_by, withdrawn
from tests.federate.server.agreement import check_agreement
from tests.federate.tiny import Tiny, train

FAR = 2**40
N_EXAMPLES = 200  # a quarter shared: no draw leaves a site without something for each other


@pytest.fixture
def four(make_site):
    policy = Policy(exchanges=9)
    return [
        make_site(name, clinic_data(k, N_EXAMPLES), None, policy) for k, name in enumerate("abcd")
    ]


@pytest.fixture
def under(four):
    commit = exchange(four, epoch_of(four))
    for site in four:
        site.apply_commit(commit.record)
    return four, commit


# Invented numbers


@pytest.mark.parametrize(
    "invent",
    [
        lambda commit: replace(commit.anew(), serial=FAR),
        lambda commit: replace(commit.anew(), serial=FAR, follows=("ab" * 32,)),
        lambda commit: replace(commit, number=FAR, epoch="ab" * 32, follows=commit.lineage),
        lambda commit: replace(
            commit, number=2, serial=FAR, epoch="ab" * 32, pairs=(), follows=commit.lineage
        ),
        lambda commit: replace(commit, number=2, epoch="ab" * 32, pairs=(), follows=()),
        lambda commit: replace(commit, serial=1),
        lambda commit: replace(commit, number=2, epoch="ab" * 32, follows=("cd" * 32,), pairs=()),
    ],
    ids=[
        "serial",
        "serial of a fork",
        "number",
        "both",
        "no lineage",
        "as before",
        "other lineage",
    ],
)
def test_an_invented_commit_is_refused_and_the_real_ones_go_on(under, invent):
    sites, commit = under
    for site in sites:
        with pytest.raises(CommitRefused):
            site.apply_commit(invent(commit).record)
        after = commit.anew().without(3).anew()
        if site is not sites[3]:
            site.apply_commit(after.record)


def test_a_site_that_was_away_sees_that_a_later_commit_follows(under):
    sites, commit = under
    later = withdrawn(sites, commit.anew(), 0, [0]).anew()
    sites[1].apply_commit(commit.anew().record)
    for site in sites[1:]:
        site.apply_commit(later.record)
        with pytest.raises(CommitRefused):
            site.apply_commit(commit.anew().record)
    fork = withdrawn(sites, commit, 1, [0]).anew().anew().anew()
    with pytest.raises(CommitRefused, match="does not follow the one that the site is under"):
        sites[2].apply_commit(fork.record)


def test_the_lineage_is_bounded(under):
    _, commit = under
    later = commit
    for _ in range(1005):
        later = replace(later.anew(), pairs=())
    assert len(later.follows) == 1000
    assert Commit.decode(later.record) == later
    assert later.steps_from(commit) is None


# Recovery


def put_under(site: Site, commit: Commit) -> None:
    """As an earlier version let anybody do."""
    with site.store.database.writing("store.commit"):
        site.store.database.put("commits", 1, commit.digest, commit.record)
        site.store.epochs.note_committed(commit.number, bytes.fromhex(commit.epoch))


@pytest.mark.parametrize("changes", [{"serial": FAR}, {"number": FAR, "epoch": "ab" * 32}], ids=str)
def test_a_store_is_recovered_from_an_invented_commit(under, changes):
    sites, commit = under
    site, held = sites[0], sites[0].store.received.counts()
    put_under(site, replace(commit, **changes))
    with pytest.raises(CommitRefused):
        site.apply_commit(commit.record)
    site.store.recovery.begin(commit.digest.hex())
    with pytest.raises(CommitRefused):  # that one, and no other
        site.apply_commit(commit.anew().record)
    site.apply_commit(commit.record)
    assert site.store.received.counts() == held != []
    assert site.store.recovery.to == ""
    assert site.store.epochs.highest()[0] == 1
    site.apply_commit(commit.anew().record)
    (entry,) = [e for e in site.store.ledger.entries() if e.event == "recovery"]
    assert entry.evidence == commit.digest
    site.store.check()


def test_what_was_deleted_meanwhile_is_not_made_up(under):
    sites, commit = under
    loss = commit.without(1).without(2).without(3)
    sites[0].apply_commit(loss.record)
    sites[0].store.recovery.begin(commit.digest.hex())
    with pytest.raises(CommitRefused, match="deleted what the commit gives it: a new exchange"):
        sites[0].apply_commit(commit.record)


def test_there_must_be_something_to_recover_to(under):
    with pytest.raises(ArgumentError, match="commit must be a digest of 64"):
        under[0][0].store.recovery.begin("latest")


def test_a_store_under_no_commit_has_nothing_to_recover(make_site):
    with pytest.raises(StoreError, match="is under no commit"):
        make_site("z").store.recovery.begin("ab" * 32)


@pytest.mark.usefixtures("impatient")
def test_a_federation_goes_on_with_a_store_that_was_recovered(tiny: Tiny):
    tiny.run(1)
    with tiny.shared() as federation:
        commit = federation.commit
    tiny.close()
    with tiny.store("b") as store, store.database.writing("store.commit"):
        forged = replace(commit, serial=FAR)
        store.database.put("commits", 1, forged.digest, forged.record)
    tiny.run(2)
    tiny.close()
    with tiny.store("b") as store:
        assert store.commit_record()[0] == forged.digest
        store.recovery.begin(commit.digest.hex())
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 3)
        assert all(site["answered"] for site in notes[0]["sites"])
        check_agreement(tiny, federation, grid, {})


# Deliveries that never happened


def receipts_of(sites, epoch):
    """Receipts for what each site sends to the next one alone."""
    found = []
    for place, site in enumerate(sites):
        envelopes = sent_by(site, epoch)
        to = (place + 1) % len(sites)
        receipts, _ = sites[to].exchange.receive(epoch.record, [envelopes[to]])
        found += receipts
    return found


def test_a_delivery_without_a_receipt_is_refused_by_its_sender(four):
    """The others would divide by a d_j that is too high."""
    epoch = epoch_of(four)
    commit = committed_to(epoch, receipts_of(four, epoch))
    claimed = replace(commit, pairs=tuple(sorted({*commit.pairs, (0, 2)})))
    with pytest.raises(CommitRefused, match="no receipt for something that the site is said"):
        four[0].apply_commit(claimed.record)
    with pytest.raises(CommitRefused, match="does not have all that the commit gives it"):
        four[2].apply_commit(claimed.record)
    for site in four:
        site.apply_commit(commit.record)


def test_a_receipt_that_the_commit_does_not_name_is_refused(four):
    """Else each site could be shown the receipts of a commit of its own."""
    epoch = epoch_of(four)
    receipts = receipts_of(four, epoch)
    commit = committed_to(epoch, receipts)
    proof = PROOFS[commit.receipts, four[1].identity_name]
    for other in (
        replace(commit, receipts="ab" * 32),
        replace(commit, receipts=""),
        committed_to(epoch, receipts[1:]),
    ):
        wrong = replace(other, pairs=commit.pairs)
        with pytest.raises((CommitRefused, ValueError)):
            four[1].apply_commit(wrong.record, proof=proof)
    with pytest.raises(CommitRefused, match="no receipt for something"):
        four[1].apply_commit(commit.record, proof=Proof())
    with pytest.raises(CommitRefused, match="does not name the receipts"):
        four[1].apply_commit(commit.record, proof=Proof(proof.receipts, proof.path[1:]))
    four[1].apply_commit(commit.record, proof=proof)


def test_another_sites_signature_is_no_receipt(four):
    epoch = epoch_of(four)
    receipts = receipts_of(four, epoch)
    forged = [replace(receipts[0], signature=receipts[1].signature), *receipts[1:]]
    with pytest.raises(CommitRefused, match="no receipt for something"):
        four[0].apply_commit(committed_to(epoch, forged).record)


def test_a_site_that_took_no_part_sent_nothing(four, make_site):
    epoch = epoch_of(four)
    commit = committed_to(epoch, receipts_of(four, epoch))
    again = make_site("a2", clinic_data(0, N_EXAMPLES))
    with again.store.database.writing("store.created"):  # the same site with an empty store
        again.store.database.set("identity", four[0].store.identity.private)
    again.name = "a"
    again.exchange.offer("hospitals", node_id=1, run_id=1, with_key=False)
    with pytest.raises(CommitRefused):
        again.apply_commit(commit.record)


# Two sites that are shown different commits


def confirmed_by(sites, commit):
    return {
        "others": [site.identity_name for site in sites],
        "other-statements": [statements.sign(s.store.identity, commit) for s in sites],
    }


def test_a_site_that_is_shown_a_commit_of_its_own_stops(under):
    """The server shows it as many answers of others as it likes: they are under another commit."""
    sites, commit = under
    apart, common = withdrawn(sites, commit, 3, [0]), commit.anew()
    sites[0].policy = Policy(unconfirmed_answers=3)
    asking = Asking(sites[0], apart)
    for _ in range(3):
        asking.answer(**confirmed_by(sites[1:], common))
    with pytest.raises(NotConfirmed, match=r"3 answers were given under commit .1, 1., and no"):
        asking.answer(**confirmed_by(sites[1:], common))
    with pytest.raises(NotConfirmed):  # nor by itself, or by somebody else
        asking.answer(**confirmed_by([sites[0]], apart))
    asking.answer(**confirmed_by(sites[1:2], apart))
    asking.answer()  # once is enough


def test_every_commit_is_to_be_confirmed_anew(under):
    sites, commit = under
    sites[0].policy = Policy(unconfirmed_answers=1)
    asking = Asking(sites[0], commit)
    asking.answer(**confirmed_by(sites[1:], commit))
    asking.answer()
    asking.commit = commit.anew()
    asking.answer()
    with pytest.raises(NotConfirmed):
        asking.answer()


@pytest.mark.usefixtures("impatient")
def test_a_server_passes_on_what_sites_signed(tmp_path):
    """With rules as strict as can be an honest federation trains as before."""
    tiny = Tiny(tmp_path, copies=1)
    for name in tiny.names:
        (tiny.folder / name).mkdir(parents=True)
        rules = "min-examples = 1\nunconfirmed-answers = 1\n"
        (tiny.folder / name / "policy.toml").write_text(rules)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 4)
    tiny.close()
    assert [sum(site["answered"] for site in note["sites"]) for note in notes] == [4] * 4
