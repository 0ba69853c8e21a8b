"""What happens when in one curve of one run: its ticks, which depend on no model.

A schedule follows from durations, absences and the policy alone, so that all ticks of a training
are known before it begins. Without a clock they are rounds, by the curve's straggler model. Curves
that are compared share durations by client and job and absences by time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcommons import deadlines, policies, schedule, work
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.delays import Delays
from fedcommons.errors import StudyError
from fedcommons.policies import Policy
from fedcommons.reliability import Reliability
from fedcommons.schedule import Clock, Ticks
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.timing import Timing
from fedcommons.streams import stream
from fedcommons.work import Work

LOOKS_APART = 1.01  # the test set is looked at when so many times as much time has passed
CAP = 0.95  # of an estimated p, as in `Reliability`


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """The ticks of a curve run, and what the server assumes.

    Attributes:
        ticks: T of them.
        probs: p_i of every tick, (T, N), or the same for all, (N,).
        chunks: of each client, the chunks of the places among what it holds; None if it does not
            work in chunks.
        chosen: (T, N) the chunk that each client works on if it is asked; None likewise.
        sizes: (N,) how many of what it holds each client works on.
        seconds: of the training; None without a clock.
    """

    ticks: Ticks
    probs: FloatArray
    sizes: IntArray
    chunks: tuple[tuple[IntArray, ...], ...] | None = None
    chosen: IntArray | None = None
    seconds: float | None = None

    def looks(self) -> IntArray:
        """After how many ticks the test set is looked at: (n,), ascending from 0.

        After every one without a clock. With one, when at least 1 % more time has passed than at
        the last look: a time is known to 1 %, however short the ticks are.
        """
        if self.seconds is None:
            return np.arange(len(self.ticks) + 1)
        found, last = [0], 0.0
        for k, end in enumerate(self.ticks.ends.tolist(), start=1):
            if end >= last * LOOKS_APART:
                found.append(k)
                last = end
        return np.array(found)

    def times(self, n_points: int) -> FloatArray:
        """The times at which results are recorded: (n_points + 1,)."""
        assert self.seconds is not None
        return np.linspace(0, self.seconds, n_points + 1)

    def ticks_by(self, times: FloatArray) -> IntArray:
        """How many ticks have ended by each time: (n,)."""
        return np.searchsorted(self.ticks.ends, times, side="right")


def of_rounds(answered: BoolArray, probs: FloatArray, held: IntArray) -> Timeline:
    """Rounds in which who does not answer in time never does."""
    return Timeline(Ticks.of_rounds(answered), probs, held)


def of_clock(
    curve: Curve,
    timing: Timing,
    held: IntArray,
    classes: IntArray,
    per_example: float,
    *,
    seed: int,
    run: int,
    sites: tuple[str, ...] = (),
) -> Timeline:
    """The ticks of a curve under a clock.

    Args:
        held: (N,) how many examples each client computes gradients of, copies too.
        classes: (N,) of which most of a client's own examples are.
        per_example: multiply-adds.
    """
    N, doing = len(held), work.parse(curve.work)
    law = timing.law(N, per_example, seed=seed, run=run, sites=sites)
    policy = policy_of(curve, law)
    fitting = None
    if doing.follows_speed:
        fitting = work.fitting(law, time_to_fit(curve, law), per_example, N)
    sizes = doing.sizes(held, fitting)
    places = chunks_of(doing, held, sizes, seed=seed, run=run)
    examples = held / np.array([len(one) for one in places]) if places else sizes
    asks = held > 0  # who has nothing to work on is not asked
    job = np.maximum(examples, 1) * per_example * curve.local_steps
    check_can_be_on_time(law, policy, job, asks, sites)

    def clock(law: Delays, number: int, purpose: str) -> Ticks:
        absences = timing.absences(N, classes, seed=seed, run=number, sites=sites)
        made = Clock(law, policy, job, absences=absences, weight=held.astype(np.float64))
        if curve.warm and purpose == "training":
            made.everybody(np.maximum(held, 1) * per_example)
        return schedule.run(made, lambda _t: asks, seconds=timing.seconds)

    ticks = clock(law, run, "training")
    if curve.assumed_prob is not None:
        probs = np.full(N, curve.assumed_prob)
    elif curve.prob_from_law:
        other = stream(seed, "law", run).integers(2**31).item()
        again = timing.law(N, per_example, seed=other, run=run, sites=sites)
        probs = missing_share(clock(again, other, "law"))
    else:
        probs = estimated_probs(ticks)
    chosen = None
    if places is not None:
        numbers = np.array([len(one) for one in places])
        chosen = _chosen(doing, ticks, numbers, seed=seed, run=run)
    return Timeline(ticks, probs, sizes, places, chosen, timing.seconds)


def policy_of(curve: Curve, law: Delays) -> Policy:
    """Whom the server waits for; where the work fits the deadline, that is a number already."""
    deadline = None
    if curve.policy == "deadline":
        fits = work.parse(curve.work).follows_speed
        deadline = time_to_fit(curve, law) if fits else curve.deadline
    return policies.parse(curve.policy, deadline, curve.late)


def time_to_fit(curve: Curve, law: Delays) -> float:
    """The seconds that work is cut to fit."""
    if curve.deadline is not None:
        return curve.deadline
    return deadlines.for_fitting_work(law.links())


def check_can_be_on_time(
    law: Delays, policy: Policy, job: FloatArray, asks: BoolArray, sites: Sequence[str]
) -> None:
    """Refuse a deadline that is shorter than some link, or within which a client can never answer.

    Where late answers are remembered they count all the same.
    """
    if policy.deadline is None:
        return
    least = law.least(job)

    def name(i: int) -> str:
        return sites[i] if sites else f"client {i}"

    links = law.least(np.zeros(len(job)))
    if (too_far := asks & (links >= policy.deadline)).any():
        i = int(np.argmax(too_far))
        raise StudyError(
            f"deadline must be longer than the link of {name(i)} takes, at least {links[i]:.3g} s, "
            f"got {policy.deadline:g}"
        )
    if policy.late == "discard" and (never := asks & (least >= policy.deadline)).any():
        i = int(np.argmax(never))
        raise StudyError(
            f"deadline must leave every client a chance: {name(i)} needs at least {least[i]:.3g} s "
            f"for what it is asked, got {policy.deadline:g}; a longer deadline, less work or "
            'late = "remember" would help'
        )


def estimated_probs(ticks: Ticks) -> FloatArray:
    """p_i before every tick, from the ticks before it in which i was asked: (T, N)."""
    T, N = ticks.asked.shape
    found, now = np.empty((T, N)), Reliability.start(N)
    for t in range(T):
        found[t] = now.straggler_prob
        now = now.observe(ticks.on_time[t], ticks.asked[t])
    return found


def missing_share(ticks: Ticks) -> FloatArray:
    """How often each client was late when it was asked: (N,)."""
    asked, came = ticks.asked.sum(axis=0), ticks.on_time.sum(axis=0)
    return np.asarray(np.minimum(CAP, 1 - came / np.maximum(asked, 1)) * (asked > 0))


def chunks_of(
    doing: Work, held: IntArray, sizes: IntArray, *, seed: int, run: int
) -> tuple[tuple[IntArray, ...], ...] | None:
    """The chunks of each client's places among what it holds, in a random order."""
    if not doing.in_chunks:
        return None
    found = []
    for i, n in enumerate(held.tolist()):
        order = stream(seed, "chunks", run, i).permutation(n)
        found.append(tuple(work.chunks(order, max(1, int(sizes[i])))))
    return tuple(found)


def _chosen(doing: Work, ticks: Ticks, numbers: IntArray, *, seed: int, run: int) -> IntArray:
    """Which of its chunks a client works on in its k-th job: in turn, or at random: (T, N)."""
    jobs = np.maximum(ticks.jobs, 0)
    if doing.kind == "chunk":
        return jobs % numbers
    most = int(jobs.max(initial=0)) + 1
    units = np.stack(
        [stream(seed, "chunk of a job", run, i).random(most) for i in range(len(numbers))], axis=1
    )
    return np.asarray((units[jobs, np.arange(len(numbers))] * numbers).astype(np.int64))
