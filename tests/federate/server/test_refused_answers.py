"""An answer that is not right is refused and counted by site, and the round goes on."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.model_schema import digest_of
from fedcommons.federate.server.answers import OTHER_QUESTION
from fedcommons.federate.transport import messages
from fedcommons.federate.transport.flower_arrays import arrays_of
from tests.federate.tiny import (
    Tampered,
    Tiny,
    gradient,
    initial,
    outcomes,
    trace,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")


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
    "another value": (poked(0.5), "not what coded made"),
    "no digest": (without_field("answer-digest"), "not what coded made"),
    "infinity": (poked(-np.inf), "NaN or infinity"),
    "damaged bytes": (damaged, "malformed"),
    "no answer record": (removed("answer"), "malformed"),
    "no fields": (removed(messages.FIELDS), OTHER_QUESTION),
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
            checkpoint = federation.state.newest_checkpoint()
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
    assert [outcomes(note)["b"] for note in notes] == ["answered", *[OTHER_QUESTION] * 2]


def test_a_model_that_is_not_finite_any_more_stops_the_training(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        with pytest.raises(FederationError, match="not finite any more after round 1"):
            train(federation, grid, 3, model=initial("float32"), learning_rate=1e40)
        assert federation.state.newest_checkpoint() is None


def digested(reply: Message) -> Message:
    """As a site would have answered this by itself."""
    fields = reply.content[messages.FIELDS]
    fields["answer-digest"] = digest_of(arrays_of(reply.content["answer"]))
    return reply


def test_whose_answer_made_the_model_infinite_is_said(tiny):
    grid = tiny.grid(Tampered)
    grid.tamper = lambda s, m, r: digested(poked(1e99)(m, r)) if s == "b" else r
    with tiny.shared(grid) as federation:
        with pytest.raises(FederationError, match=r"up to 1e\+99, by b .* round 0 is kept"):
            train(federation, grid, 1, learning_rate=1e300, answer_bound=0)
        assert federation.state.newest_checkpoint() is None


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
    with np.load(next(tiny.state_dir.glob("training-*/model.npz"))) as file:
        assert sorted(file.files) == sorted(["beta", name])
        assert file[name].tolist() == [0.0, 1.0]
