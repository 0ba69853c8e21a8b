"""What happens when in one curve of one run: its ticks, which depend on no model.

A schedule follows from durations, absences and the policy alone, so that all ticks of a training
are known before it begins. Without a clock they are rounds, by the curve's straggler model. Curves
that are compared share durations by client and job and absences by time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedcommons import (
    asking,
    corrections,
    deadlines,
    policies,
    reliability,
    schedule,
    work,
)
from fedcommons.asking import Ask
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.corrections import Division, Refresh
from fedcommons.delays import Absences, Delays, Recorded
from fedcommons.errors import StudyError
from fedcommons.placement import Placement
from fedcommons.policies import Policy
from fedcommons.schedule import Clock, Ticks
from fedcommons.simulate import asked, models
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.timing import Timing
from fedcommons.streams import stream
from fedcommons.work import Work

MOST_NAMED = 5  # clients in a message
LOOKS_APART = 1.01  # the test set is looked at when so many times as much time has passed
CAP = 0.95  # of an estimated p, as in `Reliability`


@dataclass(frozen=True, eq=False)  # without slots: jobs are counted once
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
        refreshes: of every tick, what holders compute of absent owners' examples; None if nobody
            corrects.
    """

    ticks: Ticks
    probs: FloatArray
    sizes: IntArray
    chunks: tuple[tuple[IntArray, ...], ...] | None = None
    chosen: IntArray | None = None
    seconds: float | None = None
    refreshes: list[list[Refresh]] | None = None

    @cached_property
    def jobs(self) -> IntArray:
        """The number of each client's job in each tick: (T, N)."""
        return self.ticks.jobs

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

    def last_looks(self, n_points: int, looks: IntArray) -> IntArray:
        """Which look, of all, is the last one up to each of the recorded times: (n_points + 1,)."""
        return np.searchsorted(looks, self.ticks_by(self.times(n_points)), side="right") - 1


def of_rounds(
    answered: BoolArray,
    probs: FloatArray,
    held: IntArray,
    *,
    ask: Ask | None = None,
    seed: int,
    run: int,
) -> Timeline:
    """Rounds in which who does not answer in time never does.

    Args:
        answered: (T, N) who answers if asked.
        ask: whom they ask; everybody by default. By norms, that is filled in as they come.
    """
    if ask is None:
        return Timeline(Ticks.of_rounds(answered), probs, held)
    asks = np.zeros_like(answered)
    if ask.by != "norms":
        everybody = np.ones(len(held), np.bool_)
        probs = asking.missing_prob(ask.probs(everybody), probs)
        for t in range(len(asks)):
            asks[t] = asked.drawn(ask, everybody, t, seed=seed, run=run)
    return Timeline(Ticks.of_rounds(answered, asks), probs, held)


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
    placement: Placement | None = None,
) -> Timeline:
    """The ticks of a curve under a clock.

    Args:
        placement: who holds what, for a curve in which holders correct.
        held: (N,) how many examples each client computes gradients of, copies too.
        classes: (N,) of which most of a client's own examples are.
        per_example: multiply-adds.
    """
    N, doing = len(held), work.parse(curve.work)
    law = timing.law(N, per_example, seed=seed, run=run, sites=sites)
    policy = policy_of(curve, law)
    sizes = sizes_of(curve, law, held, per_example)

    def absences_of(number: int) -> Absences | None:
        if not curve.away:
            return None
        return timing.absences(N, classes, seed=seed, run=number, sites=sites)

    division = None
    if curve.corrected and placement is not None:
        division = division_of(curve, law, placement, absences_of(run), per_example)
        sizes = -(-held // division.n_chunks)
    places = chunks_of(doing, held, sizes, seed=seed, run=run)
    examples = held / np.array([len(one) for one in places]) if places else sizes
    if division is not None:
        examples = examples + cost_of_received(curve) * division.received
    can, ask = held > 0, curve.ask_some  # who has nothing to work on is not asked
    job = np.maximum(examples, 1) * per_example * curve.local_steps

    def clock(law: Delays, number: int, purpose: str) -> Ticks:
        weight = held.astype(np.float64)
        made = Clock(law, policy, job, absences=absences_of(number), weight=weight)
        if curve.warm and purpose == "training":
            made.everybody(np.maximum(held, 1) * per_example)

        def wanted(t: int) -> BoolArray:
            return can if ask is None else asked.drawn(ask, can, t, seed=seed, run=number)

        return schedule.run(made, wanted, seconds=timing.seconds)

    ticks = clock(law, run, "training")
    if curve.assumed_prob is not None:
        probs = np.full(N, curve.assumed_prob)
    elif curve.prob_from_law:
        other = stream(seed, "law", run).integers(2**31).item()
        again = timing.law(N, per_example, seed=other, run=run, sites=sites)
        probs = missing_share(clock(again, other, "law"))
    else:
        probs = reliability.history(ticks.on_time, ticks.asked)
    if ask is not None:  # whoever of those is free: the draw does not look at who owes an answer
        probs = asking.missing_prob(ask.probs(can), probs)
    chosen = None
    if places is not None:
        numbers = np.array([len(one) for one in places])
        chosen = _chosen(doing, ticks, numbers, seed=seed, run=run)
    refreshes = None
    if division is not None and placement is not None:
        refreshes = corrections.refreshes(ticks, placement, division.received)
    return Timeline(ticks, probs, sizes, places, chosen, timing.seconds, refreshes)


def division_of(
    curve: Curve, law: Delays, placement: Placement, absences: Absences | None, per_example: float
) -> Division:
    """How clients divide their time between their chunks and absent owners' examples."""
    N = placement.n_clients
    away_share = np.zeros(N) if absences is None else absences.share
    fitting = work.fitting(law, time_to_fit(curve, law), per_example, N)
    return corrections.divided(placement, away_share, fitting, cost=cost_of_received(curve))


def kept_vectors(
    curve: Curve, law: Delays, placement: Placement, absences: Absences | None, per_example: float
) -> int:
    """How many vectors of the model's size clients' chunks keep in a run: 0 without chunks."""
    if not work.parse(curve.work).in_chunks:
        return 0
    if not curve.corrected:
        held = placement.held_counts()
        sizes = np.maximum(sizes_of(curve, law, held, per_example), 1)
        return int((-(-held // sizes)).sum())
    n_chunks = division_of(curve, law, placement, absences, per_example).n_chunks
    shared = int(np.count_nonzero(placement.copies))
    return int(n_chunks.sum()) + corrections.kept_vectors(n_chunks, shared)


def cost_of_received(curve: Curve) -> int:
    """How many gradients a holder computes of a received example.

    One, if the owner's residual of it came along; without, a second one at the anchor.
    """
    return 1 if curve.model in models.LINEAR else 2


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


def sizes_of(curve: Curve, law: Delays, held: IntArray, per_example: float) -> IntArray:
    """How many of the examples that it holds each client works on when it is asked: (N,)."""
    doing, fitting = work.parse(curve.work), None
    if doing.follows_speed:
        fitting = work.fitting(law, time_to_fit(curve, law), per_example, len(held))
    return doing.sizes(held, fitting)


def never_on_time(
    curve: Curve, law: Delays, held: IntArray, per_example: float, names: Sequence[str]
) -> str:
    """What to say of a client that can never answer within the deadline; empty without any.

    A deadline that is shorter than a client's link is refused, unless its answers count when they
    are late.
    """
    policy, work_fits = policy_of(curve, law), work.parse(curve.work).follows_speed
    T = time_to_fit(curve, law) if work_fits else policy.deadline
    if T is None or (policy.late == "remember" and not work_fits):
        return ""
    links = law.least(np.zeros(len(held)))
    if (too_far := (held > 0) & (links >= T)).any():
        i = int(np.argmax(too_far))
        raise StudyError(
            f"deadline must be longer than what the link of {names[i]} takes, at least "
            f"{links[i]:.3g} s, got {T:g}"
        )
    job = sizes_of(curve, law, held, per_example) * (per_example * curve.local_steps)
    least = law.least(np.asarray(job, np.float64))
    if policy.wait != "deadline" or not (never := (held > 0) & (least >= T)).any():
        return ""
    i = int(np.argmax(never))
    who = [names[k] for k in np.flatnonzero(never).tolist()]
    others = f" and {len(who) - MOST_NAMED} others" if len(who) > MOST_NAMED else ""
    return (
        f"deadline = {T:g} leaves {', '.join(who[:MOST_NAMED])}{others} no chance to be on time: "
        f"{names[i]} needs at least {least[i]:.3g} s for what it is asked; a longer deadline"
        f"{'' if isinstance(law, Recorded) else ', less work'} or late answers that are remembered "
        "would help"
    )


def too_short(curve: Curve, law: Delays, held: IntArray, per_example: float, seconds: float) -> str:
    """What to say if not even a tick fits into the training; empty if some do.

    Too many ticks are refused. What a tick takes goes by the mean job of each client.
    """
    policy = policy_of(curve, law)
    job = sizes_of(curve, law, held, per_example) * (per_example * curve.local_steps)
    jobs = np.sort(law.mean(np.asarray(job, np.float64))[held > 0])
    if not len(jobs):
        return ""
    tick = float(jobs[min(policy.fastest, len(jobs)) - 1] if policy.fastest else jobs[-1])
    if policy.deadline is not None:
        tick = min(tick, policy.deadline)
    if tick * schedule.MOST_TICKS < seconds:
        raise StudyError(
            f"seconds must leave room for at most {schedule.MOST_TICKS} ticks, got {seconds:g} "
            f"with ticks of about {tick:.2g} s; link gives them a length, whatever the work"
        )
    if tick > seconds:
        return (
            f"a tick takes about {tick:.3g} s, and seconds = {seconds:g} may end before the first"
        )
    return ""


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
