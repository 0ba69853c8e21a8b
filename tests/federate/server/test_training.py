"""Coded training: what counts, what is refused, and that the estimate is unbiased."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedcommons import coding, estimators
from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.server import asking, deadlines
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.transport import messages
from fedcommons.federate.transport.embedded_grid import EmbeddedGrid
from fedcommons.reliability import Reliability
from fedcommons.stragglers import Bernoulli, Trace
from fedcommons.tasks import softmax
from tests.federate.tiny import (
    BETA,
    Tampered,
    Tiny,
    answers_at,
    gradient,
    initial,
    mean_estimate,
    outcomes,
    train,
    trained_model,
)

CODES = list(coding.CODES)
ESTIMATORS = [("coded_sum", False), ("memory", False), ("memory", True)]


pytestmark = pytest.mark.usefixtures("impatient")


def trace(*rounds: str) -> Trace:
    """Who answers in each round: trace("abd", "c")."""
    return Trace(np.array([[name in answering for name in "abcd"] for answering in rounds]))


# What counts


def test_every_code_and_estimator_trains(tiny):
    losses = []

    def loss(_round, arrays):
        beta, total = arrays["beta"].numpy(), 0.0
        for data in tiny.data.values():
            rows = np.arange(data.n_examples)
            scores = softmax.with_bias(data.x.take(rows)) @ beta
            chance = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            total -= np.log(chance[rows, data.y]).sum()
        losses.append(total)
        return MetricRecord({"loss": total})

    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        for code in CODES:
            for estimator, warm in ESTIMATORS:
                settings = {"code": code, "estimator": estimator, "warm": warm}
                losses.clear()
                model, notes = train(federation, grid, 4, evaluate_fn=loss, **settings)
                assert len(losses) == 5
                assert losses[-1] < losses[0]
                assert all(site["answered"] for note in notes for site in note["sites"])
                assert federation.commit.code == code
                assert np.isfinite(model).all()


@pytest.mark.parametrize("code", CODES)
def test_estimate_is_unbiased_over_all_straggler_patterns(tiny, code):
    grid = tiny.grid()
    rng = np.random.default_rng(3)
    beta = rng.normal(size=(5, 3))
    p = np.array([0.1, 0.5, 0.8, 0.3])
    with tiny.shared(grid) as federation:
        train(federation, grid, 1, code=code, straggler_prob=tuple(p))
        found, answered = answers_at(federation, grid, beta)
    assert answered.all()
    full = tiny.full_gradient({}, beta).ravel()
    np.testing.assert_allclose(mean_estimate(found, p), full, rtol=0, atol=1e-10)


def test_memory_is_unbiased_given_any_past(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        found, _ = answers_at(federation, grid, np.ones((5, 3)))
    p, h = np.array([0.1, 0.5, 0.8, 0.3]), np.random.default_rng(0).normal(size=found.shape)
    # The memory's weight is 1 - fresh: what is remembered cancels in the mean.
    mean = h.sum(axis=0) + mean_estimate(found - h, p)
    np.testing.assert_allclose(mean, found.sum(axis=0), rtol=0, atol=1e-10)


def test_zero_answers_leave_the_model_bit_for_bit(tiny):
    grid = tiny.grid()
    silent = trace("abcd", "", "", "abcd")
    with tiny.shared(grid) as federation:
        for settings in ({}, {"estimator": "memory", "warm": True}):
            options = {"stragglers": silent, "straggler_prob": 0.5, **settings}
            models = [train(federation, grid, n, **options)[0] for n in (1, 3, 4)]
            assert models[0].tobytes() == models[1].tobytes()
            assert models[1].tobytes() != models[2].tobytes()


def test_estimated_probabilities_come_from_past_rounds_alone(tiny):
    grid = tiny.grid()
    rounds = ["abcd", "abc", "ab", "a", "abcd"]
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 5, stragglers=trace(*rounds))
    known = Reliability.start(4)
    for note, answering in zip(notes, rounds, strict=True):
        used = [site["straggler_prob"] for site in note["sites"]]
        assert used == known.straggler_prob.tolist()
        known = known.observe(np.array([name in answering for name in "abcd"]))


def test_a_site_that_was_away_for_long_counts_as_before_when_it_is_back(tiny):
    """Else its return would be scaled up by all that it missed, at once."""
    grid = tiny.grid()
    rounds = ["abcd"] * 5 + ["abc"] * 30 + ["abcd"] * 3
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, len(rounds), stragglers=trace(*rounds))
    used = [note["sites"][3]["straggler_prob"] for note in notes]
    assert used[5] == used[34] == used[35] == 1 / 7
    assert max(used[6:]) < 0.5
    assert used[36:] == [1 / 8, 1 / 9]


def test_another_training_begins_with_what_is_known_of_the_sites(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 3, stragglers=trace("abc", "abc", "abc"))
        settings = {"estimator": "memory", "stragglers": trace("abc")}
        _, notes = train(federation, grid, 1, **settings)
    assert [site["straggler_prob"] for site in notes[0]["sites"]] == [0.2, 0.2, 0.2, 0.8]


def test_rehearsed_absences_are_not_taken_for_real_ones(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 2)
        train(federation, grid, 3, stragglers=trace("abc", "abc", "abc"))
        _, notes = train(federation, grid, 1, estimator="memory")
    assert [site["straggler_prob"] for site in notes[0]["sites"]] == [0.25] * 4


def test_a_responder_average_is_over_the_sites_that_did_not_leave(tiny):
    tiny.run(1)
    grid = tiny.grid(without="d")
    with tiny.shared(grid, leave=["d"]) as federation:
        found, _ = answers_at(federation, grid, np.zeros((5, 3)))
        settings = {"estimator": "responder_average", "stragglers": trace("ab")}
        model, _ = train(federation, grid, 1, **settings)
        M = federation.commit.n_examples
    step = 0.5 / M * 3 * (found[0] + found[1]) / 2
    np.testing.assert_allclose(model.ravel(), -step, rtol=1e-12)


def test_a_known_probability_scales_the_answers(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        found, _ = answers_at(federation, grid, np.zeros((5, 3)))
        p = (0.5, 0.2, 0.0, 0.9)
        model, _ = train(federation, grid, 1, straggler_prob=p, stragglers=trace("abd"))
        M = federation.commit.n_examples
    step = 0.5 / M * (found[0] / 0.5 + found[1] / 0.8 + found[3] / 0.1)
    np.testing.assert_allclose(model.ravel(), -step, rtol=1e-12)


def test_the_model_follows_learning_rate_and_decay(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        options = {"straggler_prob": 0.0, "learning_rate": 0.3, "decay": 0.5}
        one, _ = train(federation, grid, 1, **options)
        two, _ = train(federation, grid, 2, **options)
        M = federation.commit.n_examples
    np.testing.assert_allclose(one, -0.3 / M * tiny.full_gradient({}, np.zeros((5, 3))), rtol=1e-12)
    np.testing.assert_allclose(two, one - 0.15 / M * tiny.full_gradient({}, one), rtol=1e-12)


# The owner-corrected code


def test_owner_shares_are_those_of_the_whole_placement(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 0, code="owner-corrected")
        commit = federation.commit
    placement, x, y = tiny.placement(commit)
    products = softmax.gradient_products(x, softmax.initial_residuals(y, 3))
    expected = coding.owner_share_from_products(placement, products)
    np.testing.assert_allclose(commit.owner_share, expected, rtol=1e-10)


def test_an_owner_that_is_not_there_splits_equally(tiny):
    with tiny.shared() as federation:
        del federation
    grid = tiny.grid(without="c")
    with tiny.shared(grid) as federation:
        train(federation, grid, 0, code="owner-corrected")
        assert federation.commit.owner_share[2] == 1 / 3
        assert federation.commit.owner_share[0] != 1 / 3


@pytest.mark.parametrize("w", [float("nan"), float("inf"), 1e7, "1", [1.0], None])
def test_an_owner_share_that_is_no_number_is_not_used(tiny, w):
    grid = tiny.grid(Tampered)

    def tamper(site, _message, reply):
        fields = reply.content[messages.FIELDS]
        if site == "b" and "owner-share" in fields:
            if w is None:
                del fields["owner-share"]
            else:
                fields["owner-share"] = w
        return reply

    grid.tamper = tamper
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 1, code="owner-corrected")
        assert federation.commit.owner_share[1] == 1 / 3
    assert all(site["answered"] for site in notes[0]["sites"])


def test_owner_corrected_is_refused_with_several_steps():
    with pytest.raises(ArgumentError, match="negative weights are unsafe with several steps"):
        Settings.of(code="owner-corrected", local_steps=2)


# The reliability split


def test_the_reliability_split_takes_known_probabilities_also_later(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 1, code="reliability-split")
        assert federation.commit.straggler_prob == (0.5,) * 4
        serial = federation.commit.serial
        train(federation, grid, 2, code="reliability-split")  # goes on: the same code
        assert federation.commit.serial == serial
        p = (0.1, 0.2, 0.3, 0.4)
        train(federation, grid, 1, code="reliability-split", straggler_prob=p)
        assert federation.commit.straggler_prob == p


def test_a_new_training_splits_by_what_is_known_of_the_sites_by_then(tiny):
    grid = tiny.grid()
    absences = trace("abc", "abc", "abc", "abcd")
    settings = {"code": "reliability-split", "stragglers": absences}
    with tiny.shared(grid) as federation:
        train(federation, grid, 3, **settings)
        assert federation.commit.straggler_prob == (0.5,) * 4
        train(federation, grid, 3, estimator="memory", **settings)
        assert federation.commit.straggler_prob == (0.2, 0.2, 0.2, 0.8)
        train(federation, grid, 4, **settings)  # the first goes on as it was
        assert federation.commit.straggler_prob == (0.5,) * 4


# Several local steps


def test_one_full_step_of_a_trained_model_is_the_gradient(tmp_path):
    models = []
    for k, (function, rate) in enumerate([(None, 0.5 * 0.2), (trained_model(0.2), 0.5)]):
        tiny = Tiny(tmp_path / str(k))
        grid = tiny.grid(**({"train": function} if function else {}))
        with tiny.shared(grid) as federation:
            start = initial("float32")
            models.append(train(federation, grid, 5, model=start, learning_rate=rate)[0])
        tiny.close()
    assert models[0].dtype == np.float32
    np.testing.assert_allclose(models[1], models[0], rtol=0, atol=1e-6)


def test_local_steps_on_batches_are_reproducible_and_learn(tmp_path):
    models = []
    for k in range(2):
        tiny = Tiny(tmp_path / str(k))
        grid = tiny.grid(train=trained_model(0.1))
        with tiny.shared(grid) as federation:
            settings = {"local_steps": 3, "batch_size": 2, "learning_rate": 1.0}
            models.append(train(federation, grid, 10, **settings)[0])
        tiny.close()
    assert models[0].tobytes() == models[1].tobytes()
    full = [np.linalg.norm(tiny.full_gradient({}, beta)) for beta in (np.zeros((5, 3)), models[0])]
    assert full[1] < full[0]


def test_every_local_step_is_one_batch(tiny):
    seen = []

    def spy(site, message, context):
        batches = list(site.batches(context))
        seen.append([len(y) for _, y, _ in batches])
        return trained_model(0.1)(site, message, context)

    grid = tiny.grid(train=spy)
    with tiny.shared(grid) as federation:
        train(federation, grid, 1, local_steps=4, batch_size=3)
    assert seen == [[3, 3, 3, 3]] * 4


@pytest.mark.parametrize("settings", [{"local_steps": 2}, {"batch_size": 3}])
def test_a_gradient_is_no_answer_where_local_steps_are_asked_for(tiny, settings):
    grid = tiny.grid()
    with (
        tiny.shared(grid) as federation,
        pytest.raises(FederationError, match="nobody answered, 1 times in a row, up to round 1"),
    ):
        train(federation, grid, 1, **settings)
    (folder,) = tiny.state_dir.glob("epoch1-*")
    with tiny.shared() as federation:
        history = federation.state.checkpoint(folder.name).history
    assert {site.outcome for site in history[-1].sites} == {"LocalStepsIgnored"}


# What is refused


def changed_fields(**changes):
    def tamper(_message: Message, reply: Message) -> Message:
        reply.content[messages.FIELDS] = ConfigRecord({**reply.content[messages.FIELDS], **changes})
        return reply

    return tamper


def without_field(name: str):
    def tamper(_message: Message, reply: Message) -> Message:
        del reply.content[messages.FIELDS][name]
        return reply

    return tamper


def answer_of(make):
    """The answer's array replaced by what `make` makes of it."""

    def tamper(_message: Message, reply: Message) -> Message:
        beta = reply.content["answer"]["beta"].numpy().copy()
        made = make(beta)
        reply.content["answer"] = (
            made if isinstance(made, ArrayRecord) else ArrayRecord({"beta": Array(made)})
        )
        return reply

    return tamper


def poked(value: float):
    def make(beta):
        beta[1, 1] = value
        return beta

    return answer_of(make)


def from_another_node(_message: Message, reply: Message) -> Message:
    reply.metadata.__dict__["_src_node_id"] = 77
    return reply


def damaged(_message: Message, reply: Message) -> Message:
    reply.content["answer"]["beta"].data = b"\x93NUMPY not really"
    return reply


def removed(name: str):
    def tamper(_message: Message, reply: Message) -> Message:
        del reply.content[name]
        return reply

    return tamper


OTHER = "the arrays have other shapes or types than the model's"
BAD_REPLIES = {
    "an error": (lambda m, r: Message(Error(2, "ValueError"), reply_to=m), "ValueError"),
    "an error with a text": (lambda m, r: Message(Error(2, "a b"), reply_to=m), "error 2"),
    "a crash": (lambda m, r: Message(Error(8), reply_to=m), "client crashed"),
    "no reply": (lambda m, r: None, "no answer"),
    "another shape": (answer_of(lambda b: b.T), OTHER),
    "integers": (answer_of(lambda b: b.astype(int)), OTHER),
    "complex numbers": (answer_of(lambda b: b.astype(complex)), OTHER),
    "another name": (
        answer_of(lambda b: ArrayRecord({"gamma": Array(b)})),
        "the arrays have other names than the model's",
    ),
    "NaN": (poked(np.nan), "NaN or infinity"),
    "infinity": (poked(-np.inf), "NaN or infinity"),
    "damaged bytes": (damaged, "malformed"),
    "no answer record": (removed("answer"), "malformed"),
    "no fields": (removed(messages.FIELDS), "wrong commit"),
    "an unknown sender": (from_another_node, "unknown sender"),
    "the wrong commit": (changed_fields(digest=b"0" * 32), "wrong commit"),
    "a commit that is no digest": (changed_fields(digest=[1, 2]), "wrong commit"),
    "no commit": (without_field("digest"), "wrong commit"),
    "the wrong round": (changed_fields(round=7), "wrong round"),
    "no round": (without_field("round"), "wrong round"),
    "no coverage": (without_field("coverage"), "malformed"),
    "coverage NaN": (changed_fields(coverage=float("nan")), "malformed"),
    "negative coverage": (changed_fields(coverage=-1.0), "malformed"),
    "more coverage than examples": (changed_fields(coverage=1e9), "malformed"),
    "coverage in words": (changed_fields(coverage="all"), "malformed"),
    "withdrawn in words": (
        changed_fields(withdrawn="ab", **{"withdrawn-private": 0}),
        "malformed",
    ),
    "withdrawn without private": (changed_fields(withdrawn=[0]), "malformed"),
    "withdrawn beyond": (
        changed_fields(withdrawn=[10**9], **{"withdrawn-private": 0}),
        "malformed",
    ),
    "withdrawn below": (changed_fields(withdrawn=[-1], **{"withdrawn-private": 0}), "malformed"),
    "withdrawn infinitely": (
        changed_fields(withdrawn=[0], **{"withdrawn-private": float("inf")}),
        "malformed",
    ),
    "withdrawn more than there is": (
        changed_fields(withdrawn=[0], **{"withdrawn-private": 10**6}),
        "malformed",
    ),
}


@pytest.mark.parametrize("kind", BAD_REPLIES)
def test_a_bad_reply_is_refused_counted_by_site_and_the_round_goes_on(tmp_path, kind):
    tamper, outcome = BAD_REPLIES[kind]
    models = []
    for folder in ("bad", "absent"):
        tiny = Tiny(tmp_path / folder)
        grid = tiny.grid(Tampered)
        settings = {"straggler_prob": 0.25, "deadline": 0.05}
        if folder == "bad":
            grid.tamper = lambda site, m, reply: tamper(m, reply) if site == "b" else reply
        else:
            settings["stragglers"] = trace("acd", "acd")
        with tiny.shared(grid) as federation:
            model, notes = train(federation, grid, 2, **settings)
            order = federation.commit.order
            checkpoint = federation.state.newest_checkpoint("epoch1")
        tiny.close()
        models.append(model)
        if folder == "bad":
            for note in notes:
                assert outcomes(note) == {**dict.fromkeys("acd", "answered"), "b": outcome}
                assert [site["answered"] for site in note["sites"]] == [True, False, True, True]
            assert checkpoint.run.tolist() == [0, 2, 0, 0]
            assert order == (1, 0)
    assert models[0].tobytes() == models[1].tobytes()


def test_the_answer_of_an_earlier_round_never_counts(tiny):
    """A site that sends what it sent in round 1 in reply to a later message."""
    first = {}

    def tamper(site, message, reply):
        if site != "b":
            return reply
        known = first.setdefault("content", reply.content)
        return Message(known, reply_to=message)

    grid = tiny.grid(Tampered)
    grid.tamper = tamper
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 3)
    assert [outcomes(note)["b"] for note in notes] == ["answered", "wrong round", "wrong round"]


def test_sites_that_disagree_on_who_holds_what_stop_the_training(tiny):
    grid = tiny.grid(Tampered)
    grid.tamper = lambda s, m, r: changed_fields(coverage=1.0)(m, r) if s == "b" else r
    with tiny.shared(grid) as federation:
        with pytest.raises(FederationError, match=r"do not agree on who holds what.*'b': 1.0"):
            train(federation, grid, 1)
        assert federation.state.newest_checkpoint("epoch1") is None


def test_a_model_that_is_not_finite_any_more_stops_the_training(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        with pytest.raises(FederationError, match="not finite any more after round 1"):
            train(federation, grid, 3, model=initial("float32"), learning_rate=1e40)
        assert federation.state.newest_checkpoint("epoch1") is None


def test_whose_answer_made_the_model_infinite_is_said(tiny):
    grid = tiny.grid(Tampered)
    grid.tamper = lambda s, m, r: poked(1e308)(m, r) if s == "b" else r
    with tiny.shared(grid) as federation:
        with pytest.raises(FederationError, match=r"up to 1e\+308, by b .* round 0 is kept"):
            train(federation, grid, 1, learning_rate=100.0)
        assert federation.state.newest_checkpoint("epoch1") is None


def test_running_statistics_are_no_gradients(tiny):
    grid = tiny.grid()
    model = ArrayRecord({"norm.running_var": Array(np.ones(3)), **initial()})
    with tiny.shared(grid) as federation, pytest.raises(FederationError, match="GroupNorm"):
        train(federation, grid, 1, model=model)


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "<U3", "no-type-of-numpy's"])
def test_arrays_that_cannot_be_trained_are_refused(tiny, dtype):
    grid = tiny.grid()
    phase = Array(np.zeros(3))
    phase.dtype = dtype
    model = ArrayRecord({**initial(), "phase": phase})
    with (
        tiny.shared(grid) as federation,
        pytest.raises(FederationError, match=f"must be floating.*got phase of type {dtype}"),
    ):
        train(federation, grid, 1, model=model)


@pytest.mark.parametrize("name", ["file", "allow_pickle", "args", "layer.0/weight"])
def test_an_array_may_have_any_name(tiny, name):
    def answer(site, message, context):
        found = gradient(site, message, context).content["gradient"]
        zero = Array(np.zeros(2))
        return Message(
            RecordDict({"gradient": ArrayRecord({**found, name: zero})}), reply_to=message
        )

    grid = tiny.grid(train=answer)
    model = ArrayRecord({**initial(), name: Array(np.arange(2.0))})
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 1, model=model)
    assert set(outcomes(notes[0]).values()) == {"answered"}
    with np.load(next(tiny.state_dir.glob("epoch1-*/model.npz"))) as file:
        assert sorted(file.files) == sorted(["beta", name])
        assert file[name].tolist() == [0.0, 1.0]


def test_metrics_may_come_late_and_need_not_be_finite(tiny):
    def evaluate(_round, _arrays):
        return MetricRecord({"loss": float("nan"), "each": [1.0, 2.0]})

    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 1)
        train(federation, grid, 2, evaluate_fn=evaluate)
        train(federation, grid, 3)
    table = pyarrow.parquet.read_table(next(tiny.state_dir.glob("epoch1-*/rounds.parquet")))
    assert table["each"].to_pylist() == [None, None, [1.0, 2.0], None]
    assert [x is not None for x in table["loss"].to_pylist()] == [False, False, True, False]


def test_a_site_without_examples_takes_part(tmp_path):
    tiny = Tiny(tmp_path, sizes=(0, 4, 5), copies=0)
    grid = tiny.grid(train=trained_model(1.0))
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 2)
    tiny.close()
    assert set(outcomes(notes[-1]).values()) == {"answered"}


# Deadlines


class Clock(SimpleNamespace):
    """Time that passes only where somebody sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Slow(EmbeddedGrid):
    """Sites that take their time: `delays[site]` seconds for a training message."""

    def __init__(self, *args):
        super().__init__(*args)
        self.clock, self.delays, self.due, self.ttls = Clock(), {}, {}, []

    def push_messages(self, messages):
        messages = list(messages)
        ids = super().push_messages(messages)
        for sent, message in zip(ids, messages, strict=True):
            site = self.contexts[message.metadata.dst_node_id].node_config["site"]
            if message.metadata.message_type == "train":
                self.due[sent] = self.clock.now + self.delays.get(site, 0.0)
                self.ttls.append(message.metadata.ttl)
        return ids

    def pull_messages(self, message_ids):
        return super().pull_messages(
            [sent for sent in message_ids if self.due.get(sent, 0) <= self.clock.now]
        )


@pytest.fixture
def slow(tiny, monkeypatch):
    grid = tiny.grid(Slow)
    monkeypatch.setattr(asking, "time", grid.clock)
    monkeypatch.setattr(asking, "POLL_SECONDS", 0.3)
    return grid


def test_whoever_answers_by_the_deadline_counts(tiny, slow):
    slow.delays = {"a": 9.0, "b": 11.0, "c": 1.0}
    with tiny.shared(slow) as federation:
        _, notes = train(federation, slow, 1, deadline=10.0)
    assert outcomes(notes[0]) == {
        "a": "answered",
        "b": "no answer",
        "c": "answered",
        "d": "answered",
    }
    assert slow.clock.now == pytest.approx(10.0)
    assert set(slow.ttls) == {10.0}


def test_nobody_waits_when_all_have_answered(tiny, slow):
    slow.delays = {"a": 2.0}
    with tiny.shared(slow) as federation:
        train(federation, slow, 1, deadline=1000.0)
    assert slow.clock.now < 2.5


def test_a_late_answer_does_not_count_in_the_next_round(tiny, slow):
    slow.delays = {"b": 15.0}
    with tiny.shared(slow) as federation:
        _, first = train(federation, slow, 1, deadline=10.0)
        slow.delays = {"b": 1e9, "a": 8.0}  # b's answer of round 1 arrives in round 2
        _, second = train(federation, slow, 2, deadline=10.0)
    assert slow.clock.now > 15
    assert outcomes(first[0])["b"] == outcomes(second[0])["b"] == "no answer"


def test_an_adaptive_deadline_follows_past_answers_and_is_bounded(tiny, slow):
    slow.delays = {"a": 3.0, "b": 3.0, "c": 3.0, "d": 3.0}
    with tiny.shared(slow) as federation:
        train(federation, slow, 3, deadline="adaptive")
    first, second, third = slow.ttls[0], slow.ttls[4], slow.ttls[8]
    assert first == deadlines.FIRST_DEADLINE
    assert second == third == pytest.approx(1.5 * 3 + 2, abs=0.5)


def test_an_adaptive_deadline_grows_until_slower_sites_are_heard_again(tiny, slow):
    slow.delays = dict.fromkeys("abcd", 3.0)
    with tiny.shared(slow) as federation:
        train(federation, slow, 1, deadline="adaptive")
        deadline = deadlines.Deadline("adaptive")
        for node in range(4):
            deadline.note_answer(node, 3.0)
        for node in range(4):
            deadline.note_late(node, 6.5)
        assert deadline.seconds == pytest.approx(1.5 * 1.5 * 6.5 + 2)
        slow.delays = dict.fromkeys("abcd", 200.0)
        _, notes = train(federation, slow, 4, deadline="adaptive")
    heard = [all(site["answered"] for site in note["sites"]) for note in notes]
    assert heard == [False, True, True]


def test_nobody_waits_longer_for_a_site_that_hangs(tiny, slow):
    slow.delays = {"d": 1e9}
    with tiny.shared(slow) as federation:
        train(federation, slow, deadlines.MOST_LATE + 3, deadline="adaptive")
    by_round = slow.ttls[::4]
    assert by_round[0] < by_round[1] < by_round[2] < deadlines.LONGEST_DEADLINE
    assert by_round[-2:] == [deadlines.SHORTEST_DEADLINE] * 2


def test_an_adaptive_deadline_is_neither_short_nor_endless(tiny, slow):
    with tiny.shared(slow) as federation:
        train(federation, slow, 2, deadline="adaptive")
        assert slow.ttls[-1] == deadlines.SHORTEST_DEADLINE
        slow.ttls.clear()
        slow.delays = dict.fromkeys("abcd", 119.0)
        deadline = deadlines.Deadline("adaptive")
        deadline.note_answer(1, 1e6)
        assert deadline.seconds == deadlines.LONGEST_DEADLINE


# Nobody is there


class Gone(EmbeddedGrid):
    """Nobody is connected until the nodes were looked for `looks` times."""

    looks = 0

    def get_node_ids(self):
        self.looks -= 1
        return [] if self.looks > 0 else super().get_node_ids()


def test_a_round_waits_for_somebody_to_be_connected(tiny):
    grid = tiny.grid(Gone)
    with tiny.shared(grid) as federation:
        grid.looks = 20
        _, notes = train(federation, grid, 1, deadline=30.0)
    assert set(outcomes(notes[0]).values()) == {"answered"}


def test_a_training_that_nobody_answers_ends_and_can_go_on(tiny):
    grid = tiny.grid(Gone)
    with tiny.shared(grid) as federation:
        train(federation, grid, 1)
        grid.looks = 10**9
        with pytest.raises(
            FederationError, match="nobody answered, 10 times in a row, up to round 11"
        ):
            train(federation, grid, 40, deadline=0.01)
        grid.looks = 0
        _, notes = train(federation, grid, 12)
    assert [note["round"] for note in notes] == [12]
    assert {(s["outcome"], s["straggler_prob"]) for s in notes[0]["sites"]} == {("answered", 1 / 3)}


# Settings and results


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"estimator": "wait_for_all"}, "estimator must be one of coded_sum, memory"),
        ({"estimator": "best"}, "estimator must be one of"),
        ({"code": "best"}, "code must be one of"),
        ({"warm": True}, "warm must go with an estimator that remembers"),
        ({"straggler_prob": 1.0}, "straggler_prob must be in"),
        ({"learning_rate": 0}, "learning_rate must be > 0"),
        ({"estimator": "memory", "warm": "false"}, "warm must be true or false, got 'false'"),
        ({"learning_rate": "fast"}, "learning_rate must be a real number"),
        ({"local_steps": 0}, "local_steps must be an integer >= 1"),
    ],
)
def test_settings_say_what_is_wrong(settings, message):
    with pytest.raises(ArgumentError, match=message):
        Settings.of(**settings)


def test_a_training_is_named_by_its_settings():
    plain = Settings()
    assert plain.name(1, {}) == Settings(learning_rate=1, seed=np.int64(0)).name(1, {})
    assert plain.name(1, {}).startswith("epoch1-equal-split-coded-sum-")
    assert plain.name(1, {"lr": 0.1, "b": 2}) == plain.name(1, {"b": 2, "lr": 0.1})
    assert len({plain.name(1, config) for config in ({}, {"lr": 0.1}, {"lr": 0.2})}) == 3
    others = [
        Settings(learning_rate=0.5),
        Settings(stragglers=Bernoulli(0.5)),
        Settings(straggler_prob=(0.5, 0.5)),
        Settings(stragglers=Trace(np.ones((2000, 2), bool))),
        Settings(stragglers=Trace(np.arange(4000).reshape(2000, 2) != 2001)),
    ]
    assert len({settings.name(1, {}) for settings in [plain, *others]}) == 6
    assert Settings(straggler_prob=[0.5, 0.5]).name(1, {}) == others[2].name(1, {})


def test_results_hold_every_round_and_every_answer(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 2, stragglers=trace("abc", "abcd"))
        model, _ = train(federation, grid, 3, stragglers=trace("abc", "abcd", "d"))
        folder = next(federation.state.folder.glob("epoch1-*/run.json")).parent
    folders = list(folder.parent.glob("epoch1-*"))
    assert len(folders) == 2  # another recorded trace is another training
    newest = max(folders, key=lambda path: (path / "run.json").stat().st_mtime_ns)
    rounds = pyarrow.parquet.read_table(newest / "rounds.parquet").to_pylist()
    assert [row["answered"] for row in rounds] == [0, 3, 4, 1]
    answered = pyarrow.parquet.read_table(newest / "answers.parquet").to_pylist()
    assert [row["site"] for row in answered if row["outcome"] == "not asked"] == ["d", *"abc"]
    with np.load(newest / "model.npz") as file:
        assert file["beta"].tobytes() == model.tobytes()
    run = json.loads((newest / "run.json").read_text())
    assert (run["rounds"], run["examples"], run["epoch"]) == (3, 22, 1)
    assert estimators.ESTIMATORS[run["settings"]["estimator"]] is estimators.coded_sum


def test_no_rounds_are_a_training_too(tiny):
    assert tiny.run(0).tobytes() == np.zeros((5, 3)).tobytes()


def test_rounds_that_nobody_answers_say_nothing_of_the_sites(tiny):
    grid = tiny.grid(Tampered)
    with tiny.shared(grid) as federation:
        train(federation, grid, 2)
        grid.tamper = lambda site, message, reply: None
        with pytest.raises(FederationError, match="nobody answered, 2 times"):
            train(federation, grid, 4, deadline=0.05)
        grid.tamper = lambda site, message, reply: reply
        _, notes = train(federation, grid, 5)
    assert {site["straggler_prob"] for site in notes[0]["sites"]} == {1 / 4}


def test_memory_that_nobody_warmed_is_warmed_by_the_next_run(tiny):
    grid = tiny.grid(Tampered)
    with tiny.shared(grid) as federation:
        grid.tamper = lambda site, message, reply: None
        with pytest.raises(FederationError, match="no answer counts at the initial model"):
            train(federation, grid, 2, deadline=0.05, estimator="memory", warm=True)
        grid.tamper = lambda site, message, reply: reply
        warm, _ = train(federation, grid, 1, estimator="memory", warm=True, straggler_prob=0.5)
    M = federation.commit.n_examples
    full = tiny.full_gradient({}, np.zeros_like(BETA))
    np.testing.assert_allclose(warm, -0.5 / M * full, rtol=1e-12)
