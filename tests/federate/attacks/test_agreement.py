"""A site whose copies, preprocessing or software differ is found before training, and named."""

import itertools

import numpy as np
import pytest

from fedcommons.federate.protocol import agreement
from fedcommons.federate.protocol.refusals import EnvelopeRefused
from fedcommons.federate.server.agreement import judge
from fedcommons.federate.site.site import Site
from fedcommons.federate.transport import messages
from tests.federate.attacks.hostile_sites import quarantined
from tests.federate.tiny import Tampered, Tiny, gradient, outcomes, train
from tests.reference import agreement as reference

pytestmark = pytest.mark.usefixtures("impatient")

SIZES = (40, 40, 40, 40)  # so that every pair shares something


@pytest.fixture
def four(tmp_path):
    found = Tiny(tmp_path, sizes=SIZES)
    yield found
    found.close()


def differing(who: str, factor: float):
    """A training function that scales its inputs at one site."""

    def answer(site, message, context):
        if context.node_config["site"] not in who:
            return gradient(site, message, context)
        held = site._weighted_examples(context)
        before = held.x
        object.__setattr__(held, "x", before * factor)
        try:
            return gradient(site, message, context)
        finally:
            object.__setattr__(held, "x", before)

    return answer


def test_sites_that_agree_train_and_nothing_else_changes(tmp_path):
    models = []
    for audit in (False, True):
        tiny = Tiny(tmp_path / str(audit), sizes=SIZES)
        with tiny.shared(grid := tiny.grid()) as federation:
            models.append(train(federation, grid, 3, audit=audit)[0])
            assert not federation.quarantine.entries
            assert federation.commit.order == (1, 0)
        tiny.close()
    assert models[0].tobytes() == models[1].tobytes()


@pytest.mark.parametrize("factor", [1 / 255, 1.01])
def test_a_site_that_prepares_its_inputs_otherwise_is_named(four, factor):
    with four.shared(grid := four.grid(train=differing("b", factor))) as federation:
        _, notes = train(federation, grid, 2, audit=True)
        assert list(quarantined(federation)) == ["b"]
        assert "it computes other gradients than 3 of 3" in quarantined(federation)["b"]
        assert [outcomes(note)["b"] for note in notes] == ["quarantined"] * 2
        assert sum(s["answered"] for s in notes[0]["sites"]) == 3


def test_a_recipient_that_kept_other_copies_than_it_signed_for_is_named(four, monkeypatch):
    right = Site.received_examples

    def others(site, commit, sender):
        x, y = right(site, commit, sender)
        return (x, (y + 1) % 3) if site.name == "c" else (x, y)

    monkeypatch.setattr(Site, "received_examples", others)
    with four.shared(grid := four.grid()) as federation:
        train(federation, grid, 1, audit=True)
        why = quarantined(federation)
        assert list(why) == ["c"]
        assert "3 of 3 of those it has examples of" in why["c"]


def test_without_the_check_nobody_notices(four):
    with four.shared(grid := four.grid(train=differing("b", 1 / 255))) as federation:
        _, notes = train(federation, grid, 2)
        assert set(outcomes(notes[1]).values()) == {"answered"}
        assert not federation.quarantine.entries


def test_where_too_many_differ_nobody_is_named(four, caplog):
    """A training function that is random, perhaps."""
    calls = itertools.count(1)

    def random(site, message, context):
        reply = gradient(site, message, context)
        beta = reply.content["gradient"]["beta"].numpy()
        reply.content["gradient"]["beta"].data = type(reply.content["gradient"]["beta"])(
            beta * next(calls)
        ).data
        return reply

    with four.shared(grid := four.grid(train=random)) as federation:
        train(federation, grid, 1, audit=True)
        assert not federation.quarantine.entries
    assert "too many sites compute different gradients" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"audit-key": 3},
        {"audit-signature": b"0" * 64},
        {"audit-sealed": ["text"]},
        {"audit-places": [99]},
        {"audit-agrees": "yes"},
    ],
    ids=str,
)
def test_whatever_a_site_replies_the_others_compare(four, changes):
    def tamper(site, _message, reply):
        record = reply.content[messages.FIELDS]
        for name, value in changes.items():
            if site == "b" and name in record:
                record[name] = value
        return reply

    grid = four.grid(Tampered)
    grid.tamper = tamper
    with four.shared(grid) as federation:
        _, notes = train(federation, grid, 1, audit=True)
        assert set(outcomes(notes[0]).values()) == {"answered"}
        assert not federation.quarantine.entries


class Recorded(Tampered):
    seen: bytes = b""

    def _handle(self, message):
        task = str(dict(message.content.get(messages.FIELDS, {})).get("task", ""))
        reply = super()._handle(message)
        if task.startswith("audit"):
            self.seen += repr(reply.content[messages.FIELDS]).encode()
            assert "answer" not in reply.content
        return reply


def test_the_server_sees_no_gradient(four, monkeypatch):
    sketches = []
    right = agreement.sketch
    monkeypatch.setattr(
        agreement, "sketch", lambda *args: sketches.append(right(*args)) or sketches[-1]
    )
    grid = four.grid(Recorded)
    with four.shared(grid) as federation:
        train(federation, grid, 1, audit=True)
    assert len(sketches) == 2 * 12
    assert grid.seen
    for one in sketches:
        packed = agreement.pack(one)
        assert repr(packed)[2:-1].encode() not in grid.seen


def test_a_sketch_keeps_sizes_and_small_differences():
    rng = np.random.default_rng(0)
    audit = bytes(range(32))
    vector = rng.normal(size=5000)
    # |sketch|^2 has mean |v|^2; relative standard deviation sqrt(2 / SKETCH), 300 checks.
    ratios = [
        (agreement.sketch(vector, rng.bytes(32)) ** 2).sum() / (vector**2).sum() for _ in range(300)
    ]
    assert np.mean(ratios) == pytest.approx(1, abs=4 * np.sqrt(2 / agreement.SKETCH / 300))
    near = vector * (1 + 1e-5 * rng.normal(size=5000))
    assert agreement.agree(agreement.sketch(vector, audit), agreement.sketch(near, audit))
    far = vector.copy()
    far[:50] *= 1.3
    assert not agreement.agree(agreement.sketch(vector, audit), agreement.sketch(far, audit))
    assert agreement.agree(np.zeros(3), np.zeros(3))
    assert not agreement.agree(np.full(3, np.nan), np.full(3, np.nan))
    with pytest.raises(EnvelopeRefused):
        agreement.unpack(b"123")


def pairs_of(n: int, wrong: set[tuple[int, int]]):
    return {(o, r): (o, r) not in wrong for o in range(n) for r in range(n) if o != r}


def against(place: int, n: int):
    return {(place, r) for r in range(n)} | {(o, place) for o in range(n)}


@pytest.mark.parametrize("n", [3, 4, 7])
@pytest.mark.parametrize("place", [0, 2])
def test_one_against_all_is_named(n, place):
    assert list(judge(pairs_of(n, against(place, n))).named) == [place]


def test_two_that_are_wrong_alike_are_named_among_five():
    both = (against(0, 5) | against(1, 5)) - {(0, 1), (1, 0)}
    verdict = judge(pairs_of(5, both))
    assert set(verdict.named) == {0, 1}
    assert not verdict.disputed


def test_one_pair_is_disputed_and_two_sites_settle_nothing():
    verdict = judge(pairs_of(4, {(1, 2)}))
    assert (verdict.named, verdict.disputed) == ({}, ((1, 2),))
    assert judge(pairs_of(2, against(0, 2))).named == {}
    assert judge({}).n_pairs == 0


def test_the_verdict_is_that_of_counting_anew_each_time():
    rng = np.random.default_rng(0)
    for n in rng.integers(2, 9, 400).tolist():
        wrong = rng.random(n) < 0.25
        pairs = {
            (a, b): bool(not (wrong[a] or wrong[b]) ^ (rng.random() < 0.1))
            for a, b in itertools.permutations(range(n), 2)
            if rng.random() < 0.6
        }
        assert judge(pairs) == reference.judge(pairs)
