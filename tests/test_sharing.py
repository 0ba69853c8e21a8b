from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedcommons import partition, privacy, sharing
from fedcommons.placement import Placement
from tests.reference import loops
from tests.scenarios import SCHEMES, federation, federations


def run(name: str, case: dict, rng_seed: int = 0) -> tuple[Placement, tuple[np.ndarray, ...]]:
    case = dict(case)
    d = case.pop("copies")
    labels, owner, shareable = federation(**case)
    placement = SCHEMES[name](
        labels, owner, shareable, d, case["n_clients"], np.random.default_rng(rng_seed)
    )
    return placement, (labels, owner, shareable)


@pytest.mark.parametrize("name", SCHEMES)
class TestContract:
    @given(case=federations())
    def test_holdings_are_lawful(self, name, case):
        placement, (_, owner, shareable) = run(name, case)
        assert np.array_equal(placement.owner, owner)
        for j, clients in enumerate(loops.holders(placement)):
            assert owner[j] in clients  # an owner always holds its own
            assert len(clients) == placement.holder_counts[j]  # nobody holds it twice
            assert shareable[j] or clients == {owner[j]}  # private examples never move
            assert clients <= set(range(case["n_clients"]))

    @given(case=federations())
    def test_budget_holds_label_by_label(self, name, case):
        placement, (labels, _, shareable) = run(name, case)
        moved = np.bincount(labels, weights=placement.copies, minlength=case["n_classes"])
        budget = case["copies"] * np.bincount(labels[shareable], minlength=case["n_classes"])
        if name in ("none", "optimal_early"):
            assert (moved <= budget).all()
        else:
            assert np.array_equal(moved, budget)

    @given(case=federations())
    def test_same_seed_same_result(self, name, case):
        assert run(name, case, 3)[0] == run(name, case, 3)[0]

    def test_other_seed_other_result(self, name):
        case = dict(n_clients=7, n_examples=60, n_classes=3, c=0.5, copies=2, seed=1)
        same = run(name, case, 3)[0] == run(name, case, 4)[0]
        assert same == (name == "none")

    def test_permuting_the_clients_permutes_the_law_of_the_outcome(self, name):
        # Few outcomes, n = 3000 draws each way: two-sample chi-squared at the 1e-4 level.
        n, rng = 3000, np.random.default_rng(5)
        labels, owner = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 2])
        shareable, new_name = np.array([True, True, False, True]), np.array([2, 0, 1])
        counts = [Counter(), Counter()]
        for _ in range(n):
            before = SCHEMES[name](labels, owner, shareable, 1, 3, rng).relabel(new_name)
            after = SCHEMES[name](labels, new_name[owner], shareable, 1, 3, rng)
            for counter, placement in zip(counts, (before, after), strict=True):
                counter[tuple(map(tuple, map(sorted, loops.holders(placement))))] += 1
        outcomes = sorted(counts[0].keys() | counts[1].keys())
        if len(outcomes) == 1:
            return
        table = [[counter[outcome] for outcome in outcomes] for counter in counts]
        assert stats.chi2_contingency(table).pvalue > 1e-4


def test_randomised_reaches_every_outcome_equally_often():
    # 3 x 3 outcomes, n = 9000: chi-squared at the 1e-4 level.
    owner, shareable = np.array([1, 3, 0]), np.array([True, True, False])
    rng = np.random.default_rng(2)
    seen = Counter(
        tuple(map(tuple, map(sorted, loops.holders(p))))
        for p in (
            sharing.randomised(owner, shareable, 2, n_clients=4, rng=rng) for _ in range(9000)
        )
    )
    every = [
        tuple(map(tuple, map(sorted, loops.holders(p))))
        for p in loops.sharing_outcomes(owner, shareable, 2, 4)
    ]
    assert set(seen) == set(every)
    assert stats.chisquare([seen[outcome] for outcome in every]).pvalue > 1e-4


def test_received_counts_are_binomial_under_randomised_sharing_only():
    # S_0 ~ Binomial(20, 2/4); chi-squared against that law. The per-client draw is far from it.
    owner, n = np.repeat([1, 2], 10), 4000
    shareable = np.ones(20, bool)
    cells = [(0, 6), *((k, k) for k in range(7, 14)), (14, 20)]
    law = stats.binom(20, 0.5)
    expected = [n * (law.cdf(high) - law.cdf(low - 1)) for low, high in cells]
    pvalues = {}
    for scheme in (sharing.randomised, sharing.per_client):
        rng = np.random.default_rng(8)
        S = np.array(
            [scheme(owner, shareable, 2, n_clients=5, rng=rng).received()[0] for _ in range(n)]
        )
        found = [((low <= S) & (high >= S)).sum() for low, high in cells]
        pvalues[scheme.__name__] = stats.chisquare(found, expected).pvalue
    assert pvalues["randomised"] > 1e-4
    assert pvalues["per_client"] < 1e-9


def test_per_client_sends_all_of_a_client_to_the_same_others():
    owner = np.array([0, 0, 0, 1, 1])
    placement = sharing.per_client(
        owner, np.ones(5, bool), 2, n_clients=6, rng=np.random.default_rng(0)
    )
    holders = [
        clients - {int(o)} for clients, o in zip(loops.holders(placement), owner, strict=True)
    ]
    assert holders[0] == holders[1] == holders[2]
    assert holders[3] == holders[4]


class TestOptimal:
    def test_counts_equal_brute_force_on_all_tiny_cases(self):
        tried = 0
        for n_clients in (2, 3):
            for counts in product(range(4), repeat=n_clients):
                if sum(counts) == 0:
                    continue
                for offered in product(*(range(n + 1) for n in counts)):
                    start, n = np.array(counts), np.array(offered)
                    caps = n.sum() - n
                    for spend in range(caps.sum() + 1):
                        plan = sharing.optimal_counts(
                            start[:, None], n[:, None], [spend], rng=np.random.default_rng(tried)
                        )
                        S = plan.received[:, 0]
                        assert S.sum() == spend
                        assert ((S >= 0) & (caps >= S)).all()
                        best = loops.best_received(start, caps, spend)
                        got = partition.heterogeneity((start + S)[:, None])[0]
                        assert got == pytest.approx(best, abs=1e-12)
                        tried += 1
        assert tried == 7298

    @given(case=federations())
    def test_stopping_early_is_best_over_all_smaller_budgets(self, case):
        d = case.pop("copies")
        n_clients, n_classes = case["n_clients"], case["n_classes"]
        labels, owner, shareable = federation(**case)
        counts = partition.label_counts(labels, owner, n_clients, n_classes=n_classes)
        offered = partition.label_counts(
            labels[shareable], owner[shareable], n_clients, n_classes=n_classes
        )
        budget = d * offered.sum(axis=0)
        rng = np.random.default_rng(0)
        early = sharing.optimal_counts(counts, offered, budget, rng=rng, stop_early=True)
        for label in range(n_classes):
            if counts[:, label].sum() == 0:
                continue
            one = np.s_[:, label : label + 1]
            path = [
                partition.heterogeneity(
                    counts[one]
                    + sharing.optimal_counts(counts[one], offered[one], [b], rng=rng).received
                )[0]
                for b in range(budget[label] + 1)
            ]
            got = partition.heterogeneity((counts + early.received)[one])[0]
            assert got == pytest.approx(min(path), abs=1e-12)
            used = early.received[one].sum()
            assert all(value > min(path) + 1e-13 for value in path[used + 1 :])

    @given(case=federations())
    def test_never_worse_than_randomised_at_the_same_budget(self, case):
        best, (labels, _, _) = run("optimal", case)
        other, _ = run("randomised", case)
        n_classes = case["n_classes"]
        ours, theirs = (
            partition.heterogeneity(p.label_counts(labels, n_classes=n_classes))
            for p in (best, other)
        )
        assert (ours <= theirs + 1e-12)[~np.isnan(ours)].all()

    def test_even_counts_are_left_alone_if_it_may_stop_early(self):
        counts = np.array([[2], [2], [2]])
        plan = sharing.optimal_counts(
            counts, counts, [2], rng=np.random.default_rng(0), stop_early=True
        )
        assert plan.stopped_early
        assert plan.unused.tolist() == [2]
        full = sharing.optimal_counts(counts, counts, [2], rng=np.random.default_rng(0))
        assert not full.stopped_early
        assert full.received.sum() == 2

    @pytest.mark.parametrize("c", [0.1, 0.2, 0.5, 1.0])
    @pytest.mark.parametrize("kind", ["single_class", "dirichlet"])
    def test_copies_stay_even_in_the_papers_settings(self, c, kind):
        labels, rng = np.repeat(np.arange(10), 30), np.random.default_rng(4)
        args = (0.1,) if kind == "dirichlet" else ()
        owner = getattr(partition, kind)(labels, 10, *args, rng=rng)
        shareable = privacy.proportion(labels, owner, c, n_clients=10, rng=rng)
        placement = sharing.optimal(labels, owner, shareable, copies=3, n_clients=10, rng=rng)
        copies = placement.copies
        for label in range(10):
            members = shareable & (labels == label)
            assert np.ptp(copies[members]) <= (1 if kind == "single_class" else 2)

    @given(case=federations())
    def test_no_single_exchange_makes_the_copies_more_even(self, case):
        placement, (labels, owner, shareable) = run("optimal", case)
        H, copies = loops.dense_holdings(placement), placement.copies
        for high, low in product(np.flatnonzero(shareable), repeat=2):
            if labels[high] == labels[low] and copies[high] >= copies[low] + 2:
                movable = (H[:, high] == 1) & (H[:, low] == 0)
                movable[owner[high]] = False
                assert not movable.any()

    def test_ties_are_broken_at_random(self):
        owner, rng = np.array([0, 0, 0, 1]), np.random.default_rng(0)
        seen = {
            tuple(
                sharing.optimal(
                    np.zeros(4, int), owner, np.ones(4, bool), budget=[1], n_clients=3, rng=rng
                ).copies
            )
            for _ in range(60)
        }
        assert len(seen) >= 3  # any of client 0's examples may go to client 2

    def test_classes_that_nobody_has_may_have_a_budget_of_zero(self):
        placement = sharing.optimal(
            [0, 0], [0, 0], [True, True], budget=[1, 0, 0], n_classes=3, n_clients=2,
            rng=np.random.default_rng(0),
        )  # fmt: skip
        assert placement.n_copies == 1

    def test_stopping_early_is_logged(self, caplog):
        caplog.set_level("INFO")
        placement = sharing.optimal(
            np.zeros(3, int), [0, 1, 2], np.ones(3, bool), budget=[2], n_clients=3,
            rng=np.random.default_rng(0), stop_early=True,
        )  # fmt: skip
        assert placement.n_copies == 0
        assert "unused per label: [2]" in caplog.text

    def test_a_budget_of_the_users_own(self):
        labels, owner = np.array([0, 0, 0, 1]), np.array([0, 0, 0, 1])
        placement = sharing.optimal(
            labels, owner, np.ones(4, bool), budget=[2, 0], n_clients=3,
            rng=np.random.default_rng(0),
        )  # fmt: skip
        assert sorted(placement.received().tolist()) == [0, 1, 1]
        assert placement.copies[3] == 0


@given(st.integers(1, 6), st.integers(0, 2**20))
def test_copies_to_everybody_is_the_same_for_every_scheme(n_clients, seed):
    labels, owner, _ = federation(n_clients=n_clients, n_examples=12, n_classes=2, c=1.0, seed=seed)
    rng = np.random.default_rng(seed)
    args = (labels, owner, np.ones(12, bool), n_clients - 1, n_clients, rng)
    placements = [SCHEMES[name](*args) for name in ("randomised", "per_client", "optimal")]
    assert placements[0] == placements[1] == placements[2]
    assert (placements[0].holder_counts == n_clients).all()
