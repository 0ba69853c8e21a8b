"""A server and its clients under a clock, event after event: what `schedule` is compared with."""

from __future__ import annotations

import math

import numpy as np

from fedcommons import deadlines


def job_ends(begin: float, seconds: float, absences: list[tuple[float, float]]) -> float:
    """When work of so many seconds is done that waits while its client is away."""
    now, left = begin, seconds
    for away, back in absences:
        if back <= now:
            continue
        if now >= away:  # it is away already
            now = back
        elif now + left <= away:
            return now + left
        else:
            left -= away - now
            now = back
    return now + left


def is_away(when: float, absences: list[tuple[float, float]]) -> bool:
    return any(away <= when < back for away, back in absences)


def ticks(
    took, absences, *, wait, late, fastest=0, deadline=None, weight=None, n_ticks=10**6, now=0.0,
    until=math.inf, known=None,
):  # fmt: skip
    """`took(client, job)` says how long a job takes; absences are (away, back) of each client.

    A dictionary for each tick that ends by then: asked, on_time, late (client -> the tick of its
    question), away, begin, end. A deadline of None adapts, to durations some of which are known.
    """
    N = len(absences)
    weight = [1.0] * N if weight is None else weight
    owed, jobs, found = {}, [0] * N, []  # owed: client -> (when, tick, asked at)
    durations: list[list[float]] = known or [[] for _ in range(N)]
    for t in range(n_ticks):
        while True:
            away = {i for i in range(N) if is_away(now, absences[i])}
            asked = [i for i in range(N) if i not in owed and (wait == "all" or i not in away)]
            if asked or owed:
                break
            now = min(back for i in range(N) for a, back in absences[i] if a <= now < back)
        limit = math.inf
        if wait == "deadline":
            limit = deadline
            if deadline is None:
                rows = [[*row[-20:], *[math.nan] * (20 - len(row[-20:]))] for row in durations]
                waited = [now - owed[i][2] if i in owed else math.nan for i in range(N)]
                limit = deadlines.adaptive(
                    np.array(rows), np.array(weight), np.array(waited)
                ).seconds
        new = {}
        for i in asked:
            new[i] = (job_ends(now, took(i, jobs[i]), absences[i]), t, now)
            jobs[i] += 1
        events = sorted([(when, i) for i, (when, _, _) in {**owed, **new}.items()])
        came, end = [], now
        for when, i in events:
            if wait == "deadline" and when > now + limit:
                end = now + limit
                break
            came.append(i)
            end = when
            if wait == "fastest" and len(came) == fastest:
                break
            if wait == "deadline" and (set(new) <= set(came) if new else bool(came)):
                break
        if end > until:
            return found
        here = {
            "asked": set(new), "away": away, "begin": now, "end": end,
            "on_time": {i for i in came if i in new},
            "late": {i: owed[i][1] for i in came if i in owed},
        }  # fmt: skip
        found.append(here)
        for i in came:
            durations[i].append({**owed, **new}[i][0] - {**owed, **new}[i][2])
        still = {i: job for i, job in {**owed, **new}.items() if i not in came}
        if late == "discard":
            for i in still:
                durations[i].append(math.inf)
            still = {}
        owed, now = still, end
    return found
