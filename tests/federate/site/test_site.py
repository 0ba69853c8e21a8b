"""A site takes part in what follows from what it knows, and refuses everything else."""

import dataclasses
import logging
from dataclasses import replace

import numpy as np
import pytest

from fedcommons.errors import StoreError
from fedcommons.federate.protocol import chunks, envelope, packing
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.envelope import Context, federation_digest
from fedcommons.federate.protocol.example_schema import digest_of_columns
from fedcommons.federate.protocol.keys import Identity, fresh_epoch_key
from fedcommons.federate.protocol.packing import SharedExamples
from fedcommons.federate.protocol.receipts import Receipt, receipt_content
from fedcommons.federate.protocol.records import Epoch
from fedcommons.federate.protocol.refusals import (
    CommitRefused,
    DataChanged,
    EpochRefused,
    LayoutRefused,
    PeersNotPinned,
    RosterRefused,
    SiteWithdrew,
    StoreIsOlder,
    WrongFederation,
)
from fedcommons.federate.site.numbering import Shareable
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.site import Site
from tests.federate.conftest import FEDERATION, epoch_of, example_data, exchange, sent_by

A, B, C = range(3)


def kept(site: Site) -> tuple[object, ...]:
    """What a store holds of others, and its ledger."""
    return site.store.received.counts(), [entry.event for entry in site.store.ledger.entries()]


def assert_refused(site: Site, epoch: Epoch, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Refused, logged by the class alone, nothing stored, no receipt."""
    site.exchange.receive(epoch.record, [])  # enters the epoch
    before = kept(site)
    caplog.clear()
    receipts, refused = site.exchange.receive(epoch.record, [data])
    assert (receipts, refused) == ([], {"EnvelopeRefused": 1})
    assert [record.getMessage() for record in caplog.records] == [
        "refused an envelope: EnvelopeRefused"
    ]
    assert kept(site) == before


def from_a_to_b(
    sites: list[Site],
    of: Epoch,
    content: bytes,
    *,
    by: int = A,
    to_key: bytes | None = None,
    **changes: object,
) -> bytes:
    """An envelope as a sealed it for b, but for these changes."""
    context = Context(
        federation_digest(FEDERATION),
        of.digest,
        bytes.fromhex(of.sites[A].identity),
        bytes.fromhex(of.sites[B].identity),
        0,
        1,
    )
    return envelope.seal(
        content,
        dataclasses.replace(context, **changes),
        to_key=to_key or bytes.fromhex(of.sites[B].key),
        sender=sites[by].store.identity,
    )


def payload(sites: list[Site], epoch: Epoch, recipient: int = B) -> SharedExamples:
    """What the draw gives a recipient of a's examples."""
    numbers = epoch.draw.assigned(A, recipient)
    rows = sites[A].store.manifests.newest().share_rows[numbers]
    data = sites[A].data
    return SharedExamples(numbers, data.y[rows], data.x.take(rows))


@pytest.fixture
def epoch(three):
    return epoch_of(three, copies=1)


# The exchange


def test_what_was_sent_arrives(three, epoch):
    commit = exchange(three, epoch)
    assert set(commit.pairs) == {(s, r) for s in range(3) for r in range(3) if s != r}
    for site in three:
        site.apply_commit(commit.record)
    for site in three:
        for sender, numbers in site.holdings(commit).senders:
            x, y = site.received_examples(commit, sender)
            rows = three[sender].store.manifests.newest().share_rows[numbers]
            np.testing.assert_array_equal(x, three[sender].data.x.take(rows))
            np.testing.assert_array_equal(y, three[sender].data.y[rows])
    assert sum(site.holdings(commit).coverage for site in three) == pytest.approx(commit.n_examples)


def test_several_chunks_arrive_as_one_does(make_site, monkeypatch):
    """Two share numbers in a chunk, delivered in any order: receipts come with the last."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2 * 40)
    sites = [make_site(name) for name in "abc"]
    epoch = epoch_of(sites, copies=1)
    _, n = sites[A].exchange.send(epoch.record, [], 0)
    assert n == 3
    envelopes = [sent_by(sites[A], epoch, chunk).get(B) for chunk in range(n)]
    envelopes = [sealed for sealed in envelopes if sealed is not None][::-1]
    assert len(envelopes) > 1
    for sealed in envelopes[:-1]:
        assert sites[B].exchange.receive(epoch.record, [sealed]) == ([], {})
    receipts, _ = sites[B].exchange.receive(epoch.record, envelopes[-1:])
    assert [r.examples for r in receipts] == [epoch.draw.n_assigned(A, B)]
    assert sites[A].exchange.send(epoch.record, [B, C], n) == ([], n)
    assert sites[A].exchange.send(epoch.record, [B, C], -1) == ([], n)


def test_receiving_again_changes_nothing_and_gives_the_receipt_again(three, epoch):
    sealed = sent_by(three[A], epoch)[B]
    first = three[B].exchange.receive(epoch.record, [sealed])
    before = kept(three[B])
    assert three[B].exchange.receive(epoch.record, [sealed]) == first
    assert three[B].exchange.receive(epoch.record, [sealed, sealed]) == first
    again = sent_by(three[A], epoch)[B]  # sealed anew: other bytes, the same content
    assert again != sealed
    assert three[B].exchange.receive(epoch.record, [again]) == first
    assert kept(three[B]) == before
    assert first[0][0].is_signed(epoch)


def test_good_envelopes_are_kept_beside_bad_ones(three, epoch):
    good = [sent_by(three[sender], epoch)[B] for sender in (A, C)]
    receipts, refused = three[B].exchange.receive(
        epoch.record, [good[0], b"junk", good[1], good[0][:-1]]
    )
    assert refused == {"EnvelopeRefused": 2}
    assert sorted(r.sender for r in receipts) == sorted(epoch.sites[s].identity for s in (A, C))


def test_a_chunk_that_is_here_is_not_replaced(three, epoch, caplog):
    three[B].exchange.receive(epoch.record, [sent_by(three[A], epoch)[B]])
    other = payload(three, epoch)
    other = replace(other, y=other.y + 1)
    assert_refused(three[B], epoch, from_a_to_b(three, epoch, other.pack()), caplog)


def test_only_the_recipients_asked_for_get_an_envelope(three, epoch):
    assert set(sent_by(three[A], epoch)) == {B, C}
    envelopes, _ = three[A].exchange.send(epoch.record, [C, C, A, 17, -1], 0)
    assert [recipient for recipient, _ in envelopes] == [C]


def test_a_recipient_with_a_key_of_small_order_does_not_hold_up_the_others(three):
    offers = list(epoch_of(three).offers)
    offers[C] = replace(offers[C].checked(), key="00" * 32).signed(three[C].store.identity)
    epoch = Epoch(FEDERATION, 1, 7, 1, tuple(offers))
    assert set(sent_by(three[A], epoch)) == {B}


# Envelopes that are refused


def test_the_helper_makes_an_envelope_that_is_accepted(three, epoch):
    """So that what is refused below is refused for what was changed."""
    sealed = from_a_to_b(three, epoch, payload(three, epoch).pack())
    receipts, refused = three[B].exchange.receive(epoch.record, [sealed])
    assert len(receipts) == 1
    assert refused == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"federation": federation_digest("banks")},
        {"epoch": b"e" * 32},
        {"by": C},
        {"chunk": 1},
        {"chunk": 2**32 - 1},
        {"n_chunks": 2},
        {"n_chunks": 0},
        {"to_key": fresh_epoch_key()[0]},
        {"recipient": Identity(bytes(32)).public},
        {"sender": Identity(bytes(32)).public},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_envelope_of_another_context_is_refused(three, epoch, caplog, changes):
    data = from_a_to_b(three, epoch, payload(three, epoch).pack(), **changes)
    assert_refused(three[B], epoch, data, caplog)


def test_an_envelope_for_another_recipient_is_refused(three, epoch, caplog):
    assert_refused(three[B], epoch, sent_by(three[A], epoch)[C], caplog)
    to_c = payload(three, epoch, C).pack()
    assert_refused(three[B], epoch, from_a_to_b(three, epoch, to_c), caplog)


def test_an_envelope_of_an_earlier_epoch_is_refused(three, epoch, caplog):
    old = sent_by(three[A], epoch)[B]
    later = epoch_of(three, number=2)
    assert_refused(three[B], later, old, caplog)


def test_an_envelope_of_a_site_that_is_not_in_the_roster_is_refused(make_site, caplog):
    sites = [make_site(name) for name in "abcd"]
    epoch = epoch_of(sites[:3])
    stranger = sites[3].store.identity
    data = from_a_to_b(sites, epoch, payload(sites, epoch).pack(), by=3, sender=stranger.public)
    assert_refused(sites[B], epoch, data, caplog)


def test_swapped_bodies_are_refused(three, epoch, caplog):
    one, two = sent_by(three[A], epoch)[B], sent_by(three[C], epoch)[B]
    start = len(envelope.MAGIC) + 64 + envelope.CONTEXT.size
    assert_refused(three[B], epoch, one[:start] + two[start:], caplog)
    assert_refused(three[B], epoch, two[:start] + one[start:], caplog)


def test_an_oversized_claim_is_refused_before_it_is_opened(three, epoch, caplog, monkeypatch):
    data = from_a_to_b(three, epoch, bytes(8192))
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4096)
    monkeypatch.setattr(envelope, "is_signed", lambda *_: pytest.fail("it was looked at"))
    assert_refused(three[B], epoch, data, caplog)


def changed_payloads(good: SharedExamples, n_shareable: int) -> dict[str, bytes]:
    """Payloads that break a rule, by what is wrong with them."""
    x, y, numbers = good.x, good.y, good.numbers
    others = np.setdiff1d(np.arange(n_shareable), numbers)[:1]
    nan, infinite = x.copy(), x.copy()
    nan[0, 0], infinite[-1, -1] = np.nan, -np.inf
    found = {
        "one less": good.select(np.arange(len(good)) > 0),
        "one more": SharedExamples(
            np.append(numbers, others), np.append(y, 0), np.vstack([x, x[:1]])
        ),
        "none": good.select(np.zeros(len(good), np.bool_)),
        "another example": replace(good, numbers=np.sort(np.append(numbers[1:], others))),
        "another order": good.select(np.arange(len(good))[::-1]),
        "one twice": SharedExamples(*(np.concatenate([v, v[-1:]]) for v in (numbers, y, x))),
        "beyond the last": replace(good, numbers=numbers + n_shareable),
        "negative numbers": replace(good, numbers=-numbers - 1),
        "negative labels": replace(good, y=-y - 1),
        "another type": replace(good, x=x.astype(np.float64)),
        "integers": replace(good, x=x.view(np.int32)),
        "another shape": replace(good, x=x.reshape(len(x), 2, 3)),
        "fewer features": replace(good, x=x[:, :5]),
        "NaN": replace(good, x=nan),
        "infinity": replace(good, x=infinite),
    }
    return {name: examples.pack() for name, examples in found.items()}


def test_examples_that_break_a_rule_are_refused(three, epoch, caplog):
    good = payload(three, epoch)
    assert len(good) > 1
    for content in changed_payloads(good, epoch.sites[A].n_shareable).values():
        assert_refused(three[B], epoch, from_a_to_b(three, epoch, content), caplog)


def test_an_empty_chunk_is_refused(make_site, caplog):
    """Where the draw gives a recipient nothing, nothing is accepted."""
    sites = [make_site("a", example_data(1, n_shareable=1)), make_site("b"), make_site("c")]
    seeds = (seed for seed in range(64) if epoch_of(sites, seed=seed).draw.n_assigned(A, B) == 0)
    epoch = epoch_of(sites, seed=next(seeds))
    nothing = payload(sites, epoch)
    assert len(nothing) == 0
    assert_refused(sites[B], epoch, from_a_to_b(sites, epoch, nothing.pack()), caplog)


# Fuzz


N_RAW, N_SEALED = 100_000, 10_000


def mutated(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """The envelope after flips, a cut, a splice with another, an edit or an insertion; garbage."""
    kind = rng.integers(7)
    at, to = sorted(rng.integers(0, len(data) + 1, size=2).tolist())
    if kind == 0:
        flipped = bytearray(data)
        for place in rng.integers(0, len(data), size=rng.integers(1, 4)).tolist():
            flipped[place] ^= int(rng.integers(1, 256))
        return bytes(flipped)
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + other[at:]
    if kind == 3:
        return data[:at] + data[to:]
    if kind == 4:
        return rng.bytes(int(rng.integers(0, 500)))
    if kind == 5:
        field = int(rng.integers(len(data) - 4))
        return data[:field] + rng.bytes(4) + data[field + 4 :]
    return data[:to] + rng.bytes(int(rng.integers(1, 9))) + data[to:]


def test_no_mutated_envelope_is_accepted(three, epoch):
    """100,000 mutations of envelopes to b, in messages of 1,000."""
    rng = np.random.default_rng(1)
    originals = [sent_by(three[A], epoch)[B], sent_by(three[C], epoch)[B]]
    others = [*originals, sent_by(three[A], epoch)[C], sent_by(three[B], epoch)[A]]
    three[B].exchange.receive(epoch.record, [])
    before = kept(three[B])
    logging.disable(logging.WARNING)
    try:
        for _ in range(N_RAW // 1000):
            batch = []
            while len(batch) < 1000:
                data = mutated(originals[rng.integers(2)], others[rng.integers(4)], rng)
                if data not in originals:
                    batch.append(data)
            assert three[B].exchange.receive(epoch.record, batch) == ([], {"EnvelopeRefused": 1000})
    finally:
        logging.disable(logging.NOTSET)
    assert kept(three[B]) == before
    receipts, _ = three[B].exchange.receive(epoch.record, originals)
    assert len(receipts) == 2


def test_no_mutated_payload_of_a_legitimate_sender_is_accepted(three, epoch):
    """10,000 envelopes, rightly sealed and signed, whose content breaks a rule.

    Header and share numbers may change anywhere; a label or an input may take a value that none may
    have. Values that an example may have are the sender's to choose.
    """
    rng = np.random.default_rng(2)
    good = payload(three, epoch)
    original = good.pack()
    start = packing.HEAD.size + 4
    x_at = start + 16 * len(good)
    rules = list(changed_payloads(good, epoch.sites[A].n_shareable).values())
    context = Context(*envelope.CONTEXT.unpack_from(sent_by(three[A], epoch)[B], 68))
    key, identity = bytes.fromhex(epoch.sites[B].key), three[A].store.identity
    three[B].exchange.receive(epoch.record, [])
    before = kept(three[B])

    def content() -> bytes:
        kind, data = rng.integers(7), bytearray(original)
        if kind == 0:  # header, shape, share numbers
            data[int(rng.integers(start + 8 * len(good)))] ^= int(rng.integers(1, 256))
        elif kind == 1:  # the sign of a label
            data[start + 8 * len(good) + 8 * int(rng.integers(len(good))) + 7] ^= 0x80
        elif kind == 2:  # NaN or infinity
            at = x_at + 4 * int(rng.integers(good.x.size))
            data[at : at + 4] = np.float32(rng.choice([np.nan, np.inf, -np.inf])).tobytes()
        elif kind == 3:
            del data[int(rng.integers(len(data))) :]
        elif kind == 4:
            data += rng.bytes(int(rng.integers(1, 40)))
        elif kind == 5:
            data = bytearray(rng.bytes(int(rng.integers(0, 200))))
        else:
            data = bytearray(rules[rng.integers(len(rules))])
        return bytes(data)

    logging.disable(logging.WARNING)
    try:
        for _ in range(N_SEALED // 1000):
            batch = [
                envelope.seal(content(), context, to_key=key, sender=identity) for _ in range(1000)
            ]
            assert three[B].exchange.receive(epoch.record, batch) == ([], {"EnvelopeRefused": 1000})
    finally:
        logging.disable(logging.NOTSET)
    assert kept(three[B]) == before


# Epochs and rosters


def test_an_epoch_must_increase(three):
    first, second = epoch_of(three, number=1), epoch_of(three, number=2)
    three[A].exchange.send(second.record, [B], 0)
    for record in (first.record, replace(second, seed=26).encode()):
        with pytest.raises(EpochRefused):
            three[A].exchange.send(record, [B], 0)
        with pytest.raises(EpochRefused):
            three[A].exchange.receive(record, [])
    three[A].exchange.send(second.record, [B], 0)


def test_an_epoch_ends_with_its_commit(committed):
    sites, epoch, commit = committed
    with pytest.raises(EpochRefused):
        sites[A].exchange.send(epoch.record, [B], 0)
    with pytest.raises(EpochRefused):
        sites[A].exchange.receive(epoch.record, [])
    assert sites[A].store.keyring.private_key(bytes.fromhex(epoch.sites[A].key)) is None
    assert sites[A].apply_commit(commit.record) == commit


def test_a_key_that_was_never_offered_is_refused(three, epoch):
    forged = replace(epoch.sites[A], key="ab" * 32).signed(three[A].store.identity)
    with pytest.raises(EpochRefused):
        three[A].exchange.send(replace(epoch, offers=(forged, *epoch.offers[1:])).encode(), [B], 0)


def test_a_roster_without_this_site_or_under_another_name_is_refused(three, epoch):
    with pytest.raises(RosterRefused):
        three[A].exchange.receive(replace(epoch, offers=epoch.offers[1:]).encode(), [])
    renamed = replace(epoch.sites[A], site="aa").signed(three[A].store.identity)
    with pytest.raises(RosterRefused):
        three[A].exchange.receive(replace(epoch, offers=(renamed, *epoch.offers[1:])).encode(), [])


def with_impostor(sites: list[Site], number: int) -> Epoch:
    """An epoch in which somebody else has c's name, rightly signed with a key of its own."""
    epoch, impostor = epoch_of(sites, number=number), Identity.create()
    offer = replace(epoch.sites[C], identity=impostor.name).signed(impostor)
    return replace(epoch, offers=(*epoch.offers[:C], offer))


def test_a_pinned_key_may_not_change(make_site):
    sites = [make_site(name) for name in "abc"]
    pins = {site.name: site.identity_name for site in sites}
    sites[A].peers = pins
    for call in (
        lambda r: sites[A].exchange.send(r, [B], 0),
        lambda r: sites[A].exchange.receive(r, []),
    ):
        with pytest.raises(RosterRefused):
            call(with_impostor(sites, 1).record)
    assert sites[A].store.epochs.highest()[0] == 0
    sites[A].exchange.receive(epoch_of(sites).record, [])


def test_a_peer_must_be_pinned(make_site):
    sites = [make_site(name) for name in "abc"]
    sites[A].peers = {"b": sites[B].identity_name}
    with pytest.raises(PeersNotPinned):
        sites[A].exchange.receive(epoch_of(sites).record, [])
    sites[A].peers = {}
    with pytest.raises(PeersNotPinned):
        sites[A].exchange.receive(epoch_of(sites).record, [])


def test_the_key_of_the_first_use_may_not_change(three):
    three[A].exchange.receive(epoch_of(three, number=1).record, [])
    with pytest.raises(RosterRefused):
        three[A].exchange.receive(with_impostor(three, 2).record, [])
    three[A].exchange.receive(epoch_of(three, number=2).record, [])


def test_the_first_use_is_remembered_after_a_restart_and_from_a_commit(make_site, three):
    epoch = epoch_of(three)
    three[A].apply_commit(Commit.of(epoch, ()).record)  # it missed the exchange
    again = make_site("a")
    with pytest.raises(RosterRefused):
        again.exchange.receive(with_impostor([again, *three[1:]], 2).record, [])


def test_a_store_belongs_to_one_federation(three, epoch):
    with pytest.raises(WrongFederation):
        three[A].exchange.offer("banks", node_id=1, run_id=1, with_key=True)
    banks = Epoch(
        "banks", 1, 7, 1,
        tuple(
            replace(o, federation="banks").signed(s.store.identity)
            for o, s in zip(epoch.sites, three, strict=True)
        ),
    )  # fmt: skip
    with pytest.raises(WrongFederation):
        three[A].exchange.receive(banks.record, [])
    with pytest.raises(WrongFederation):
        three[A].apply_commit(Commit.of(banks, ()).record)


def test_an_offer_tells_how_much_and_nothing_else(three):
    offer = three[A].exchange.offer(FEDERATION, node_id=3, run_id=4, with_key=False).checked()
    assert (offer.node_id, offer.run_id, offer.key, offer.commit) == (3, 4, "", "")
    assert (offer.n_examples, offer.n_shareable, offer.row_bytes) == (12, 6, 40)
    assert (offer.layout, offer.columns) == ("float32 6", "")
    same_data = Site(three[B].store, three[A].data, "b", None)
    other = same_data.exchange.offer(FEDERATION, node_id=3, run_id=4, with_key=False).checked()
    assert other.manifest != offer.manifest  # nobody else can tell whether a guess is right


# Examples that do not fit


@pytest.mark.parametrize(
    "changes",
    [{"layout": "float64 6"}, {"layout": "float32 2x3"}, {"columns": digest_of_columns("abcdfe")}],
    ids=str,
)
def test_an_epoch_with_a_site_whose_examples_do_not_fit_is_refused(make_site, changes):
    named = {"columns": digest_of_columns("abcdef")}
    sites = [make_site(name, replace(example_data(1), **named)) for name in "ab"]
    other = make_site("c", replace(example_data(1), **{**named, **changes}))
    epoch = epoch_of([*sites, other])
    for site in (*sites, other):
        with pytest.raises(LayoutRefused, match=r"site [abc]: its .* the others'"):
            site.exchange.send(epoch.record, [B], 0)
        with pytest.raises(LayoutRefused):
            site.exchange.receive(epoch.record, [])
        assert site.store.epochs.highest()[0] == 0


def test_columns_without_names_and_no_data_fit_everything(make_site):
    named = replace(example_data(1), columns=digest_of_columns("abcdef"))
    sites = [make_site("a", named), make_site("b"), make_site("c", SiteData.none())]
    epoch = epoch_of(sites, copies=0)
    for site in sites:
        site.exchange.receive(epoch.record, [])
        assert site.store.epochs.highest()[0] == 1


def test_names_that_changed_since_the_offer_are_refused(make_site):
    sites = [
        make_site(name, replace(example_data(1), columns=digest_of_columns("abcdef")))
        for name in "abc"
    ]
    epoch = epoch_of(sites)
    renamed = make_site("a", replace(example_data(1), columns=digest_of_columns("bacdef")))
    with pytest.raises(LayoutRefused):
        renamed.exchange.send(epoch.record, [B], 0)


# Data


def test_data_that_changed_are_not_sent(make_site):
    x = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    site = make_site("a", SiteData.from_arrays(x, [0, 1, 2, 0], [True, True, False, False]))
    sites = [site, *(make_site(n, SiteData.from_arrays(x, [0] * 4, [True] * 4)) for n in "bc")]
    epoch = epoch_of(sites)
    assert sent_by(site, epoch)
    x[0], x[2] = x[2].copy(), x[0].copy()  # a private example where a shareable one was
    with pytest.raises(DataChanged):
        sent_by(site, epoch)


def test_data_that_changed_since_the_offer_are_refused(make_site, epoch):
    other = make_site("a", example_data(99))
    with pytest.raises(DataChanged):
        other.exchange.send(epoch.record, [B], 0)
    marks = make_site("a", replace(example_data(ord("a")), shareable=np.ones(12, np.bool_)))
    with pytest.raises(DataChanged):
        marks.exchange.send(epoch.record, [B], 0)
    same = make_site("a")
    assert sent_by(same, epoch)


def test_an_epoch_keeps_its_numbering_until_another_is_committed(three, epoch):
    before = three[A].store.manifests.newest().digest
    three[A].store.withdrawals.withdraw(np.array([1]))
    later = epoch_of(three, number=2)  # numbers the rows anew
    assert three[A].store.manifests.newest().digest != before
    assert three[A].exchange.receive(epoch.record, []) == ([], {})
    three[A].apply_commit(Commit.of(later, ()).record)
    assert three[A].store.manifests.find(before) is None


def test_an_epoch_over_rows_that_were_never_numbered_is_refused(make_site, three):
    stranger = make_site("a", example_data(99))
    offers = [
        site.exchange.offer(FEDERATION, node_id=1, run_id=2, with_key=True) for site in three[B:]
    ]
    content = replace(
        stranger.exchange.offer(FEDERATION, node_id=1, run_id=2, with_key=True).checked(),
        manifest="0" * 64,
    )
    epoch = Epoch(FEDERATION, 3, 25, 1, (content.signed(stranger.store.identity), *offers))
    with pytest.raises(DataChanged):
        stranger.exchange.send(epoch.record, [B], 0)


def test_a_commit_over_other_data_is_refused(make_site, committed):
    _, _, commit = committed
    other = make_site("a", example_data(99))
    with pytest.raises(DataChanged):
        other.apply_commit(commit.record)  # even though the site is under it
    other.exchange.offer(FEDERATION, node_id=1, run_id=2, with_key=True)  # numbers the new rows
    with pytest.raises(DataChanged):
        other.apply_commit(commit.record)


def test_data_that_are_as_they_were_again_are_offered_again(make_site):
    sizes = [
        make_site("a", example_data(seed, n))
        .exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=True)
        .checked()
        .n_examples
        for seed, n in ((1, 6), (2, 4), (1, 6))
    ]
    assert sizes == [6, 4, 6]


# Commits


def test_an_older_commit_is_refused(committed):
    sites, _, commit = committed
    later = commit.anew()
    sites[A].apply_commit(later.record)
    for record in (
        commit.record,
        commit.anew(code="owner-corrected", owner_share=(1.0,) * 3).record,
    ):
        with pytest.raises(CommitRefused):
            sites[A].apply_commit(record)
    assert sites[A].store.commit_record() == (later.digest, later.record)


def test_a_commit_of_an_epoch_before_the_last_is_refused(three):
    first = epoch_of(three, number=1)
    three[A].exchange.receive(epoch_of(three, number=2).record, [])
    with pytest.raises(CommitRefused):
        three[A].apply_commit(Commit.of(first, ()).record)


def test_a_withdrawal_is_followed_although_a_later_epoch_was_begun(committed):
    sites, _, commit = committed
    sites[B].exchange.receive(epoch_of(sites, number=2).record, [])
    gone = commit.anew(withdrawn=((0,), (), ()))
    assert sites[B].apply_commit(gone.record) == gone


def test_what_a_later_epoch_brought_of_who_took_something_back_is_deleted(committed):
    """It may be among it, under another number; what the others sent stays."""
    sites, _, commit = committed
    later = epoch_of(sites, number=2)
    for sender in (A, C):
        sites[B].exchange.receive(later.record, [sent_by(sites[sender], later)[B]])
    sites[B].apply_commit(commit.anew(withdrawn=((0,), (), ())).record)
    senders = {
        sender for epoch, sender, *_ in sites[B].store.received.rows() if epoch == later.digest
    }
    assert senders == {sites[C].identity_name}


def test_rows_are_not_numbered_anew_by_who_forgot_what_its_commit_knows(committed):
    sites, _, commit = committed
    sites[B].store.apply(commit.anew(withdrawn=((), (0,), ())), B)
    with pytest.raises(StoreIsOlder):
        sites[B].exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=True)
    sites[B].exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=False)
    sites[B].store.withdrawals.withdraw(np.array([0]))
    assert (
        sites[B].exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=True).checked().n_examples
        == 11
    )
    assert sites[B].store.withdrawals.forgotten_in == b""


def test_what_was_withdrawn_before_a_later_exchange_is_settled(committed):
    """A server that came from a backup knows an earlier commit: the site forgot nothing."""
    sites, _, commit = committed
    sites[B].store.withdrawals.withdraw(np.array([0]))
    later = exchange(sites, epoch_of(sites, number=2))
    for site in sites:
        site.apply_commit(later.record)
    earlier = commit.anew(withdrawn=((), (0,), ()))
    options = {"node_id": 1, "run_id": 1, "with_key": True, "committed": earlier.record}
    assert sites[B].exchange.offer(FEDERATION, **options).checked().n_examples == 11


def test_both_sides_keep_the_receipt(committed):
    sites, _, commit = committed
    given = [e for e in sites[B].store.ledger.entries() if e.event == "receipt given"]
    assert {e.peer for e in given} == {sites[A].identity_name, sites[C].identity_name}
    for entry in given:
        receipt = Receipt(entry.peer, sites[B].identity_name, entry.examples, entry.evidence)
        assert receipt.is_signed_under(bytes.fromhex(commit.epoch))


def test_a_commit_of_another_epoch_of_that_number_is_refused(three, epoch):
    three[A].exchange.receive(epoch.record, [])
    with pytest.raises(CommitRefused):
        three[A].apply_commit(Commit.of(replace(epoch, seed=26), ()).record)


@pytest.mark.parametrize("changes", [{"seed": 26}, {"copies": 2}], ids=str)
def test_a_commit_must_say_what_its_epoch_said(three, epoch, changes):
    three[A].exchange.receive(epoch.record, [])
    with pytest.raises(CommitRefused):
        three[A].apply_commit(replace(Commit.of(epoch, ()), **changes).record)


def test_a_commit_must_have_the_numbers_that_were_offered(three, epoch):
    three[A].exchange.receive(epoch.record, [])
    commit = Commit.of(epoch, ())
    members = (commit.members[0], replace(commit.members[1], n_shareable=5), commit.members[2])
    with pytest.raises(CommitRefused):
        three[A].apply_commit(replace(commit, members=members).record)


def test_a_commit_that_gives_what_the_site_does_not_have_is_refused(three, epoch):
    three[B].exchange.receive(epoch.record, [sent_by(three[A], epoch)[B]])
    with pytest.raises(CommitRefused):
        three[B].apply_commit(Commit.of(epoch, ((A, B), (C, B))).record)
    assert three[B].store.commit_record() == (b"", b"")
    three[B].apply_commit(Commit.of(epoch, ((A, B),)).record)


def test_what_was_withdrawn_does_not_come_back(committed):
    sites, _, commit = committed
    gone = commit.anew(withdrawn=((0, 1, 2), (), ()))
    for site in sites[1:]:
        site.apply_commit(gone.record)
    with pytest.raises(CommitRefused):
        sites[B].apply_commit(gone.anew(withdrawn=((0, 1), (), ())).record)


def test_examples_are_withdrawn_one_after_another(committed):
    sites, _, commit = committed
    mine = dict(sites[B].holdings(commit).senders)[A].tolist()
    for n in range(1, len(mine) + 1):
        commit = commit.anew(withdrawn=(tuple(mine[:n]), (), ()))
        sites[B].apply_commit(commit.record)
        assert len(sites[B].received_examples(commit, A)[0]) == len(mine) - n


def test_a_commit_deletes_what_it_does_not_give(committed):
    sites, epoch, commit = committed
    to_b = dict(sites[B].holdings(commit).senders)
    gone = commit.anew(withdrawn=(tuple(to_b[A].tolist()[:1]), (), ()), pairs=((A, B), (B, A)))
    sites[B].apply_commit(gone.record)
    assert sites[B].store.received.counts() == [(epoch.sites[A].identity, len(to_b[A]) - 1)]
    x, _ = sites[B].received_examples(gone, A)
    assert len(x) == len(to_b[A]) - 1
    deleted = [e for e in sites[B].store.ledger.entries() if e.event == "deleted"]
    assert sorted((e.peer, e.examples) for e in deleted) == sorted(
        [(epoch.sites[A].identity, 1), (epoch.sites[C].identity, len(to_b[C]))]
    )


def test_who_left_deletes_and_stays_out(committed):
    sites, _, commit = committed
    left = commit.without(C)
    for _ in range(2):  # the second time it is under that commit already
        with pytest.raises(CommitRefused):
            sites[C].apply_commit(left.record)
    assert sites[C].store.received.counts() == []


def test_who_is_not_in_a_later_roster_deletes_what_it_holds(committed, make_site):
    sites, _, commit = committed
    without = epoch_of([sites[A], sites[B], make_site("d")], number=2)
    with pytest.raises(CommitRefused, match="no member any more"):
        sites[C].apply_commit(Commit.of(without, ()).record)
    assert sites[C].store.received.counts() == []
    assert sites[C].store.keyring.trusted_peers().keys() == {"a", "b", "c"}  # not the newcomer
    with pytest.raises(CommitRefused):
        sites[C].apply_commit(commit.record)


def test_a_later_roster_with_a_changed_key_deletes_nothing(committed, make_site, tmp_path):
    sites, _, _ = committed
    held = sites[C].store.received.counts()
    (tmp_path / "a").rename(tmp_path / "old a")
    impostor = epoch_of([make_site("a"), sites[B], make_site("d")], number=2)
    with pytest.raises(RosterRefused):
        sites[C].apply_commit(Commit.of(impostor, ()).record)
    assert sites[C].store.received.counts() == held


def test_a_member_that_left_need_not_be_pinned_any_more(committed):
    sites, _, commit = committed
    sites[A].peers = {"b": commit.members[B].identity}
    sites[A].apply_commit(commit.without(C).record)


def test_a_commit_with_a_changed_key_is_refused(three, epoch):
    three[A].exchange.receive(epoch.record, [])
    commit = Commit.of(epoch, ())
    impostor = replace(commit.members[C], identity=Identity.create().name)
    with pytest.raises(RosterRefused):
        three[A].apply_commit(replace(commit, members=(*commit.members[:C], impostor)).record)


def test_what_is_held_must_be_what_was_received(committed):
    sites, _, commit = committed
    sender, numbers = sites[A].holdings(commit).senders[0]
    sites[A].store.database.run(
        "DELETE FROM received WHERE sender = ?", (commit.members[sender].identity,)
    )
    assert len(numbers)
    with pytest.raises(StoreError):
        sites[A].received_examples(commit, sender)


# Withdrawals


def test_a_withdrawn_example_is_not_sent(three, epoch):
    three[A].store.withdrawals.withdraw(three[A].store.manifests.newest().share_rows[:1])
    with pytest.raises(DataChanged):
        sent_by(three[A], epoch)
    later = epoch_of(three, number=2)
    assert later.sites[A].n_shareable == epoch.sites[A].n_shareable - 1
    exchange(three, later)


def test_a_withdrawn_private_example_holds_up_nothing(three, epoch):
    three[A].store.withdrawals.withdraw(np.array([1]))
    assert not three[A].data.shareable[1]
    exchange(three, epoch)


def test_withdrawals_are_reported_by_share_number(committed):
    sites, _, commit = committed
    manifest = sites[A].store.manifests.newest()
    sites[A].store.withdrawals.withdraw(np.array([manifest.share_rows[2], 1, 3]))
    found = sites[A].rows.withdrawn(manifest)
    assert found.numbers == (2,)
    assert found.n_private == 2
    fresh = Site(sites[A].store, sites[A].data, "a", None)
    with pytest.raises(CommitRefused):  # nothing is trained on until all know
        fresh.holdings(commit)
    known = commit.anew(withdrawn=((2,), (), ()), withdrawn_private=(2, 0, 0))
    for site in (fresh, *sites[1:]):
        site.apply_commit(known.record)
    sites = [fresh, *sites[1:]]
    assert sum(s.holdings(known).coverage for s in sites) == pytest.approx(known.n_examples)


def test_who_withdrew_everything_takes_part_in_nothing(committed):
    sites, _, commit = committed
    epoch = epoch_of(sites, number=2)
    sites[A].store.withdrawals.withdraw_everything()
    for call in (
        lambda: sites[A].exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=False),
        lambda: sites[A].exchange.send(epoch.record, [B], 0),
        lambda: sites[A].exchange.receive(epoch.record, []),
        lambda: sites[A].apply_commit(commit.record),
    ):
        with pytest.raises(SiteWithdrew):
            call()
    assert sites[A].store.received.counts() == []


# Receipts


def test_a_receipt_is_worth_what_its_recipient_signed(three, epoch):
    (receipt,), _ = three[B].exchange.receive(epoch.record, [sent_by(three[A], epoch)[B]])
    assert receipt.is_signed(epoch)
    for changes in (
        {"examples": receipt.examples + 1},
        {"sender": three[C].identity_name},
        {"recipient": three[C].identity_name},
        {"recipient": "no key"},
        {"signature": receipt.signature[:-1] + b"\0\0"},
        {"signature": None},
        {"examples": b"4"},
    ):
        assert not replace(receipt, **changes).is_signed(epoch), changes
    assert not receipt.is_signed(epoch_of(three, number=2))
    short = receipt_content(epoch.digest, receipt.sender, receipt.recipient, 0)
    signed = three[B].store.identity.sign("receipt", short)
    assert not replace(receipt, examples=0, signature=signed).is_signed(epoch)


def test_only_good_receipts_come_into_the_ledger(three, epoch):
    (receipt,), _ = three[B].exchange.receive(epoch.record, [sent_by(three[A], epoch)[B]])
    commit = Commit.of(epoch, ((A, B),))
    stranger = Identity.create()
    content = receipt_content(epoch.digest, receipt.sender, stranger.name, 3)
    bad = [
        replace(receipt, examples=5),
        replace(receipt, recipient="no key"),
        replace(receipt, examples=b"4"),
        replace(receipt, sender=three[C].identity_name),
        Receipt(receipt.sender, stranger.name, 3, stranger.sign("receipt", content)),
    ]
    three[A].note_receipts(commit, [*bad, receipt, receipt])
    noted = [e for e in three[A].store.ledger.entries() if e.event == "receipt"]
    assert [(e.peer, e.examples, e.evidence) for e in noted] == [
        (receipt.recipient, receipt.examples, receipt.signature)
    ]


@pytest.mark.usefixtures("epoch")
def test_packing_sees_shareable_examples_only(three):
    """The manifest cannot make a private example leave."""
    manifest = three[A].store.manifests.newest()
    everything = replace(manifest, shareable=np.ones(12, np.bool_))
    with pytest.raises(DataChanged):
        Shareable(three[A].data, everything, b"key")
    assert len(Shareable(three[A].data, manifest, b"key")) == 6
