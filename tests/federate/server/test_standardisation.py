"""Inputs are brought to one scale by what sites tell of theirs, once for each training."""

import json
import signal
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict

from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.protocol import durable, scale_fields
from fedcommons.federate.protocol.refusals import MalformedRecord
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.transport import messages
from fedcommons.federate.transport.node_config import tells_means
from fedcommons.scaling import Moments, Scale
from tests.federate.tiny import (
    N_FEATURES,
    Counting,
    Tampered,
    Tiny,
    die_at,
    in_child,
    outcomes,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")

ZERO = ArrayRecord({"beta": Array(np.zeros(N_FEATURES))})
SIZES = {"a": 40, "b": 60, "c": 33, "d": 35}
RATE = 0.5


@pytest.fixture
def tiny(tiny):
    """Sites with enough examples, on scales from 1 to 1,000, and a constant; targets of floats."""
    for name, n in SIZES.items():
        rng = np.random.default_rng(ord(name))
        x = rng.normal(ord(name), 1, size=(n, N_FEATURES)) * [1, 1000, 1, 0] + [0, 0, 5, 7]
        tiny.data[name] = SiteData.from_arrays(x, x[:, 0] * 0.3 + 1, np.arange(n) % 4 == 0)
    return tiny


def least_squares(site, message, context):
    """One step of a linear model; what it was given is kept in `given`."""
    beta = message.content["arrays"]["beta"].numpy()
    for x, y, weight in site.batches(context):
        least_squares.given.append((context.node_config["site"], x, y))
        least_squares.scales.append(site.scale(context))
        beta = beta - 0.2 * x.T @ ((x @ beta - y) * weight) / len(y)
    return Message(RecordDict({"arrays": ArrayRecord({"beta": Array(beta)})}), reply_to=message)


@pytest.fixture(autouse=True)
def nothing_given():
    least_squares.given, least_squares.scales = [], []


def run(tiny: Tiny, num_rounds: int, *, grid=None, **settings):
    """Train on one scale; the final parameters and the notes of the rounds."""
    grid = tiny.grid(train=least_squares) if grid is None else grid
    with tiny.shared(grid) as federation:
        defaults = {"scale": "standard", "straggler_prob": 0.0, "learning_rate": RATE}
        return train(federation, grid, num_rounds, model=ZERO, **{**defaults, **settings})


def everything(tiny: Tiny, names: str = "abcd") -> tuple[np.ndarray, np.ndarray]:
    datas = [tiny.data[name] for name in names]
    return (
        np.concatenate([data.x.block(0, data.n_examples) for data in datas]),
        np.concatenate([data.y for data in datas]),
    )


def kept(tiny: Tiny) -> dict:
    (path,) = tiny.state_dir.glob("training-*/scale.json")
    return json.loads(path.read_text())


def test_training_is_that_on_everybodys_standardised_inputs(tiny, caplog):
    x, y = everything(tiny)
    reached, _ = run(tiny, 5)
    deviation = np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
    assert deviation[3] == 1
    z, beta = (x - x.mean(axis=0)) / deviation, np.zeros(N_FEATURES)
    for _ in range(5):
        beta = beta - RATE * 0.2 * z.T @ (z @ beta - y) / len(y)
    np.testing.assert_allclose(reached, beta, rtol=1e-9, atol=1e-12)
    assert "of 168 examples at 4 sites" in caplog.text
    assert "very different scales" not in caplog.text


def test_own_and_received_examples_are_on_the_same_scale(tiny):
    run(tiny, 1)
    x, _ = everything(tiny)
    scale = Moments.of(x).scale()
    everybody = {row.round(6).tobytes() for row in scale.apply(x)}
    for name, given, _ in least_squares.given:
        assert len(given) > SIZES[name]  # some of it is others'
        assert {row.round(6).tobytes() for row in given} <= everybody
    for found in least_squares.scales:
        np.testing.assert_allclose(found.mean, x.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(found.deviation, scale.deviation, rtol=1e-12)


def test_a_training_that_goes_on_keeps_its_scale(tiny):
    """Although the data that it is of have become fewer."""
    run(tiny, 4)
    tiny.close()
    before = kept(tiny)
    tiny.withdraw("a", 1, 2, 3)
    run(tiny, 6)
    assert kept(tiny) == before
    mean = np.array(before["mean"])
    found = [scale.mean.tolist() for scale in least_squares.scales]
    assert len(found) > 4 * 6  # a's withdrawal made a round begin anew
    assert set(map(tuple, found)) == {tuple(mean)}


def test_two_runs_are_one(tiny, tmp_path):
    other = Tiny(tmp_path / "other", data=dict(tiny.data))
    other.data = tiny.data
    run(tiny, 2)
    tiny.close()
    in_two, _ = run(tiny, 5)
    at_once, _ = run(other, 5)
    other.close()
    assert in_two.tolist() == at_once.tolist()


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_server_killed_while_it_keeps_the_scale_goes_on(tiny, side):
    def main():
        durable.reached = die_at(f"server.scale:{side}")
        run(tiny, 2)

    assert in_child(main) == -signal.SIGKILL
    assert bool(list(tiny.state_dir.glob("training-*/scale.json"))) == (side == "after")
    run(tiny, 2)
    np.testing.assert_allclose(kept(tiny)["mean"], everything(tiny)[0].mean(axis=0), rtol=1e-12)
    assert {tuple(scale.mean) for scale in least_squares.scales} == {tuple(kept(tiny)["mean"])}


def test_results_say_which_scale_and_whose(tiny):
    run(tiny, 1)
    (path,) = tiny.state_dir.glob("training-*/run.json")
    record = json.loads(path.read_text())
    assert record["settings"]["scale"] == "standard"
    x, _ = everything(tiny)
    np.testing.assert_allclose(record["scale"]["mean"], x.mean(axis=0), rtol=1e-12)
    assert record["scale"]["deviation"][3] == 1
    assert record["scale"]["examples"] == SIZES
    assert record["scale"]["left_out"] == {}


def test_without_a_scale_inputs_stay_and_the_site_is_warned(tiny, caplog):
    run(tiny, 2, scale="none")
    own = {row.tobytes() for row in everything(tiny)[0]}
    assert {row.tobytes() for _, given, _ in least_squares.given for row in given} <= own
    assert set(least_squares.scales) == {None}
    assert not list(tiny.state_dir.glob("training-*/scale.json"))
    said = [r.getMessage() for r in caplog.records if "very different scales" in r.getMessage()]
    assert len(said) == 4  # in round 1 alone
    assert "feature 1 is about" in said[0]


def test_the_warning_names_features(tiny, caplog):
    for name, data in tiny.data.items():
        tiny.data[name] = replace(data, features=("age", "chol", "bp", "sex"))
    run(tiny, 1, scale="none")
    assert "chol is about" in caplog.text


def test_another_scale_is_another_training():
    plain, scaled = Settings(), Settings(scale="standard")
    assert plain.name({}) != scaled.name({})
    assert "scale" not in plain._identity({})
    with pytest.raises(ArgumentError, match="scale must be one of none, standard, got 'robust'"):
        Settings(scale="robust")


def test_an_evaluate_function_has_the_same_scale(tiny):
    found = []

    def measure(site, message, context):
        found.append(site.scale(context))
        metrics = MetricRecord({"num-examples": 1, "one": 1.0})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    run(tiny, 1, grid=tiny.grid(train=least_squares, evaluate=measure))
    assert len(found) == 4
    assert {tuple(scale.mean) for scale in found} == {tuple(kept(tiny)["mean"])}
    assert {tuple(scale.deviation) for scale in found} == {tuple(kept(tiny)["deviation"])}


def test_a_scale_is_there_while_a_message_is_handled_and_no_longer(tiny):
    grid = tiny.grid(train=least_squares)
    run(tiny, 1, grid=grid)
    context = next(iter(grid.contexts.values()))
    with pytest.raises(FederationError, match="a scale is there while a message is handled"):
        tiny.clients[-1].scale(context)


# Sites that are missing, or have too little


def test_a_site_that_is_missing_is_asked_again(tiny):
    grid = tiny.grid(Tampered, train=least_squares)
    dropped = []

    def drop_first(site, _message, reply):
        if site == "b" and tells(reply) and not dropped:
            dropped.append(site)
            return None
        return reply

    grid.tamper = drop_first
    run(tiny, 1, grid=grid, deadline=0.5)
    assert dropped
    assert kept(tiny)["examples"] == SIZES


def tells(reply) -> bool:
    return "moments-n" in messages.fields(reply)


def test_a_site_that_never_answers_is_left_out_and_said(tiny, caplog):
    grid = tiny.grid(Tampered, train=least_squares)
    grid.tamper = lambda s, m, reply: None if s == "b" and tells(reply) else reply
    run(tiny, 1, grid=grid, deadline=0.3)
    x, _ = everything(tiny, "acd")
    np.testing.assert_allclose(kept(tiny)["mean"], x.mean(axis=0), rtol=1e-12)
    assert kept(tiny)["left_out"] == {"b": "no answer"}
    assert "not known of b (no answer)" in caplog.text
    assert {name for name, *_ in least_squares.given} == set("abcd")  # it trains all the same


def test_a_site_with_few_examples_tells_nothing_and_trains(tiny):
    data = tiny.data["c"]
    few = np.arange(31)
    tiny.data["c"] = SiteData.from_arrays(data.x.take(few), data.y[few], data.shareable[few])
    grid = tiny.grid(Tampered, train=least_squares)
    told = []
    grid.tamper = lambda s, m, reply: told.append((s, tells(reply))) or reply
    run(tiny, 1, grid=grid)
    assert kept(tiny)["left_out"] == {"c": "TooFewExamples"}
    assert ("a", True) in told
    assert ("c", True) not in told
    assert "c" in {name for name, *_ in least_squares.given}


def test_a_site_may_keep_its_means_to_itself(tiny, caplog):
    grid = tiny.grid(train=least_squares)
    for context in grid.contexts.values():
        if context.node_config["site"] == "d":
            context.node_config["tell-means"] = False
    run(tiny, 1, grid=grid)
    assert kept(tiny)["left_out"] == {"d": "MeansWithheld"}
    assert "not known of d (MeansWithheld)" in caplog.text
    assert "d" in {name for name, *_ in least_squares.given}


def test_a_word_is_no_permission():
    context = Context(1, 1, {"tell-means": "no"}, RecordDict(), {})
    with pytest.raises(ArgumentError, match="tell-means must be true or false, got 'no'"):
        tells_means(context)
    assert tells_means(Context(1, 1, {}, RecordDict(), {}))


def test_a_scale_of_one_site_alone_is_none(tiny):
    for name in "bcd":
        data, few = tiny.data[name], np.arange(8)
        tiny.data[name] = SiteData.from_arrays(data.x.take(few), data.y[few], data.shareable[few])
    with pytest.raises(FederationError, match=r"2 sites or more, got 1; not those of b \(TooFewEx"):
        run(tiny, 1)
    assert not list(tiny.state_dir.glob("training-*/scale.json"))


def test_what_was_withdrawn_is_in_no_moments(tiny):
    run(tiny, 1, scale="none")
    tiny.close()
    tiny.withdraw("a", 0, 1)  # one is shared, one is not
    run(tiny, 1)
    x, _ = everything(tiny)
    np.testing.assert_allclose(kept(tiny)["mean"], x[2:].mean(axis=0), rtol=1e-12)
    assert kept(tiny)["examples"]["a"] == 38


@pytest.mark.parametrize(
    "x",
    [np.zeros((40, 2, 2)), np.zeros((40, 4), np.uint8), np.zeros((40, 4), np.bool_)],
    ids=["images", "bytes", "booleans"],
)
def test_images_have_no_scale(tiny, x):
    for name in tiny.data:
        tiny.data[name] = SiteData.from_arrays(x, np.zeros(40), np.arange(40) % 4 == 0)
    with pytest.raises(FederationError, match=r"got 0; .*ScaleRefused.*flat inputs of numbers"):
        run(tiny, 1)


# What cannot be


@pytest.mark.parametrize(
    "change",
    [
        {"moments-n": 41},
        {"moments-n": 0},
        {"moments-n": 4.0},
        {"moments-mean": np.array([1.0, np.nan, 1, 1]).tobytes()},
        {"moments-mean": b"12345"},
        {"moments-mean": [1.0, 2.0, 3.0, 4.0]},
        {"moments-squares": np.array([1.0, -1, 1, 1]).tobytes()},
        {"moments-squares": np.ones(3).tobytes()},
        {"moments-mean": np.ones(3).tobytes(), "moments-squares": np.ones(3).tobytes()},
    ],
    ids=str,
)
def test_moments_that_cannot_be_are_left_out(tiny, change):
    grid = tiny.grid(Tampered, train=least_squares)

    def lie(site, _message, reply):
        if site == "a" and tells(reply):
            record = reply.content[messages.FIELDS]
            for name, value in change.items():
                record[name] = value
        return reply

    grid.tamper = lie
    run(tiny, 1, grid=grid)
    assert set(kept(tiny)["examples"]) == set("bcd")
    assert kept(tiny)["left_out"]["a"] in ("malformed", "another number of features")


@pytest.mark.parametrize(
    ("mean", "deviation"),
    [
        (np.zeros(4), np.zeros(4)),
        (np.zeros(4), -np.ones(4)),
        (np.full(4, np.inf), np.ones(4)),
        (np.zeros(4), np.ones(3)),
    ],
)
def test_a_scale_that_cannot_be_is_refused(mean, deviation):
    with pytest.raises(MalformedRecord):
        scale_fields.scale_of(scale_fields.of_scale(Scale(mean, deviation)))


def test_a_scale_of_other_features_is_refused_by_the_sites(tiny):
    run(tiny, 1)
    tiny.close()
    (path,) = tiny.state_dir.glob("training-*/scale.json")
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "mean": [0.0] * 3, "deviation": [1.0] * 3}))
    with pytest.raises(FederationError, match="nobody answered"):
        run(tiny, 2)
    tiny.close()
    path.write_text(json.dumps(content))
    _, notes = run(tiny, 3)
    assert set(outcomes(notes[-1]).values()) == {"answered"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "is damaged"),
        ('{"version": 9}', "has format version 9, this fedcommons reads up to version 1"),
        (
            '{"version": 1, "mean": [1], "deviation": [0], "examples": {}, "left_out": {}}',
            "damaged",
        ),
        (
            '{"version": 1, "mean": [1], "deviation": "x", "examples": {}, "left_out": {}}',
            "damaged",
        ),
        (None, "is missing, without which this training cannot go on"),
    ],
)
def test_a_damaged_scale_stops_a_training_and_changes_nothing(tiny, content, said):
    run(tiny, 1)
    tiny.close()
    (path,) = tiny.state_dir.glob("training-*/scale.json")
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(FederationError, match=said):
        run(tiny, 2)
    assert path.exists() == (content is not None)


def test_nothing_is_asked_without_a_scale(tiny):
    class Tasks(Counting):
        def _handle(self, message):
            if message.metadata.message_type == "train":
                asked.add(messages.fields(message)["task"])
            return super()._handle(message)

    asked = set()
    run(tiny, 1, grid=tiny.grid(Tasks, train=least_squares), scale="none")
    assert asked == {"answer"}
    tiny.close()
    run(tiny, 1, grid=tiny.grid(Tasks, train=least_squares))
    assert asked == {"answer", "moments"}
