"""The server's side of the exchange: who is there, and an exchange that ends, whatever happens."""

import dataclasses
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.common.serde import message_to_proto

from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.protocol import chunks, durable
from fedcommons.federate.protocol.example_schema import usual
from fedcommons.federate.protocol.keys import Identity
from fedcommons.federate.protocol.receipts import receipt_content
from fedcommons.federate.protocol.records import Epoch, Offer
from fedcommons.federate.server import coordinator, delivery, meeting
from fedcommons.federate.site.data_files import load_site_data
from fedcommons.federate.site.epochs import Epochs
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.transport import messages
from tests.federate.tiny import (
    BETA,
    Counting,
    P,
    Tiny,
    answers_at,
    die_at,
    in_child,
    mean_estimate,
    outcomes,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")


class Troubled(Counting):
    """Replies of `sites` to messages of type `kind` pass `trouble(message, reply)`."""

    sites, kind = "b", messages.OFFER

    @staticmethod
    def trouble(_message: Message, reply: Message) -> Message | None:
        return reply

    def _handle(self, message):
        reply = super()._handle(message)
        context = self.contexts[message.metadata.dst_node_id]
        if context.node_config["site"] in self.sites and message.metadata.message_type == self.kind:
            return self.trouble(message, reply)
        return reply


class Slow(Counting):
    """What is sent is answered when it is looked for the fortieth time."""

    def __init__(self, *args):
        super().__init__(*args)
        self.looks = Counter()

    def pull_messages(self, message_ids):
        ids = list(message_ids)
        self.looks.update(ids)
        return super().pull_messages([sent for sent in ids if self.looks[sent] >= 40])


class Weighing(Counting):
    """Notes the most bytes of envelopes that are in flight at once."""

    largest = 0

    def push_messages(self, messages):
        messages = list(messages)
        self.largest = max(self.largest, sum(map(_envelope_bytes, messages)))
        return super().push_messages(messages)


class Recording(Counting):
    """Keeps every byte that is carried."""

    def __init__(self, *args):
        super().__init__(*args)
        self.carried = []

    def _carried(self, message):
        self.carried.append(message_to_proto(message).SerializeToString())
        return super()._carried(message)


def _envelope_bytes(message: Message) -> int:
    return sum(len(part) for part in messages.bytes_of(message))


def silence(_message: Message, _reply: Message) -> None:
    return None


def crash(message: Message, _reply: Message) -> Message:
    return Message(Error(8), reply_to=message)


def in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """One share number to a chunk, one envelope in flight."""
    for module in (chunks, delivery):
        monkeypatch.setattr(module, "CHUNK_BYTES", 120)
    monkeypatch.setattr(delivery, "WINDOW_BYTES", 360)


def check_unbiased(tiny: Tiny, federation, grid) -> None:
    """Everybody answers, the shares add up to M, and the estimate is unbiased."""
    answers, answered = answers_at(federation, grid, BETA)
    assert answered.all()
    full = tiny.full_gradient({}, BETA).ravel()
    assert mean_estimate(answers, P) == pytest.approx(full, rel=0, abs=1e-10)


# Who is there


def test_a_node_that_hangs_holds_up_nobody(tiny):
    grid = tiny.grid(Troubled)
    grid.trouble = silence
    start = time.monotonic()
    with tiny.shared(grid, n_sites=3, wait=600) as federation:
        assert [m.site for m in federation.commit.members] == ["a", "c", "d"]
    assert time.monotonic() - start < 60


def test_slow_nodes_are_waited_for_although_enough_are_there(tiny, monkeypatch):
    monkeypatch.setattr(meeting, "LINGER_SECONDS", 5.0)

    class Late(Counting):
        pulls = 0

        def pull_messages(self, message_ids):
            self.pulls += 1
            ids = [sent for sent in message_ids if sent != "2" or self.pulls > 5]
            return super().pull_messages(ids)

    with tiny.shared(tiny.grid(Late), n_sites=2, wait=600) as federation:
        assert len(federation.commit.members) == 4


def test_waiting_for_sites_ends(tiny):
    start = time.monotonic()
    with tiny.shared(n_sites=9, wait=0.3) as federation:
        assert len(federation.commit.members) == 4
    assert 0.3 <= time.monotonic() - start < 60


def test_a_new_exchange_waits_once_for_sites_that_do_not_come(tiny, monkeypatch):
    """Who was there says who it is, then gives a key; the second time nobody else is awaited."""
    tiny.run(1)
    gather, awaited = coordinator.Federation.gather, []

    def noting(self, grid, *, n_sites, **options):
        awaited.append(n_sites)
        gather(self, grid, n_sites=n_sites, **options)

    monkeypatch.setattr(coordinator.Federation, "gather", noting)
    with tiny.shared(n_sites=9, wait=0.1, reshare=True) as federation:
        assert len(federation.commit.members) == 4
    assert awaited == [9, 4]


def test_a_site_that_comes_late_is_taken_in(tiny):
    grid = tiny.grid()
    contexts, asked = dict(grid.contexts), []
    grid.get_node_ids = lambda: (asked.append(1), list(contexts)[: 1 + len(asked)])[1]
    with tiny.shared(grid, n_sites=4, wait=60) as federation:
        assert len(federation.commit.members) == 4


def test_one_site_is_no_federation(tiny):
    with pytest.raises(FederationError, match="two sites are needed, 1 answered within 0 s"):
        tiny.run(1, grid=tiny.grid(without="bcd"))


def changed(**changes):
    """A reply with other fields."""

    def trouble(_message: Message, reply: Message) -> Message:
        reply.content[messages.FIELDS] = ConfigRecord({**reply.content[messages.FIELDS], **changes})
        return reply

    return trouble


def missing(*names: str):
    def trouble(_message: Message, reply: Message) -> Message:
        for name in names:
            del reply.content[messages.FIELDS][name]
        return reply

    return trouble


def offering(**changes):
    """An offer that says something else, signed by whoever made it."""

    def trouble(_message: Message, reply: Message) -> Message:
        identity = Identity.create()
        offer = Offer.decode(reply.content[messages.FIELDS]["offer"])
        signed = dataclasses.replace(offer, identity=identity.name, **changes).signed(identity)
        fields = {"offer": signed.content, "signature": signed.signature, "commit": b""}
        reply.content[messages.FIELDS] = ConfigRecord(fields)
        return reply

    return trouble


def empty(message: Message, _reply: Message) -> Message:
    return Message(RecordDict(), reply_to=message)


BAD_OFFERS = {
    "nothing": empty,
    "an error": crash,
    "no offer": missing("offer"),
    "no signature": missing("signature"),
    "no commit": missing("commit"),
    "an offer in words": changed(offer="offer"),
    "an offer that is no offer": changed(offer=b"{}"),
    "a forged signature": changed(signature=b"0" * 64),
    "a signature in numbers": changed(signature=[1, 2]),
    "a commit that is none": changed(commit=b"{}"),
    "a commit in numbers": changed(commit=3),
    "another node": offering(node_id=99),
    "another run": offering(run_id=1),
    "another federation": offering(federation="others"),
    "examples of no size": offering(row_bytes=0),
    "more than a site can have": offering(n_examples=2**30, n_shareable=2**30, row_bytes=2**12),
    "a farewell in numbers": changed(withdrew=3),
    "a forged farewell": changed(withdrew="0" * 64, signature=b"0" * 64),
}


@pytest.mark.parametrize("kind", BAD_OFFERS)
def test_a_bad_offer_is_refused_and_the_others_go_on(tiny, kind):
    grid = tiny.grid(Troubled)
    grid.trouble = BAD_OFFERS[kind]
    with tiny.shared(grid) as federation:
        assert [m.site for m in federation.commit.members] == ["a", "c", "d"]
        assert list(federation.meeting.refused) == [3]
        _, notes = train(federation, grid, 1)
    assert set(outcomes(notes[0]).values()) == {"answered"}


def test_a_name_can_be_taken_once(tiny):
    grid = tiny.grid()
    grid.contexts[3].node_config["site"] = "a"
    with pytest.raises(FederationError, match=r"a name of its own, got \['a'\] twice"):
        tiny.run(1, grid=grid)


def tables(tiny: Tiny, folder: Path, **columns: list[str]) -> None:
    """Sites' data as Parquet files, with these feature columns, of which every other row is shared.

    A feature has the same values under the same name, wherever it is.
    """
    for name, features in columns.items():
        n = tiny.data[name].n_examples
        table = {f: np.full(n, float(ord(f[0]))) for f in features}
        marks = {"label": tiny.data[name].y, "shareable": np.arange(n) % 2 == 0}
        path = folder / f"{name}.parquet"
        pq.write_table(pa.table({**table, **marks}), path)
        tiny.data[name] = load_site_data(path, spool=folder / f"spool-{name}")


def test_sites_with_other_columns_are_named_and_left_out(tiny, tmp_path, caplog):
    """Features go by position: with age and bp swapped, b would spoil what it gets and gives."""
    names = ["age", "bp", "crp", "dbp"]
    tables(tiny, tmp_path, a=names, b=["bp", "age", "crp", "dbp"], c=names, d=names)
    with tiny.shared() as federation:
        assert [m.site for m in federation.commit.members] == ["a", "c", "d"]
    why = "its feature columns have other names than the others', or another order"
    assert f"b is left out of the exchange: {why}" in caplog.text
    caplog.clear()
    grid = tiny.grid(Recording)
    with tiny.shared(grid) as federation:  # another run, without an exchange
        _, notes = train(federation, grid, 1)
    assert f"b has no part in the exchange: {why}" in caplog.text
    assert set(outcomes(notes[0]).values()) == {"answered"}
    assert grid.carried
    for name in names:
        assert f'"{name}"'.encode() not in b"".join(grid.carried)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x.astype(np.float32), "its examples are float32 4, the others' float64 4"),
        (lambda x: x[:, :3], "its examples are float64 3, the others' float64 4"),
        (lambda x: x.reshape(-1, 2, 2), "its examples are float64 2x2, the others' float64 4"),
    ],
    ids=["type", "features", "shape"],
)
def test_sites_with_examples_of_another_form_are_named_and_left_out(tiny, caplog, change, said):
    data = tiny.data["a"]
    x = change(data.x.block(0, data.n_examples))
    tiny.data["a"] = SiteData.from_arrays(x, data.y, data.shareable)
    with tiny.shared() as federation:
        assert [m.site for m in federation.commit.members] == ["b", "c", "d"]
        assert set(federation.commit.pairs) == {
            (s, r) for s in range(3) for r in range(3) if s != r
        }
    assert f"a is left out of the exchange: {said}" in caplog.text


def test_of_two_sites_that_do_not_fit_the_error_names_the_second(tiny, tmp_path):
    tables(tiny, tmp_path, a=["age", "bp"], b=["bp", "age"])
    with pytest.raises(FederationError, match=r"left out were {'b': \"its feature columns have"):
        tiny.run(1, grid=tiny.grid(without="cd"), sharing={"copies": 1})


def test_a_site_without_data_takes_part_whatever_the_others_have(tiny):
    tiny.data["a"] = SiteData.none()
    with tiny.shared(copies=0) as federation:
        assert len(federation.commit.members) == 4


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("", ("", "")),
        ("a:p b:q", ("p", "")),
        ("b:q a:p", ("p", "")),
        ("a:p b:q c:q", ("q", "")),
        ("a: b: c:q", ("q", "")),
        ("a:p b:q1 c:q2 d:q2", ("q", "2")),
        ("a:p1 b:p1 c:q2 d:q2 e:q", ("q", "2")),
        ("a:p b:p b:p1", ("p", "1")),
        ("b:p2 a:p1", ("p", "1")),
    ],
)
def test_the_usual_layout_is_that_of_most_and_then_of_the_first(said, expected):
    sites = [
        SimpleNamespace(site=name, layout=what[:1], columns=what[1:])
        for name, what in (word.split(":") for word in said.split())
    ]
    assert usual(sites) == expected


def test_copies_must_fit_the_sites_that_are_there(tiny):
    with pytest.raises(FederationError, match=r"copies must be in 0 to 3 .*, got 4"):
        tiny.run(1, sharing={"copies": 4})


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("copies", -1, "copies must be an integer >= 0, got -1"),
        ("copies", 2.5, "copies must be an integer >= 0, got 2.5"),
        ("seed", -3, "seed must be an integer in .*, got -3"),
        ("seed", 2**63, "seed must be an integer in"),
        ("n_sites", 0, "sites must be an integer >= 2, got 0"),
        ("wait", float("inf"), "wait must be in .*, got inf"),
        ("seconds", 0, "timeout must be > 0 and finite, got 0"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tiny, option, value, rule):
    with pytest.raises(ArgumentError, match=rule):
        tiny.run(1, sharing={option: value})
    assert not tiny.state_dir.exists()


def test_a_claim_to_have_seen_far_more_epochs_is_refused(tiny, monkeypatch):
    seen = Epochs.highest

    def lies(epochs):
        return (2**40, b"") if epochs.database.folder.name == "d" else seen(epochs)

    monkeypatch.setattr(Epochs, "highest", lies)
    with pytest.raises(FederationError, match=f"d says that it has seen epoch {2**40}, the others"):
        tiny.run(1)
    tiny.close()
    tiny.run(1, grid=tiny.grid(without="d"))  # nothing was spoilt


def test_a_store_from_elsewhere_does_not_turn_the_federation_over(tiny, tmp_path, caplog):
    """A trial had the same name, and made more exchanges."""
    trial = Tiny(tmp_path / "trial")
    trial.folder.mkdir()
    trial.run(1)
    trial.run(1, sharing={"reshare": True})
    trial.close()
    tiny.run(1, grid=tiny.grid(without="d"))
    shutil.copytree(trial.folder / "d", tiny.folder / "d")
    with tiny.shared() as federation:
        assert (federation.commit.order, len(federation.commit.members)) == ((1, 0), 3)
    assert "which d report, is not adopted" in caplog.text
    shutil.rmtree(tiny.state_dir)
    with pytest.raises(FederationError, match="stores are of different federations"):
        tiny.share(tiny.grid())


def test_an_older_server_takes_the_word_of_most_for_a_later_exchange(tiny, tmp_path):
    tiny.run(1)
    shutil.copytree(tiny.state_dir, tmp_path / "backup")
    tiny.run(1, sharing={"reshare": True})
    shutil.rmtree(tiny.state_dir)
    shutil.copytree(tmp_path / "backup", tiny.state_dir)
    with tiny.shared() as federation:
        assert federation.commit.order == (2, 0)


def test_a_site_that_fails_is_asked_again_while_another_hangs(tiny):
    grid, failed = tiny.grid(Troubled), []

    def trouble(message, reply):
        site = grid.contexts[message.metadata.dst_node_id].node_config["site"]
        if site == "a":
            return None
        if site == "b" and not failed:
            failed.append(site)
            return crash(message, reply)
        return reply

    grid.kind, grid.trouble, grid.sites = messages.SEND, trouble, "ab"
    with tiny.shared(grid, seconds=1.5) as federation:
        senders = {sender for sender, _ in federation.commit.pairs}
    assert (failed, senders) == (["b"], {1, 2, 3})


def test_nothing_shared_is_a_commit_too(tiny):
    grid = tiny.grid(Counting)
    with tiny.shared(grid, copies=0) as federation:
        assert federation.commit.pairs == ()
        check_unbiased(tiny, federation, grid)
    assert messages.SEND not in {kind for _, kind in grid.sent}


def test_a_site_that_returns_to_its_node_is_asked_at_once(tiny):
    """A node keeps its identity in a run: a site that was away loses no further round."""
    grid = tiny.grid(Counting)
    with tiny.shared(grid) as federation:
        away = grid.contexts.pop(3)
        _, first = train(federation, grid, 1)
        grid.contexts[3] = away
        _, second = train(federation, grid, 2)
    assert (outcomes(first[0])["b"], outcomes(second[0])["b"]) == ("not connected", "answered")
    assert [sent for sent in grid.sent if sent == ("b", messages.OFFER)] == [("b", messages.OFFER)]


def test_a_site_at_another_node_is_met_without_waiting(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        moved = grid.contexts.pop(3)
        moved.node_id = 33
        grid.contexts[33] = moved
        _, notes = train(federation, grid, 3)
    assert [outcomes(note)["b"] for note in notes] == ["not connected", "answered", "answered"]


def test_a_question_that_is_never_answered_is_asked_again(tiny, monkeypatch):
    monkeypatch.setattr(meeting, "QUESTION_SECONDS", 0.001)
    tiny.run(1)
    grid = tiny.grid(Troubled)
    grid.trouble = silence
    with tiny.shared(grid, n_sites=3) as federation:
        train(federation, grid, 3)
        grid.trouble = Troubled.trouble
        time.sleep(0.01)
        _, notes = train(federation, grid, 6)
    assert outcomes(notes[-1])["b"] == "answered"


def test_a_newcomer_does_not_change_the_commit(tiny):
    """Only an exchange adopts commits: the roster never changes in the middle of a training."""
    tiny.run(1)
    old = tiny.grid(without="d")
    with tiny.shared(old) as federation:
        commit = federation.commit
        newer = commit.anew(code="equal-split")
        federation.meeting.commits["someone"] = newer
        train(federation, old, 3)
        assert federation.commit is commit


def test_a_site_that_came_after_the_exchange_is_taken_in_by_a_new_one(tiny, caplog):
    tiny.run(1, grid=tiny.grid(without="d"))
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        assert len(federation.commit.members) == 3
    assert "d came after the exchange: reshare = true takes it in" in caplog.text
    with tiny.shared(tiny.grid(), reshare=True) as federation:
        assert len(federation.commit.members) == 4


def test_a_site_that_lost_its_store_is_missing_and_pointed_out(tiny, caplog):
    tiny.run(1)
    tiny.close()
    shutil.rmtree(tiny.folder / "c")
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 2)
    assert outcomes(notes[0])["c"] == "not connected"
    assert "c has another key than in the exchange: has it lost its store?" in caplog.text


def test_a_new_exchange_that_sites_refuse_is_not_committed(tiny):
    """The others know c by another key: the commit that they are under stays."""
    tiny.run(1)
    tiny.close()
    shutil.rmtree(tiny.folder / "c")
    with pytest.raises(FederationError, match=r"epoch 2 is not committed.*'a': 'RosterRefused'"):
        tiny.run(2, sharing={"reshare": True})
    grid = tiny.grid(without="c")
    with tiny.shared(grid, reshare=True) as federation:
        assert [m.site for m in federation.commit.members] == ["a", "b", "d"]
        _, notes = train(federation, grid, 1)
    assert set(outcomes(notes[0]).values()) == {"answered"}


def test_a_site_whose_data_changed_is_missing_until_a_new_exchange(tiny, caplog):
    tiny.run(1)
    data = tiny.data["b"]
    x = data.x.take(np.arange(6)) + 1
    tiny.data["b"] = SiteData.from_arrays(x, data.y, data.shareable)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 2)
    assert outcomes(notes[0]) == {**dict.fromkeys("acd", "answered"), "b": "DataChanged"}
    assert "reshare = true takes them in" in caplog.text
    grid = tiny.grid()
    with tiny.shared(grid, reshare=True) as federation:
        assert federation.commit.order == (2, 0)
        check_unbiased(tiny, federation, grid)


def test_an_exchange_that_was_begun_with_other_copies_is_begun_anew(tiny, monkeypatch):
    """Everybody is asked for a key then, and waited for although all were there a moment ago."""
    monkeypatch.setattr(meeting, "LINGER_SECONDS", 0.0)

    def main():
        durable.reached = die_at("server.receipts:before")
        tiny.share(tiny.grid())

    assert in_child(main) == -signal.SIGKILL
    grid = tiny.grid(Slow)
    with tiny.shared(grid, copies=1, wait=60) as federation:
        assert (federation.commit.number, federation.commit.copies) == (2, 1)
        check_unbiased(tiny, federation, grid)


# The exchange goes on


@pytest.mark.parametrize("kind", [messages.SEND, messages.RECEIVE])
@pytest.mark.parametrize("trouble", [crash, silence])
def test_the_exchange_ends_without_a_site_that_fails(tiny, kind, trouble):
    grid = tiny.grid(Troubled)
    grid.kind, grid.trouble = kind, trouble
    start = time.monotonic()
    with tiny.shared(grid, seconds=1.5) as federation:
        pairs = federation.commit.pairs
        grid.trouble = Troubled.trouble
        check_unbiased(tiny, federation, grid)
    assert time.monotonic() - start < 60
    place = 1
    assert not [pair for pair in pairs if pair[0 if kind == messages.SEND else 1] == place]
    assert pairs  # the others' deliveries
    asked = grid.sent.count(("b", kind))
    assert asked == (delivery.ATTEMPTS if trouble is crash else 1)


@pytest.mark.parametrize("kind", [messages.SEND, messages.RECEIVE])
def test_a_site_that_fails_once_is_asked_again(tiny, kind):
    grid, failures = tiny.grid(Troubled), []

    def once(message, reply):
        failures.append(message)
        return crash(message, reply) if len(failures) == 1 else reply

    grid.kind, grid.trouble = kind, once
    with tiny.shared(grid) as federation:
        whole = {
            (s, r)
            for s in range(4)
            for r in range(4)
            if s != r and len(federation.commit.draw.assigned(s, r))
        }
        assert set(federation.commit.pairs) == whole
        check_unbiased(tiny, federation, grid)


def test_a_node_that_is_unavailable_for_a_moment_is_waited_for(tiny):
    """The SuperLink answers for it with error 5, more often than a failing site is asked."""
    grid, refused = tiny.grid(Troubled), []

    def unavailable(message, reply):
        refused.append(message)
        return Message(Error(5), reply_to=message) if len(refused) <= 6 else reply

    grid.kind, grid.trouble = messages.SEND, unavailable
    with tiny.shared(grid, seconds=60) as federation:
        assert {s for s, _ in federation.commit.pairs} == {0, 1, 2, 3}


def test_a_node_that_disconnects_for_a_moment_is_waited_for(tiny):
    grid, looks = tiny.grid(Troubled), []

    def nodes():
        looks.append(1)
        return [node for node in grid.contexts if node != 3 or not 2 <= len(looks) <= 6]

    grid.get_node_ids = nodes
    with tiny.shared(grid, seconds=60) as federation:
        assert {s for s, _ in federation.commit.pairs} == {0, 1, 2, 3}
    assert len(looks) > 6


def with_envelopes(record: ArrayRecord):
    def trouble(_message: Message, reply: Message) -> Message:
        reply.content[messages.ENVELOPES] = record
        return reply

    return trouble


BAD_ENVELOPES = {
    "nothing": empty,
    "no recipients": missing("recipients"),
    "one recipient": changed(recipients=2),
    "too many recipients": changed(recipients=[0, 2, 3, 0, 2, 3, 0]),
    "no envelopes": with_envelopes(ArrayRecord()),
}


@pytest.mark.parametrize("kind", BAD_ENVELOPES)
def test_malformed_envelopes_lose_their_sender_alone(tiny, kind):
    grid = tiny.grid(Troubled)
    grid.kind, grid.trouble = messages.SEND, BAD_ENVELOPES[kind]
    with tiny.shared(grid) as federation:
        assert {s for s, _ in federation.commit.pairs} == {0, 2, 3}
        grid.trouble = Troubled.trouble
        check_unbiased(tiny, federation, grid)


BAD_RECEIPTS = {
    "nothing": empty,
    "no signatures": missing("signatures"),
    "signatures that are numbers": changed(signatures=[10**15, 10**15, 10**15]),
    "signatures in words": changed(signatures=["a", "b", "c"]),
    "forged signatures": changed(signatures=[b"0" * 64] * 3),
    "too few": changed(signatures=[b"0" * 64]),
    "examples in words": changed(examples=["a", "b", "c"]),
    "unknown senders": changed(senders=["0" * 64] * 3),
    "senders in numbers": changed(senders=[1, 2, 3]),
    "refused in numbers": changed(refused=[1.5], **{"refused-counts": ["many"]}),
}


@pytest.mark.parametrize("kind", BAD_RECEIPTS)
def test_malformed_receipts_lose_their_deliveries_alone(tiny, kind):
    grid = tiny.grid(Troubled)
    grid.kind, grid.trouble = messages.RECEIVE, BAD_RECEIPTS[kind]
    with tiny.shared(grid) as federation:
        assert {r for _, r in federation.commit.pairs} == {0, 2, 3}
        grid.trouble = Troubled.trouble
        check_unbiased(tiny, federation, grid)


def test_a_receipt_counts_for_what_was_handed_out_alone(tiny):
    """b claims to have, properly signed, what a never sent."""

    class Claiming(Troubled):
        def _handle(self, message):
            if (site := message.metadata.dst_node_id) == 2:
                self.sites, self.kind, self.trouble = "a", messages.SEND, crash
            elif site == 3:
                self.sites, self.kind, self.trouble = "b", messages.RECEIVE, claim
            return super()._handle(message)

    grid = tiny.grid(Claiming)
    client = tiny.clients[-1]

    def claim(message, reply):
        b = client.site(grid.contexts[3])
        epoch = Epoch.decode(messages.fields(message)["epoch"])
        a, n = epoch.sites[0].identity, len(epoch.draw.assigned(0, 1))
        content = receipt_content(epoch.digest, a, b.identity_name, n)
        signature = b.store.identity.sign("receipt", content)
        return changed(senders=[a], examples=[n], signatures=[signature])(message, reply)

    with tiny.shared(grid) as federation:
        assert len(federation.commit.draw.assigned(0, 1))
        assert not [pair for pair in federation.commit.pairs if 1 in pair[1:] or 0 in pair[:1]]


@pytest.mark.parametrize("kind", [messages.SEND, messages.RECEIVE])
def test_a_site_that_hangs_is_waited_for_once(tiny, kind, monkeypatch):
    """Although there are many chunks."""
    in_small_chunks(monkeypatch)
    grid = tiny.grid(Troubled)
    grid.kind, grid.trouble = kind, silence
    with tiny.shared(grid, seconds=0.1) as federation:
        assert 1 not in {
            pair[0 if kind == messages.SEND else 1] for pair in federation.commit.pairs
        }
        grid.trouble = Troubled.trouble
        check_unbiased(tiny, federation, grid)
    assert grid.sent.count(("b", kind)) == 1


def test_a_commit_is_reported_by_its_members_alone(tiny):
    """Else anybody could bring in a commit of a federation that it has no part in."""
    with tiny.shared() as federation:
        commit, present = federation.commit.anew(), federation.meeting
        stranger, run_id = Identity.create(), present.run_id
        offer = Offer.decode(present.offers[present.here[0]].content)
        mine = dataclasses.replace(
            offer, identity=stranger.name, node_id=9, run_id=run_id, commit=commit.digest.hex()
        ).signed(stranger)
        fields = {"offer": mine.content, "signature": mine.signature, "commit": commit.record}
        present._take(9, fields)
        assert stranger.name in present.offers
        assert present.commits == {}


def test_senders_get_the_receipts_for_what_they_sent_once(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 1)
        train(federation, grid, 1, code="reliability-split")  # another commit: told again
        commit = federation.commit
    place = {member.identity: i for i, member in enumerate(commit.members)}
    for sender, member in enumerate(commit.members):
        noted = tiny.events(member.site, "receipt")
        assert {place[e.peer]: e.examples for e in noted} == {
            r: len(commit.draw.assigned(s, r)) for s, r in commit.pairs if s == sender
        }
        assert len(noted) == len({entry.peer for entry in noted})


def test_chunks_and_windows_are_bounded(tiny, monkeypatch):
    """The same exchange in many small chunks: as many messages, none of them large."""
    in_small_chunks(monkeypatch)
    grid = tiny.grid(Weighing)
    with tiny.shared(grid) as federation:
        check_unbiased(tiny, federation, grid)
        whole = sum(
            len(federation.commit.draw.assigned(s, r)) > 0
            for s in range(4)
            for r in range(4)
            if s != r
        )
        assert len(federation.commit.pairs) == whole
    assert grid.sent.count(("d", messages.SEND)) == 4  # one share number to a chunk
    assert 0 < grid.largest <= 360


def test_who_leaves_has_no_part_in_a_new_exchange(tiny):
    tiny.run(1)
    tiny.run(1, sharing={"reshare": True, "leave": ["d"]})
    with tiny.shared() as federation:
        assert [m.site for m in federation.commit.members] == ["a", "b", "c"]
    assert {entry.epoch for entry in tiny.events("d", "sent")} == {1}
    assert {entry.epoch for entry in tiny.events("d", "received")} == {1}


def test_leave_may_stay_in_the_config(tiny):
    tiny.run(1)
    for _ in range(2):
        tiny.run(1, sharing={"reshare": True, "leave": ["d"]}, grid=tiny.grid(without="d"))
    tiny.run(2, sharing={"leave": ["d"]}, grid=tiny.grid(without="d"))


def test_a_name_that_was_never_heard_cannot_leave(tiny):
    tiny.run(1)
    with pytest.raises(FederationError, match=r"leave must name sites .*'a', 'b', 'c', 'd'.*'e'"):
        tiny.share(tiny.grid(), reshare=True, leave=["e"])
    with tiny.shared() as federation:
        assert federation.commit.number == 1
        assert federation.unfinished is None


def test_a_state_dir_of_other_sites_is_pointed_out(tiny, tmp_path):
    tiny.run(1)
    others = Tiny(tmp_path / "others")
    shutil.copytree(tiny.state_dir, others.state_dir)
    with pytest.raises(FederationError, match="none of the sites that are there took part"):
        others.share(others.grid())
    others.run(1, sharing={"reshare": True})
    others.close()


def test_one_store_does_not_throw_the_others_out(tiny, caplog):
    tiny.run(1)
    with tiny.shared() as federation:
        commit = federation.commit
    tiny.close()
    with tiny.store("d") as store:
        store.apply(commit.without(0).without(1), 3)
    tiny.run(2)
    assert "is not adopted" in caplog.text
    with tiny.shared() as federation:
        assert federation.commit == commit
