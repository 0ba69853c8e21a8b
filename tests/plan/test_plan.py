"""The planner is right about what it predicts, and says what it does not."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import spearmanr

from fedcommons import coding, datasets, partition, plan, sharing
from fedcommons.errors import ArgumentError, DataError
from fedcommons.placement import Placement
from fedcommons.plan import pilot
from fedcommons.simulate import draws, example_space
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.scoring import Evaluation
from fedcommons.theory import heterogeneity, second_moment

SETTINGS = [("single-class", 0.0), ("dirichlet", 0.1)]
PROBABILITIES = (0.3, 0.5, 0.7)
RANKED = (0.5,)  # more take as long again each
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
    c, d = 0.2, 3
    exact, predicted = np.zeros((2, len(PROBABILITIES)))
    for run in range(100):
        data = draws.training_set(mnist, 30, seed=0, run=run)
        curve = Curve(partition=setting, alpha=alpha, straggler_prob=0.5, proportion=c, copies=d,
                      code=code)  # fmt: skip
        shared = draws.share(curve, data.labels, 10, seed=0, run=run)
        b = draws.shares(curve, shared.placement, data.products)
        counts = partition.label_counts(data.labels, shared.owner, 10)
        for k, p in enumerate(PROBABILITIES):
            exact[k] += data.products.sum()
            exact[k] += second_moment.variance_from_products(b, data.products, p)
            (option,) = plan.options(plan.Sites(counts, p, c), geometry, copies=(d,), code=code)
            predicted[k] += option.second_moment
    np.testing.assert_allclose(predicted, exact, rtol=0.02)


@pytest.mark.parametrize(("setting", "alpha"), SETTINGS)
def test_the_ranking_is_that_of_accuracy(mnist, geometry, setting, alpha):
    curves = [
        Curve(partition=setting, alpha=alpha, straggler_prob=p, proportion=c, copies=d)
        for p in RANKED
        for c, d in PAIRS
    ]
    test = Evaluation(mnist)
    accuracy = np.mean(
        [
            example_space.simulate_run(
                mnist, test, curves, n_clients=10, class_size=30, n_rounds=10, seed=0, run=run
            ).correct[:, 1:].mean(axis=1)
            for run in range(30)
        ],
        axis=0,
    )  # fmt: skip
    for p, reached in zip(RANKED, accuracy.reshape(-1, len(PAIRS)), strict=True):
        who = plan.sites_of(
            setting, n_sites=10, n_classes=10, class_size=30, alpha=alpha or None, straggler_prob=p
        )
        found = plan.options(
            who, geometry, copies=(1, 2, 3, 5, 8), proportions=(0.1, 0.2, 0.3, 0.4, 0.5)
        )
        assert [(o.part, o.copies) for o in found] == PAIRS
        assert spearmanr([o.variance for o in found], -reached).statistic >= 0.98


def sites(**changes):
    arguments = dict(n_sites=10, n_classes=10, class_size=30, straggler_prob=0.5, shareable=0.5)
    return plan.sites_of("single-class", **{**arguments, **changes})


def options(who=None, **changes):
    who = who or sites()
    arguments = dict(copies=(0, 1, 3), proportions=(0.5, 1.0))
    return plan.options(who, plan.assumed_geometry(who.n_classes), **{**arguments, **changes})


def test_not_sharing_is_one_option_and_the_measure_of_the_others():
    found = options()
    assert [(o.part, o.copies) for o in found] == [(0, 0), (0.5, 1), (0.5, 3), (1, 1), (1, 3)]
    assert [o.proportion for o in found] == [0, 0.25, 0.25, 0.5, 0.5]
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
    taken = plan.recommend(found, plan.Targets(variance=0.8))
    fit = [o for o in found if o.variance <= 0.8]
    assert taken.option == min(fit, key=lambda o: o.cost)
    assert "variance at most 0.8" in taken.reason
    taken = plan.recommend(found, plan.Targets(heterogeneity=0.3, variance=0.9))
    assert taken.option.heterogeneity <= 0.3


def test_a_target_out_of_reach_is_said():
    for targets in (plan.Targets(variance=0.01), plan.Targets(heterogeneity=0, variance=0)):
        taken = plan.recommend(options(), targets)
        assert taken.option is None
        assert "nearest is c = 0.5, d = 3" in taken.reason


def priced(costs_and_variances):
    template = options()[0]
    found = [replace(template, cost=c, variance=v) for c, v in costs_and_variances]
    best = plan.not_beaten(found)
    return [replace(option, best=option in best) for option in found]


def test_without_a_target_gain_is_weighed_against_cost():
    found = priced([(0, 1.0), (1, 0.5), (10, 0.4), (20, 0.39)])
    taken = plan.recommend(found)
    assert taken.option == found[1]
    assert taken.reason == (
        "it has 82% of what the most that was compared would gain, which costs 20.0 times as much"
    )


def test_what_costs_nothing_is_taken_for_its_variance():
    found = options(prices=plan.Prices(record=0))
    taken = plan.recommend(found)
    assert taken.option == min(found, key=lambda o: o.variance) != found[0]
    assert taken.reason == "all options cost the same, and none has less variance"
    useless = plan.recommend(priced([(0, 1.0), (1, 1.0), (2, 1.1)]))
    assert useless.option.cost == 0
    assert useless.reason == "sharing more costs more and does not lower the variance"


def test_of_the_fewest_rounds_the_cheapest_is_taken():
    found = options()
    rounds = dict(zip(found, (40, 21, 20, math.inf, 20), strict=True))
    taken = plan.recommend_by_rounds(rounds, 0.7, 50, plan.Targets())
    assert taken.option == found[1]
    never = dict.fromkeys(found, math.inf)
    taken = plan.recommend_by_rounds(never, 0.7, 50, plan.Targets(variance=0.9))
    assert taken.option is None
    assert "no option with variance at most 0.9 reaches accuracy 0.7" in taken.reason


@pytest.mark.parametrize(
    ("counts", "c"),
    [
        (np.eye(3), 0.5),
        ([[1, 1], [1, 1]], 0.75),
        ([[3, 0], [1, 2], [0, 7], [2, 2]], [0.3, 1, 0.9, 0]),
    ],
)
@pytest.mark.parametrize("d", [0, 1])
def test_heterogeneity_is_the_mean_over_roundings_of_the_mask(counts, c, d):
    who = plan.Sites(counts, 0.5, c)
    (found,) = options(who, copies=(d,), proportions=(1.0,))
    offered = who.shareable * who.counts[0]
    down, up = np.floor(offered), offered - np.floor(offered)
    mean = 0.0
    for rounding in itertools.product((0, 1), repeat=offered.size):  # every one
        mask = np.reshape(rounding, offered.shape)
        chance = np.where(mask, up, 1 - up).prod()
        after = heterogeneity.expected_real(who.counts[0], down + mask, d).mean()
        mean += chance * after if chance else 0.0
    assert found.heterogeneity == pytest.approx(mean, rel=1e-12)


def test_heterogeneity_of_many_sites_is_near_the_mean_over_roundings():
    # 200 sites, 10 roundings of them: .02 % was seen over 30 seeds.
    rng = np.random.default_rng(0)
    who = plan.Sites(rng.integers(0, 5, (200, 4)), 0.5, 0.3)
    (found,) = options(who, copies=(2,), proportions=(1.0,))
    exact = heterogeneity.expected_rounded(who.counts[0], 0.3 * who.counts[0], 2).mean()
    assert found.heterogeneity == pytest.approx(exact, rel=0.002)


def test_a_placement_that_is_there_is_one_outcome_of_sharing_it_again():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 40)
    owner = partition.dirichlet(labels, 6, 0.5, rng=rng)
    mask = rng.random(len(labels)) < 0.4
    geometry = plan.assumed_geometry(4)
    p = np.linspace(0.2, 0.8, 6)
    for code in coding.CODES:
        outcomes = []
        for _ in range(200):
            placement = sharing.randomised(owner, mask, 2, n_clients=6, rng=rng)
            who = plan.sites_of_placement(placement, labels, straggler_prob=p)
            outcomes.append(plan.as_placed(placement, labels, who, geometry, code=code))
        (again,) = plan.options(who, geometry, copies=(2,), code=code)
        placed = outcomes[-1]
        assert placed.moved == pytest.approx(again.moved) == 2 * mask.sum()
        assert placed.proportion == pytest.approx(again.proportion)
        assert placed.copies == 2
        for name in ("variance", "second_moment", "heterogeneity", "variance_iid"):
            values = [getattr(outcome, name) for outcome in outcomes]
            error = np.std(values) / np.sqrt(len(values))
            assert np.mean(values) == pytest.approx(getattr(again, name), abs=4 * error)


def test_what_a_placement_does_not_share_may_be_shared_if_one_says_so():
    placement = Placement.from_copies([0, 0, 1], [0], [1], n_clients=2)
    who = plan.sites_of_placement(placement, [0, 1, 1])
    np.testing.assert_array_equal(who.shareable, [[1, 0], [0, 0]])
    who = plan.sites_of_placement(placement, [0, 1, 1], shareable=0.3)
    np.testing.assert_array_equal(who.shareable, np.full((2, 2), 0.3))
    with pytest.raises(ArgumentError, match="labels must have 3 entries, got 2"):
        plan.sites_of_placement(placement, [0, 1])


@pytest.mark.parametrize(
    ("content", "found"),
    [("0\n2\n1\n", [0, 2, 1]), ("dog\ncat\n\ndog\n", [1, 0, 1]), ("\ufeff10\n2\n", [1, 0])],
)
def test_labels_are_read_line_by_line(tmp_path, content, found):
    path = tmp_path / "labels.txt"
    path.write_text(content, encoding="utf-8")
    np.testing.assert_array_equal(plan.read_labels(path), found)


def test_labels_are_read_from_arrays(tmp_path):
    np.save(tmp_path / "labels.npy", np.array([1, 0, 1]))
    np.testing.assert_array_equal(plan.read_labels(tmp_path / "labels.npy"), [1, 0, 1])
    np.save(tmp_path / "bad.npy", np.array([0.5]))
    (tmp_path / "empty.npy").write_bytes(b"")
    for name in ("bad.npy", "empty.npy", "absent.txt"):
        with pytest.raises(DataError, match=name):
            plan.read_labels(tmp_path / name)
    np.save(tmp_path / "far.npy", np.array([100_000, 0]))
    np.testing.assert_array_equal(plan.read_labels(tmp_path / "far.npy"), [1, 0])
    np.save(tmp_path / "some.npy", np.array([3, 3]))
    np.testing.assert_array_equal(plan.read_labels(tmp_path / "some.npy", n_classes=4), [3, 3])
    for limits, said in (
        ({"n_classes": 3}, r"labels must be in \{0, ..., 2\}, got 3"),
        ({"n_examples": 5}, "labels must have 5 entries, got 2"),
        ({}, "must be of at least two classes, got 1"),
    ):
        with pytest.raises(DataError, match=said):
            plan.read_labels(tmp_path / "some.npy", **limits)


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
    uneven = plan.sites_of("iid", n_sites=7, n_classes=10, class_size=30)
    assert set(uneven.counts.ravel()) == {4, 5}
    assert np.ptp(uneven.counts.sum(axis=2)) <= 1
    assert options(uneven)[0].variance_iid == pytest.approx(1)


def test_sites_have_whole_examples():
    for kind, alpha in (("iid", None), ("single-class", None), ("dirichlet", 0.1)):
        who = plan.sites_of(kind, n_sites=7, n_classes=10, class_size=30, alpha=alpha)
        np.testing.assert_array_equal(who.counts, np.rint(who.counts))
        np.testing.assert_array_equal(who.counts.sum(axis=1), 30)


@pytest.mark.parametrize(("kind", "alpha"), [("single-class", None), ("dirichlet", 0.1)])
def test_counts_are_drawn_without_the_examples(kind, alpha):
    most = (2**53 - 1) // 10
    who = plan.sites_of(kind, n_sites=23, n_classes=10, class_size=most, alpha=alpha)
    np.testing.assert_array_equal(who.counts.sum(axis=1), most)
    assert who.counts.min() >= 0
    assert np.isfinite(options(who)[-1].variance)
    with pytest.raises(ArgumentError, match="class_size must be an integer in"):
        plan.sites_of(kind, n_sites=23, n_classes=10, class_size=most + 1, alpha=alpha)


def test_a_file_of_sites_is_read(tmp_path):
    path = tmp_path / "sites.csv"
    path.write_text("site,p,c,cat,dog\na,0.1,0.5,10,0\nb,0.4,1,0,20\nc,0.4,0,5,5\n")
    found = plan.read_sites(path)
    assert found.names == ("a", "b", "c")
    assert found.classes == ("cat", "dog")
    np.testing.assert_array_equal(found.counts[0], [[10, 0], [0, 20], [5, 5]])
    np.testing.assert_array_equal(found.shareable[:, 0], [0.5, 1, 0])


def test_a_file_of_sites_may_come_from_a_spreadsheet(tmp_path):
    path = tmp_path / "sites.csv"
    path.write_text("Site, P, C, cat, dog\na, 0.1, 0.5, 10, 0\n\nb, 0.4, 1, 0, 20\n", "utf-8-sig")
    found = plan.read_sites(path)
    assert found.names == ("a", "b")
    assert found.n_classes == 2
    np.testing.assert_array_equal(found.straggler_prob, [0.1, 0.4])


def test_a_spreadsheets_semicolons_decimal_commas_and_totals_are_read(tmp_path):
    path = tmp_path / "sites.csv"
    path.write_text(
        "Hospital;P;C;cat;dog;Total\na;0,1;0,5;10;0;10\nb;0,4;1;0;20;20\nTotal;;;10;20;30\n"
    )
    found = plan.read_sites(path)
    assert (found.names, found.classes) == (("a", "b"), ("cat", "dog"))
    np.testing.assert_array_equal(found.counts[0], [[10, 0], [0, 20]])
    np.testing.assert_array_equal(found.straggler_prob, [0.1, 0.4])
    assert [words.split(",")[0] for words in found.left_out] == [
        "the line 'Total'",
        "the column 'Total'",
    ]


def test_what_a_file_of_sites_leaves_out_may_be_said(tmp_path):
    path = tmp_path / "sites.csv"
    path.write_text("p,x,y\n0.1,10,0\n0.4,0,20\n")
    np.testing.assert_array_equal(plan.read_sites(path, shareable=0.2).shareable[:, 0], [0.2, 0.2])
    np.testing.assert_array_equal(plan.read_sites(path).shareable[:, 0], [0.5, 0.5])
    with pytest.raises(ArgumentError, match="p must not be given twice"):
        plan.read_sites(path, straggler_prob=0.3)
    with pytest.raises(ArgumentError, match=r"shareable must be in \[0, 1\], got 2"):
        plan.read_sites(path, shareable=2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "must have a header"),
        ("site,p,x,y\na,0.1,ten,1\n", r"line 2 \(a\): x must be a number, got 'ten'"),
        ("site,p,x,y\na,1.5,3,1\nb,.5,3,1\n", r"line 2 \(a\): straggler_prob must be in \[0, 1\)"),
        ("site,p,x,y\na,.5,3,1\nb,.5,-3,1\n", r"line 3 \(b\): x must not be negative, got -3"),
        ("site,x,y\na,2.5,1\n", r"line 2 \(a\): x must be a whole number, got 2.5"),
        ("site,x,y,total\na,2,1,3\nb,2,1,4\n", r"\(b\): total must be the sum .* 3, got 4"),
        ("site,x,y\na,2,1\ntotal,3,1\n", r"\(total\): x must be the sum .* 2, got 3"),
        ("site;p;x;y\na;0;1.000;3\n", "line 2: x must be clear, got '1.000'"),
        ("site;p;x;y\na;0,5;1;3\nb;0.5;1;3\n", "one kind of decimals"),
        ("site,x,y\na,1e19,1\nb,1,1\n", "counts must be at most .* in all, got 1e.19"),
        ("site,x,y\na,1e300,1\nb,1,1\n", "counts must be at most .* in all, got 1e.300"),
        ("site,x\na,2\n", "a column for each class, at least two"),
        ("site,p,x\na,.5,3\nb,.5,3,4\n", "line 3: must have the header's 3 fields, got 4"),
        ("site,p,x\na,.5\n", "line 2: must have the header's 3 fields, got 2"),
        ("site,p,P,x\na,.5,.5,1\n", "must have one of p, got 'p' and 'P'"),
        ("site,p,c\na,.5,.5\n", "a column for each class"),
        ("site,x,y\na,2,1\nb,1,1\na,3,3\n", "must have each site once, got 'a' 2 times"),
    ],
)
def test_a_bad_file_of_sites_is_named(tmp_path, content, said):
    path = tmp_path / "sites.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=said):
        plan.read_sites(path)


def test_mistakes_are_named():
    with pytest.raises(ArgumentError, match="price of a record"):
        plan.Prices(record=-1)
    with pytest.raises(ArgumentError, match="prices must give a finite cost"):
        options(prices=plan.Prices(record=1e308))
    with pytest.raises(ArgumentError, match="rounds must be an integer in"):
        plan.Prices(compute=0.1, rounds=10**400)
    with pytest.raises(ArgumentError, match="alpha must be given"):
        plan.sites_of("dirichlet", n_sites=3, n_classes=2, class_size=5)
    with pytest.raises(ArgumentError, match="partition must be"):
        plan.sites_of("even", n_sites=3, n_classes=2, class_size=5)
    with pytest.raises(ArgumentError, match="alpha goes with a Dirichlet partition"):
        plan.sites_of("iid", n_sites=3, n_classes=2, class_size=5, alpha=1.0)
    with pytest.raises(ArgumentError, match=r"copies must be an integer in \{0, ..., 9\}, got 10"):
        options(copies=(10,))
    with pytest.raises(ArgumentError, match="copies and proportions must have a value"):
        options(copies=())
    for target in (-1, math.nan):
        with pytest.raises(ArgumentError, match="the target of variance must be in"):
            plan.Targets(variance=target)


def test_sharing_more_takes_fewer_rounds(mnist):
    who = sites(straggler_prob=0.7)
    found = options(who)
    rounds = plan.rounds_to_accuracy(who, [found[0], found[-1]], mnist, 0.5, runs=3, max_rounds=20)
    assert rounds[1] < rounds[0]
    assert plan.rounds_to_accuracy(who, found[:1], mnist, 0.99, runs=1, max_rounds=2) == [math.inf]


def test_rounds_are_counted_from_the_first(mnist, monkeypatch):
    """The first round after which the mean over the runs is reached."""
    reached = {0: [0.1, 0.5, 0.7, 0.9], 1: [0.1, 0.6, 0.6, 0.9]}
    monkeypatch.setattr(pilot, "_accuracies", lambda *arguments: reached[arguments[-1]])
    for accuracy, rounds in ((0.05, 1), (0.55, 2), (0.56, 3), (0.9, 4), (0.91, math.inf)):
        found = plan.rounds_to_accuracy(sites(), options()[:1], mnist, accuracy, runs=2)
        assert found == [rounds]


def test_a_pilot_shares_as_much_as_its_option(mnist, monkeypatch):
    shared = []

    def recorded(owner, shareable, copies, **more):
        shared.append((shareable.mean(), copies))
        return sharing.randomised(owner, shareable, copies, **more)

    monkeypatch.setattr(pilot, "sharing", SimpleNamespace(randomised=recorded))
    found = options(proportions=(0.4, 1.0), copies=(1, 3))
    plan.rounds_to_accuracy(sites(), found, mnist, 0.99, runs=1, max_rounds=1)
    assert shared == [(0.2, 1), (0.2, 3), (0.5, 1), (0.5, 3)]
