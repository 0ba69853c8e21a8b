"""The planner is right about what it predicts, and says what it does not."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from fedcommons import datasets, plan
from fedcommons.errors import ArgumentError, DataError
from fedcommons.simulate import draws, example_space
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.scoring import Evaluation
from fedcommons.theory import expected_variance, second_moment

SETTINGS = [("single-class", 0.0), ("dirichlet", 0.1)]
PAIRS = [(c, d) for c in (0.1, 0.2, 0.3, 0.4, 0.5) for d in (1, 2, 3, 5, 8)]


@pytest.fixture(scope="module")
def mnist():
    return datasets.mnist()


@pytest.fixture(scope="module")
def geometry(mnist):
    return plan.pilot_geometry(mnist)


@pytest.mark.parametrize(("setting", "alpha"), SETTINGS)
@pytest.mark.parametrize("code", ["equal-split", "owner-corrected"])
def test_the_second_moment_at_round_0_is_within_2_percent(mnist, geometry, setting, alpha, code):
    # 100 runs; the standard error of the ratio is .003 single-class, .008 Dirichlet (given counts).
    exact, predicted = [], []
    curve = Curve(
        partition=setting, alpha=alpha, straggler_prob=0.5, proportion=0.2, copies=3, code=code
    )
    for run in range(100):
        data = draws.training_set(mnist, 30, seed=0, run=run)
        shared = draws.share(curve, data.labels, 10, seed=0, run=run)
        shares = draws.shares(curve, shared.placement, data.products)
        exact.append(
            data.products.sum() + second_moment.variance_from_products(shares, data.products, 0.5)
        )
        counts = np.zeros((10, 10))
        np.add.at(counts, (shared.owner, data.labels), 1)
        predicted.append(
            expected_variance.gradient_norm2(counts.sum(axis=0), geometry)
            + expected_variance.expected_variance(
                counts, 0.2 * counts, 3, geometry, straggler_prob=0.5, code=code
            )
        )
    assert np.mean(predicted) == pytest.approx(np.mean(exact), rel=0.02)


@pytest.mark.parametrize(("setting", "alpha"), SETTINGS)
def test_the_ranking_is_that_of_accuracy(mnist, geometry, setting, alpha):
    curves = [
        Curve(partition=setting, alpha=alpha, straggler_prob=0.5, proportion=c, copies=d)
        for c, d in PAIRS
    ]
    test = Evaluation(mnist)
    accuracy = [
        example_space.simulate_run(
            mnist, test, curves, n_clients=10, class_size=30, n_rounds=10, seed=0, run=run
        ).correct[:, 1:].mean(axis=1)
        for run in range(30)
    ]  # fmt: skip
    sites = plan.sites_of(
        setting, n_sites=10, n_classes=10, class_size=30, alpha=alpha or None, straggler_prob=0.5
    )
    found = plan.options(
        sites, geometry, copies=(1, 2, 3, 5, 8), proportions=(0.1, 0.2, 0.3, 0.4, 0.5)
    )
    assert [(o.proportion, o.copies) for o in found] == PAIRS
    agreement = spearmanr([o.variance for o in found], -np.mean(accuracy, axis=0)).statistic
    assert agreement >= 0.98


def sites(**changes):
    arguments = dict(n_sites=10, n_classes=10, class_size=30, straggler_prob=0.5, shareable=0.5)
    return plan.sites_of("single-class", **{**arguments, **changes})


def options(who=None, **changes):
    who = who or sites()
    arguments = dict(copies=(0, 1, 3), proportions=(0.5, 1.0))
    return plan.options(who, plan.assumed_geometry(10), **{**arguments, **changes})


def test_not_sharing_is_one_option_and_the_measure_of_the_others():
    found = options()
    assert [(o.proportion, o.copies) for o in found] == [(0, 0), (0.5, 1), (0.5, 3), (1, 1), (1, 3)]
    assert found[0].variance == 1
    assert found[0].cost == found[0].moved == 0
    assert found[0].heterogeneity == pytest.approx(0.9)
    assert all(o.variance < 1 and o.heterogeneity < 0.9 for o in found[1:])


def test_costs_are_records_moved_and_compute():
    option = options(prices=plan.Prices(record=2, compute=0.1, rounds=10))[-1]
    assert option.moved == 3 * 0.5 * 300
    assert option.extra_compute == 1.5
    assert option.cost == pytest.approx(option.moved * (2 + 0.1 * 10))


def test_the_best_options_are_those_that_nothing_beats():
    found = options()
    for option in found:
        beaten = any(
            (o.cost < option.cost and o.variance <= option.variance)
            or (o.cost <= option.cost and o.variance < option.variance)
            for o in found
        )
        assert option.best == (not beaten)


def test_the_recommendation_is_the_cheapest_that_reaches_the_target():
    found = options()
    taken = plan.recommend(found, variance=0.8)
    fit = [o for o in found if o.variance <= 0.8]
    assert taken.option == min(fit, key=lambda o: o.cost)
    assert "variance at most 0.8" in taken.reason
    taken = plan.recommend(found, heterogeneity=0.3, variance=0.9)
    assert taken.option.heterogeneity <= 0.3


def test_a_target_out_of_reach_is_said():
    taken = plan.recommend(options(), variance=0.01)
    assert taken.option is None
    assert "nearest is c = 1" in taken.reason


def test_unequal_sites_are_handled():
    p, c = np.linspace(0.1, 0.9, 10), np.linspace(0, 1, 10)
    found = options(sites(straggler_prob=p, shareable=c))
    assert found[-1].moved == pytest.approx(3 * 30 * c.sum())
    reliable = options(sites(straggler_prob=p, shareable=1.0), code="reliability-split")
    equal = options(sites(straggler_prob=p, shareable=1.0))
    assert reliable[-1].variance < 0.7 * equal[-1].variance


def test_even_sites_have_the_variance_of_even_sites():
    even = plan.sites_of("iid", n_sites=10, n_classes=10, class_size=30, straggler_prob=0.5)
    assert options(even)[0].variance_iid == pytest.approx(1)


def test_a_file_of_sites_is_read(tmp_path):
    path = tmp_path / "sites.csv"
    path.write_text("site,p,c,cat,dog\na,0.1,0.5,10,0\nb,0.4,1,0,20\nc,0.4,0,5,5\n")
    found = plan.read_sites(path)
    assert found.names == ("a", "b", "c")
    np.testing.assert_array_equal(found.counts[0], [[10, 0], [0, 20], [5, 5]])
    np.testing.assert_array_equal(found.shareable, [0.5, 1, 0])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "must have a header"),
        ("site,p,x\na,0.1,ten\n", "line 2: x must be a number, got 'ten'"),
        ("site,p,x\na,1.5,3\nb,.5,3\n", r"straggler_prob must be in \[0, 1\)"),
        ("site,p,x\na,.5,-3\nb,.5,3\n", "none negative"),
    ],
)
def test_a_bad_file_of_sites_is_named(tmp_path, content, said):
    path = tmp_path / "sites.csv"
    path.write_text(content)
    with pytest.raises((DataError, ArgumentError), match=said):
        plan.read_sites(path)


def test_mistakes_are_named():
    with pytest.raises(ArgumentError, match="price of a record"):
        plan.Prices(record=-1)
    with pytest.raises(ArgumentError, match="alpha must be given"):
        plan.sites_of("dirichlet", n_sites=3, n_classes=2, class_size=5)
    with pytest.raises(ArgumentError, match="partition must be"):
        plan.sites_of("even", n_sites=3, n_classes=2, class_size=5)
    with pytest.raises(ArgumentError, match="copies"):
        options(copies=(10,))


def test_sharing_more_takes_fewer_rounds(mnist):
    who = sites(straggler_prob=0.7)
    found = options(who)
    rounds = plan.rounds_to_accuracy(who, [found[0], found[-1]], mnist, 0.5, runs=3, max_rounds=20)
    assert rounds[1] < rounds[0]
    assert plan.rounds_to_accuracy(who, found[:1], mnist, 0.99, runs=1, max_rounds=2) == [math.inf]
