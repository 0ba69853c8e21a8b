"""Tick by tick: who is asked, who answers in time, whose late answer arrives, how long it takes.

An engine steps a schedule. A client has one job at a time: one that owes an answer is not asked.
Rounds in which whoever does not answer in time never does are a schedule, too (`Ticks.of_rounds`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.delays import Absences, Delays, where_away
from fedcommons.errors import ArgumentError
from fedcommons.estimators import Arrivals
from fedcommons.policies import Policy

MOST_TICKS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Tick:
    """What happens in a tick: (N,) each.

    Attributes:
        asked: who is asked at its beginning.
        on_time: whose answer to that comes before it ends.
        late: whose answer to an earlier question comes before it ends.
        since: the tick in which that question was asked, counted from 0; -1 where none comes.
        away: who is away as it begins.
        end: when it ends, in seconds from the start of the training.
    """

    asked: BoolArray
    on_time: BoolArray
    late: BoolArray
    since: IntArray
    away: BoolArray
    end: float


class Schedule(Protocol):
    """What an engine steps."""

    def tick(self, wanted: BoolArray) -> Tick:
        """The next tick, in which those of the wanted are asked who can be."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Ticks:
    """All ticks of a training: (T, N) each, as in `Tick`; `ends` is (T,).

    Attributes:
        begin: when the first one begins, in seconds: a warm start takes time.
    """

    asked: BoolArray
    on_time: BoolArray
    late: BoolArray
    since: IntArray
    away: BoolArray
    ends: FloatArray
    begin: float = 0.0

    @classmethod
    def of_rounds(cls, answered: BoolArray, asked: BoolArray | None = None) -> Ticks:
        """Rounds of a second each in which what does not come in time never comes.

        Args:
            answered: (T, N) who answers if asked.
            asked: (T, N) who is asked; everybody by default.
        """
        asked = np.ones_like(answered) if asked is None else asked
        none = np.zeros_like(answered)
        ends = np.arange(1.0, len(answered) + 1)
        since = np.full(answered.shape, -1, np.int64)
        return cls(asked, answered & asked, none, since, none, ends)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def arrivals(self) -> Arrivals:
        """What an estimator weighs."""
        age = np.arange(len(self))[:, None] - self.since
        return Arrivals(self.on_time, self.asked, self.late, np.where(self.late, age, 0))

    @property
    def begins(self) -> FloatArray:
        """When each begins: (T,)."""
        return np.concatenate([[self.begin], self.ends[:-1]])


class Clock:
    """The schedule of clients that need time for their work, under a policy."""

    def __init__(
        self,
        delays: Delays,
        policy: Policy,
        work: FloatArray,
        *,
        absences: Absences | None = None,
        deadline: Callable[[], float] | None = None,
    ) -> None:
        """
        Args:
            delays: how long jobs take.
            policy: whom to wait for, and what becomes of late answers.
            work: (N,) multiply-adds of every client's job.
            absences: when clients are away; never by default.
            deadline: the seconds of the next tick, for a policy that adapts.
        """
        if policy.wait == "deadline" and policy.adaptive == (deadline is None):
            raise ArgumentError("deadline must be given exactly for a policy that adapts")
        self.delays, self.policy, self.absences = delays, policy, absences
        self.work = checks.finite("work", work, shape=(len(np.atleast_1d(work)),))
        self.now, self.ticks = 0.0, 0
        N = len(self.work)
        self._deadline = deadline
        self._done = np.full(N, np.inf)  # when the answer that a client owes will come
        self._asked_at = np.zeros(N)
        self._since = np.full(N, -1, np.int64)
        self._jobs = np.zeros(N, np.int64)
        mean = delays.mean(self.work)
        if not (mean > 0).all():
            raise ArgumentError(
                f"delays must let every job take time, got none of client {int(np.argmin(mean))}"
            )

    def everybody(self, work: FloatArray) -> None:
        """Let time pass until every client has done so much work, once."""
        everybody = np.arange(len(work))
        self.now = float(self._when_done(everybody, np.asarray(work, np.float64)).max())

    def tick(self, wanted: BoolArray) -> Tick:
        owes = np.isfinite(self._done)
        away = where_away(self.absences, len(owes), self.now)
        can = wanted & ~owes if self.policy.wait == "all" else wanted & ~owes & ~away
        if not can.any() and not owes.any():
            self._wait_for(np.flatnonzero(wanted))
            away = where_away(self.absences, len(owes), self.now)
            can = wanted & ~away
        asked = np.flatnonzero(can)
        self._done[asked] = self._when_done(asked, self.work[asked])
        self._asked_at[asked], self._since[asked] = self.now, self.ticks
        seconds = self._seconds()
        end = self.policy.ends(self.now, self._done[asked], self._done[owes], seconds)
        came = self._done <= end
        tick = Tick(can, can & came, owes & came, np.where(owes & came, self._since, -1), away, end)
        self._done[came] = np.inf
        if self.policy.late == "discard":
            self._done[:] = np.inf
        self.now, self.ticks = end, self.ticks + 1
        return tick

    def _seconds(self) -> float:
        if self._deadline is not None:
            return self._deadline()
        return np.inf if self.policy.deadline is None else self.policy.deadline

    def _when_done(self, clients: IntArray, work: FloatArray) -> FloatArray:
        """When these clients will have done their next job, asked now: (n,)."""
        seconds = self.delays.seconds(clients, self._jobs[clients], work)
        self._jobs[clients] += 1
        if self.absences is None:
            return self.now + seconds
        return self.absences.done(clients, self.absences.back(clients, self.now), seconds)

    def _wait_for(self, clients: IntArray) -> None:
        """Let time pass until one of them is there."""
        if self.absences is None or not len(clients):
            raise ArgumentError("wanted must name a client, got none while nobody owes an answer")
        self.now = float(self.absences.back(clients, self.now).min())


def run(schedule: Clock, wanted: Callable[[int], BoolArray], *, seconds: float) -> Ticks:
    """The ticks of a training that goes on for so long; `wanted(t)` is whom a tick would ask.

    The last tick ends after that time: what it gives comes too late.
    """
    begin = schedule.now
    ticks: list[Tick] = []
    while schedule.now < seconds:
        if len(ticks) == MOST_TICKS:
            raise ArgumentError(
                f"seconds must leave room for at most {MOST_TICKS} ticks, got {seconds:g} with "
                f"ticks of {schedule.now / MOST_TICKS:.2g} s"
            )
        ticks.append(schedule.tick(wanted(len(ticks))))
    N = len(schedule.work)
    shape = (len(ticks), N)

    def stacked(name: str) -> np.ndarray:
        return np.array([getattr(tick, name) for tick in ticks]).reshape(shape)

    return Ticks(
        stacked("asked").astype(np.bool_),
        stacked("on_time").astype(np.bool_),
        stacked("late").astype(np.bool_),
        stacked("since").astype(np.int64),
        stacked("away").astype(np.bool_),
        np.array([tick.end for tick in ticks]),
        begin,
    )


__all__ = ["Clock", "Schedule", "Tick", "Ticks", "run"]


def __dir__() -> list[str]:
    return __all__
