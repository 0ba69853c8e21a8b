"""A round asks some of the sites: `sites_per_round`."""

import logging

import numpy as np
import pytest

from fedcommons import asking, coding, estimators
from fedcommons.asking import Ask
from fedcommons.errors import ArgumentError
from fedcommons.estimators import ESTIMATORS
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.transport.coded_sum import CodedSum
from fedcommons.reliability import Reliability
from fedcommons.stragglers import Bernoulli
from fedcommons.streams import stream
from fedcommons.tasks import softmax
from tests.federate.tiny import N_CLASSES, Counting, outcomes, train

P = (0.3, 0.5, 0.4, 0.2)
ROUNDS, SEED = 8, 3


@pytest.mark.parametrize(
    ("by", "estimator"), [("uniform", "memory"), ("norms", "coded_sum"), ("norms", "latest")]
)
def test_the_model_is_that_of_a_plain_loop_also_over_a_restart(tiny, by, estimator):
    settings = {
        "estimator": estimator,
        "sites_per_round": 2,
        "ask_by": by,
        "straggler_prob": P,
        "stragglers": Bernoulli(P),
        "seed": SEED,
        "learning_rate": 0.5,
    }
    notes = []
    for rounds in (3, ROUNDS):  # restarted in between
        grid = tiny.grid()
        with tiny.shared(grid) as federation:
            reached, some = train(federation, grid, rounds, **settings)
            commit = federation.commit
        notes += some
        tiny.close()

    ask, names = Ask(2, by), [member.site for member in commit.members]
    placement, x, y = tiny.placement(commit)
    task = softmax.SoftmaxRegression(x, y, x, y, N_CLASSES)
    shares = coding.equal_split(placement)
    there = Bernoulli(P).answered(ROUNDS, 4, rng=stream(SEED, "stragglers", 0))
    params, norms = task.initial(), np.full(4, np.nan)
    state = estimators.start(ESTIMATORS[estimator], 4, len(params))
    for t, note in enumerate(notes):
        probs = ask.probs(np.ones(4, np.bool_), np.array(P), norms)
        asked = ask.chosen(probs, stream(commit.seed, "asked", t + 1).random(4))
        answered = asked & there[t]
        by_site = {site["site"]: site for site in note["sites"]}
        assert [by_site[n]["asked"] for n in names] == asked.tolist()
        assert [by_site[n]["ask_prob"] for n in names] == pytest.approx(probs.tolist())
        assert [by_site[n]["answered"] for n in names] == answered.tolist()
        if by == "uniform":
            assert asked.sum() == 2
        if not there[t].any():
            continue  # the server is alone: the model stays
        answers = task.answers(params, shares)
        change = np.linalg.norm(answers - (0 if state is None else state), axis=1)
        norms = np.where(answered, change, norms)
        p = asking.missing_prob(probs, np.array(P))
        found, state = estimators.estimate(ESTIMATORS[estimator], state, answers, answered, p)
        params = params - 0.5 / len(y) * found
    np.testing.assert_allclose(reached.ravel(), params, rtol=1e-9, atol=1e-12)


def test_who_is_not_asked_is_neither_there_nor_missing(tiny, caplog):
    caplog.set_level(logging.INFO)
    grid = tiny.grid(without="d")
    with tiny.shared(tiny.grid()):
        pass
    tiny.close()
    with tiny.shared(grid, n_sites=3) as federation:
        _, notes = train(federation, grid, 6, sites_per_round=0.5, deadline=0.05)
        saved = federation.state.newest_checkpoint()
    names = [member.site for member in federation.commit.members]
    asked = np.array([[s["asked"] for s in note["sites"]] for note in notes])
    answered = np.array([[s["answered"] for s in note["sites"]] for note in notes])
    expected = Reliability.start(4)
    for a, b in zip(answered, asked, strict=True):
        expected = expected.observe(a, b)
    order = [s["site"] for s in notes[0]["sites"]]
    of = [order.index(name) for name in names]
    assert saved.reliability.straggler_prob == pytest.approx(expected.straggler_prob[of])
    assert 0 < asked[:, order.index("d")].sum() < 6
    assert not answered[:, order.index("d")].any()
    assert {outcomes(n)["a"] for n, a in zip(notes, asked, strict=True) if not a[0]} == {
        "not asked"
    }
    assert "of 2 asked of 4 answered" in caplog.text


def test_a_withdrawal_is_heard_of_a_site_that_is_not_asked(tiny):
    grid = tiny.grid(Counting)
    with tiny.shared(grid) as federation:
        before = federation.commit
        _, notes = train(federation, grid, 1, sites_per_round=1, estimator="memory")
        (asked,) = [site["site"] for site in notes[0]["sites"] if site["asked"]]
    tiny.close()
    draws = [stream(before.seed, "asked", t).random(4).argmin() for t in (2, 3)]
    names = [member.site for member in before.members]
    silent = next(n for n in names if n not in {asked, *(names[k] for k in draws)})
    tiny.withdraw(silent, 1)
    grid = tiny.grid(Counting)
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 3, sites_per_round=1, estimator="memory")
        after = federation.commit
    assert silent not in {s["site"] for n in notes for s in n["sites"] if s["asked"]}
    assert after.serial == before.serial + 1
    assert after.n_examples == before.n_examples - 1
    assert [n["commit"][1] for n in notes][-1] == after.serial


def test_flowers_words_are_understood(tiny):
    with tiny.shared() as federation:
        strategy = CodedSum(federation, fraction_train=0.3, min_train_nodes=2)
        assert strategy.settings.ask == Ask(0.3, least=2)
        assert CodedSum(federation, fraction_train=1.0, min_train_nodes=2).settings.ask is None
        for arguments, message in (
            ({"fraction_train": 0}, "fraction_train must be above 0"),
            ({"fraction_train": 0.5, "sites_per_round": 2}, "say the same"),
            ({"sites_per_round": -1}, "sites_per_round must be an integer >= 1, got -1"),
            ({"sites_per_round": 2, "ask_by": "luck"}, "ask_by must be one of"),
            (
                {"sites_per_round": 2, "ask_by": "norms", "estimator": "responder_average"},
                "responder_average, which counts clients as often as they are asked",
            ),
        ):
            with pytest.raises(ArgumentError, match=message):
                CodedSum(federation, **arguments)


def test_a_training_that_asks_all_is_known_by_the_name_that_it_had():
    every = Settings()
    assert Settings(sites_per_round=0.0, ask_by="norms", least_sites=3).name({}) == every.name({})
    assert Settings(sites_per_round=3).name({}) != every.name({})
