"""Tick by tick: who is asked, who answers in time, whose late answer arrives, how long it takes.

An engine steps a schedule. A client has one job at a time: one that owes an answer is not asked.
Rounds in which whoever does not answer in time never does are a schedule, too (`Ticks.of_rounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.deadlines import Deadline, Durations
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
        begin, end: when it begins and ends, in seconds from the start: a warm start takes time.
    """

    asked: BoolArray
    on_time: BoolArray
    late: BoolArray
    since: IntArray
    away: BoolArray
    begin: float
    end: float


class Schedule(Protocol):
    """What an engine steps."""

    def tick(self, wanted: BoolArray) -> Tick:
        """The next tick, in which those of the wanted are asked who can be."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Ticks:
    """All ticks of a training: (T, N) each, as in `Tick`; `begins` and `ends` are (T,)."""

    asked: BoolArray
    on_time: BoolArray
    late: BoolArray
    since: IntArray
    away: BoolArray
    begins: FloatArray
    ends: FloatArray

    @classmethod
    def of_rounds(cls, answered: BoolArray, asked: BoolArray | None = None) -> Ticks:
        """Rounds of a second each in which what does not come in time never comes.

        Args:
            answered: (T, N) who answers if asked.
            asked: (T, N) who is asked; everybody by default.
        """
        asked = np.ones_like(answered) if asked is None else asked
        none = np.zeros_like(answered)
        begins = np.arange(0.0, len(answered))
        since = np.full(answered.shape, -1, np.int64)
        return cls(asked, answered & asked, none, since, none, begins, begins + 1)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def arrivals(self) -> Arrivals:
        """What an estimator weighs."""
        age = None
        if self.late.any():
            age = np.where(self.late, np.arange(len(self))[:, None] - self.since, 0)
        return Arrivals(self.on_time, self.asked, self.late, age)

    @property
    def jobs(self) -> IntArray:
        """The number of each client's last job, counted from 0 and up to each tick: (T, N)."""
        return np.cumsum(self.asked, axis=0) - 1

    @property
    def kept(self) -> BoolArray:
        """Whose answer to a tick's question comes in a later one: (T, N)."""
        found = np.zeros_like(self.asked)
        _, client = np.nonzero(self.late)
        found[self.since[self.late], client] = True
        return found


class Clock:
    """The schedule of clients that need time for their work, under a policy.

    Attributes:
        now: seconds from the start.
        ticks: how many there were.
        deadline: the last one that was chosen, for a policy that adapts; None before.
    """

    def __init__(
        self,
        delays: Delays,
        policy: Policy,
        work: FloatArray,
        *,
        absences: Absences | None = None,
        weight: FloatArray | None = None,
    ) -> None:
        """
        Args:
            delays: how long jobs take.
            policy: whom to wait for, and what becomes of late answers.
            work: (N,) multiply-adds of every client's job.
            absences: when clients are away; never by default.
            weight: (N,) what a client's answer counts for a deadline that adapts; all alike by
                default.
        """
        self.delays, self.policy, self.absences = delays, policy, absences
        self.work = checks.finite("work", work, shape=(len(np.atleast_1d(work)),))
        self.now, self.ticks = 0.0, 0
        self.deadline: Deadline | None = None
        N = len(self.work)
        self.weight = np.ones(N) if weight is None else checks.finite("weight", weight, shape=(N,))
        self._durations = Durations(N)
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
        """Let time pass until every client has done so much work, once: a warm start."""
        everybody = np.arange(len(work))
        done = self._when_done(everybody, np.asarray(work, np.float64))
        self._asked_at[:] = self.now
        self._remember(everybody, done)
        self.now = float(done.max())

    def tick(self, wanted: BoolArray) -> Tick:
        """The next tick; if nobody can be asked and nobody owes anything, time passes first."""
        owes = np.isfinite(self._done)
        away = where_away(self.absences, len(owes), self.now)
        can = wanted & ~owes if self.policy.wait == "all" else wanted & ~owes & ~away
        if not can.any() and not owes.any():
            self._wait_for(np.flatnonzero(wanted))
            away = where_away(self.absences, len(owes), self.now)
            can = wanted & ~away
        asked = np.flatnonzero(can)
        seconds = self._seconds(owes)
        self._done[asked] = self._when_done(asked, self.work[asked])
        self._asked_at[asked], self._since[asked] = self.now, self.ticks
        end = self.policy.ends(self.now, self._done[asked], self._done[owes], seconds)
        came = self._done <= end
        since = np.where(owes & came, self._since, -1)
        tick = Tick(can, can & came, owes & came, since, away, self.now, end)
        self._remember(np.flatnonzero(came), self._done[came])
        if self.policy.late == "discard":
            given_up = np.flatnonzero(can & ~came)
            self._remember(given_up, np.full(len(given_up), np.inf))
        self.now, self.ticks = end, self.ticks + 1
        return tick

    def _seconds(self, owes: BoolArray) -> float:
        """How long the policy waits in this tick, at most."""
        if self.policy.adaptive:
            waited = np.where(owes, self.now - self._asked_at, np.nan)
            self.deadline = self._durations.best(self.weight, waited)
            return self.deadline.seconds
        return np.inf if self.policy.deadline is None else self.policy.deadline

    def _remember(self, clients: IntArray, done: FloatArray) -> None:
        """These clients are free again; how long they took counts for a deadline that adapts."""
        if self.policy.adaptive:
            self._durations.add(clients, done - self._asked_at[clients])
        self._done[clients] = np.inf

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
    """The ticks that end within so many seconds; `wanted(t)` is whom tick t would ask."""
    ticks: list[Tick] = []
    while schedule.now < seconds:
        if len(ticks) == MOST_TICKS:
            raise ArgumentError(
                f"seconds must leave room for at most {MOST_TICKS} ticks, got {seconds:g} with "
                f"ticks of {schedule.now / MOST_TICKS:.2g} s"
            )
        ticks.append(schedule.tick(wanted(len(ticks))))
    if ticks and ticks[-1].end > seconds:
        ticks.pop()
    return _stacked(ticks, len(schedule.work))


def _stacked(ticks: Sequence[Tick], n_clients: int) -> Ticks:
    def of_clients(name: str, dtype: npt.DTypeLike = np.bool_) -> npt.NDArray[Any]:
        rows = [getattr(tick, name) for tick in ticks]
        return np.array(rows, dtype).reshape(len(ticks), n_clients)

    return Ticks(
        asked=of_clients("asked"),
        on_time=of_clients("on_time"),
        late=of_clients("late"),
        since=of_clients("since", np.int64),
        away=of_clients("away"),
        begins=np.array([tick.begin for tick in ticks], np.float64),
        ends=np.array([tick.end for tick in ticks], np.float64),
    )


__all__ = ["Clock", "Schedule", "Tick", "Ticks", "run"]


def __dir__() -> list[str]:
    return __all__
