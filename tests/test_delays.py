from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from fedcommons import delays
from fedcommons.delays import Absences, Law, Recorded, Units, coded_padded_fl, where_away
from fedcommons.errors import ArgumentError
from tests.reference import clock as plain

N, JOBS = 4, 3000
RATE = np.array([1.0, 2.0, 5.0, 0.5])
LEAST_P = 0.001  # of the Kolmogorov-Smirnov tests below, all with fixed seeds


def law(service: str = "exponential", tail: float = 1.5, **parts) -> Law:
    zero = np.zeros(N)
    units = Units(N, lambda block: np.random.default_rng([7, block]))
    of = {"spread": zero, "stall": zero, "link": zero, "failure": zero}
    of |= {name: zero + value for name, value in parts.items()}
    return Law(RATE, **of, units=units, service=service, tail=tail)


def jobs(of: Law, client: int = 1, work: float = 3.0) -> np.ndarray:
    return of.seconds(np.full(JOBS, client), np.arange(JOBS), np.full(JOBS, work))


def p_of(sample: np.ndarray, of) -> float:
    return float(stats.kstest(sample, of.cdf).pvalue)


def test_services_have_the_laws_that_they_state():
    r = 3.0 / RATE[1]
    exponential = jobs(law(spread=0.5))
    assert p_of(exponential, stats.expon(loc=r, scale=0.5 * r)) > LEAST_P
    lognormal = jobs(law("lognormal", spread=0.8))
    assert p_of(lognormal, stats.lognorm(s=0.8, scale=r * np.exp(-0.32))) > LEAST_P
    # r (1 + X / 2) with X = (1/3) * Pareto(3/2), which begins at 1/3 and has mean 1.
    pareto = (jobs(law("pareto", spread=0.5)) / r - 1) / 0.5
    assert p_of(pareto, stats.pareto(1.5, scale=1 / 3)) > LEAST_P
    for of in ({"spread": 0.5}, {"service": "lognormal", "spread": 0.8}):
        took = jobs(law(**of))  # n = 3000: 4.5 standard errors
        assert took.mean() == pytest.approx(
            law(**of).mean(np.full(N, 3.0))[1], abs=4.5 * took.std() / np.sqrt(JOBS)
        )


def test_stalls_do_not_depend_on_the_work():
    stall = jobs(law(stall=5.0, tail=2.0), work=3.0) - 3.0 / RATE[1]
    assert p_of(stall, stats.pareto(2.0, scale=2.5)) > LEAST_P
    assert np.allclose(stall, jobs(law(stall=5.0, tail=2.0), work=0.0))
    assert law(stall=5.0).mean(np.zeros(N)) == pytest.approx([5.0] * N)


def test_each_way_is_tried_until_it_succeeds():
    both = jobs(law(link=0.2, failure=0.3), work=0.0) / 0.1
    n = np.round(both)
    assert np.allclose(both, n)  # a whole number of attempts, of half the link's time each
    found = np.bincount(n.astype(int), minlength=8)[2:8]
    expected = JOBS * stats.nbinom(2, 0.7).pmf(np.arange(6))  # failures before two successes
    assert stats.chisquare(np.append(found, JOBS - found.sum()),
                           np.append(expected, JOBS - expected.sum())).pvalue > LEAST_P  # fmt: skip
    assert law(link=0.2, failure=0.3).mean(np.zeros(N))[0] == pytest.approx(0.2 / 0.7)


def test_a_jobs_numbers_depend_on_its_client_and_its_count_alone():
    def units() -> Units:
        return Units(N, lambda block: np.random.default_rng([3, block]))

    client, job = np.repeat(np.arange(N), 2000), np.tile(np.arange(2000), N)
    together = units().of(client, job)
    order, one_by_one = np.random.default_rng(0).permutation(len(job)), units()
    for k in order[:300]:
        assert np.array_equal(one_by_one.of(client[k : k + 1], job[k : k + 1])[0], together[k])
    for k in range(delays.UNITS):
        assert p_of(together[:, k], stats.uniform()) > LEAST_P
    assert abs(np.corrcoef(together.T)[np.triu_indices(4, 1)]).max() < 4.5 / np.sqrt(len(job))


def away_and_back(of: Absences, client: int) -> list[tuple[float, float]]:
    part = slice(of._first[client], of._first[client + 1])
    return list(zip(of._away[part].tolist(), of._again[part].tolist(), strict=True))


class TestAbsences:
    def test_they_last_and_follow_each_other_as_stated(self):
        # 400 clients, horizon 5000 s: about 60 absences of each.
        share, length = 0.3, 25.0
        rng = np.random.default_rng(0)
        gone = Absences(share, length, 400, horizon=5000, rng=rng)
        lengths, between, there = [], [], 0
        for i in range(400):
            pairs = away_and_back(gone, i)
            lengths += [back - away for away, back in pairs]
            between += [b[0] - a[1] for a, b in pairwise(pairs)]
            there += bool(pairs) and pairs[0][0] > 0
        assert p_of(np.array(lengths[:4000]), stats.expon(scale=length)) > LEAST_P
        assert p_of(np.array(between[:4000]), stats.expon(scale=length * 0.7 / 0.3)) > LEAST_P
        # The beginning is in the long run already: 4.5 standard errors of 400 clients.
        assert abs(there / 400 - 0.7) < 4.5 * np.sqrt(0.21 / 400)
        shares = [where_away(gone, 400, t).mean() for t in np.arange(0, 5000, 250)]
        assert abs(np.mean(shares) - 0.3) < 4.5 * np.sqrt(0.21 / 400 / 20)

    def test_work_waits_while_its_client_is_away(self):
        rng = np.random.default_rng(5)
        gone = Absences([0.5, 0.0, 0.8], [2.0, 1.0, 0.3], 3, horizon=50, rng=rng)
        for _ in range(500):
            client, when, seconds = rng.integers(3), rng.uniform(0, 70), rng.exponential(4)
            pairs = away_and_back(gone, client)
            one = np.array([client])
            back = gone.back(one, when)
            inside = [b for a, b in pairs if a <= when < b]
            assert back[0] == (inside[0] if inside else when)
            done = gone.done(one, back, np.array([seconds]))[0]
            assert done == pytest.approx(plain.job_ends(back[0], seconds, pairs))

    def test_a_longer_horizon_leaves_what_was(self):
        short, long = (
            Absences(0.4, 3.0, 6, horizon=h, rng=np.random.default_rng(1)) for h in (20, 80)
        )
        for t in np.linspace(0, 20, 60):
            assert np.array_equal(where_away(short, 6, t), where_away(long, 6, t))

    def test_nobody_away(self):
        gone = Absences(0.0, 1.0, 3, horizon=9, rng=np.random.default_rng(0))
        assert not where_away(gone, 3, 4.0).any()
        assert not where_away(None, 3, 4.0).any()
        assert gone.done(np.arange(3), np.ones(3), np.ones(3)).tolist() == [2, 2, 2]

    def test_bad_arguments_are_named(self):
        rng = np.random.default_rng(0)
        for share, length, words in ((1.0, 1.0, "share must be in"), (0.5, 0.0, "mean_seconds")):
            with pytest.raises(ArgumentError, match=words):
                Absences(share, length, 2, horizon=1, rng=rng)


def test_the_published_table():
    rates = coded_padded_fl(25)
    assert np.unique(rates, return_counts=True)[1].tolist() == [5, 5, 5, 10]
    assert rates.tolist() == sorted(rates.tolist(), reverse=True)
    assert coded_padded_fl(5).tolist() == [25e6, 25e6, 5e6, 2.5e6, 1.25e6]
    assert delays.CODED_PADDED_FL["link"] / 0.9 == pytest.approx(0.26)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"failure": 1.0}, "failure must be in"),
        ({"spread": -1.0}, "spread must be >= 0"),
        ({"link": np.inf}, "link must be >= 0 and finite"),
        ({"service": "gamma"}, "service must be one of"),
        ({"tail": 1.0}, "tail must be > 1"),
    ],
)
def test_bad_laws_are_named(parts, words):
    with pytest.raises(ArgumentError, match=words):
        law(**parts)


def test_a_rate_of_zero_is_refused():
    zero = np.zeros(2)
    with pytest.raises(ArgumentError, match=r"rate must be one number > 0 for each client, got 0"):
        Law(np.array([1.0, 0.0]), zero, zero, zero, zero, Units(2, np.random.default_rng))


def test_a_recording_needs_a_duration_of_each_client():
    for took in ((np.ones(1), np.zeros(0)), (np.ones(1), np.array([-1.0]))):
        with pytest.raises(ArgumentError, match="for client 1"):
            Recorded(took, np.zeros(2, int))
    assert Recorded((np.array([1.0, 3.0]),), np.zeros(1, int)).mean(np.ones(1)).tolist() == [2]
