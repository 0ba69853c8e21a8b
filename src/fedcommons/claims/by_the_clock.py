"""What this project says of seconds, judged on the study that is run by the clock."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.claims.evidence import Claim, Evidence, MissingCurveError, direction
from fedcommons.claims.verdicts import Component
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.times import SECONDS

NOBODY_AWAY, AWAY = "nobody-away", "owners-away"  # the study's figures
FULL, SIMPLE = "all, full batches", "15 fastest, sized batches"
LATE, CHUNKS = "late answers remembered", "a chunk at a time"
CORRECTED = "a chunk at a time, corrected"
NEVER = 10.0  # times the study's seconds: what a run of ours counts as that never gets there


def late_answers_count(e: Evidence) -> Claim:
    late, full = (e.get("final_accuracy", _line(e, NOBODY_AWAY, label)) for label in (LATE, FULL))
    return direction(
        "clock-late",
        "A deadline with late answers remembered is ahead of waiting for all.",
        "this project, seconds to an accuracy: both on full batches, nobody is away",
        "accuracy at the end: late answers remembered minus waiting for all",
        [Component.of("at the end", late - full)],
    )


def chunks_are_faster(e: Evidence) -> Claim:
    return _faster(
        e,
        "clock-chunks",
        "With a chunk at a time, and the last gradient of each remembered, the target is reached "
        "sooner than by waiting for the fastest with mini-batches sized to each client’s speed.",
        "this project, seconds to an accuracy: nobody is away",
        (NOBODY_AWAY, CHUNKS),
        [SIMPLE],
        least=1.0,
    )


def averages_never_get_there(e: Evidence) -> Claim:
    return _faster(
        e,
        "clock-averages",
        "Where the owners of some classes are away most of the time, whoever averages over who "
        "answers takes at least twice as long as corrected chunks.",
        "this project, seconds to an accuracy: the owners of three classes are away 80 % of the "
        "time, the others 10 %",
        (AWAY, CORRECTED),
        [SIMPLE],
        least=2.0,
    )


def sharing_saves_time(e: Evidence) -> Claim:
    return _faster(
        e,
        "clock-sharing",
        "There, a tenth of the examples shared with three others saves time: present holders "
        "correct the chunks of who is away.",
        "this project, seconds to an accuracy: (c, d) = (0.1, 3) against no sharing",
        (AWAY, CORRECTED),
        [CHUNKS],
        least=1.0,
    )


CLAIMS = (late_answers_count, chunks_are_faster, averages_never_get_there, sharing_saves_time)


def _faster(
    e: Evidence,
    id_: str,
    claim: str,
    where: str,
    ours: tuple[str, str],
    others: list[str],
    *,
    least: float,
) -> Claim:
    """That a line is at least so many times as fast as others of its figure."""
    assert e.study.clock is not None
    budget, target = e.study.clock.seconds, e.study.clock.target
    figure, label = ours
    own = _seconds(e, figure, label, never=NEVER * budget)
    components = [
        Component.of(
            f"{other} against {label}",
            np.log(_seconds(e, figure, other, never=budget) / own / least),
        )
        for other in others
    ]
    than = f" minus that of {least:g}" if least > 1 else ""
    statistic = (
        f"natural logarithm of the ratio of seconds to {target:g}{than}; a run that never got "
        f"there counts as {budget:g} s, one of ours as {NEVER * budget:g} s"
    )
    return direction(id_, claim, where, statistic, components)


def _seconds(e: Evidence, figure: str, label: str, *, never: float) -> FloatArray:
    return np.minimum(e.get(SECONDS, _line(e, figure, label)), never)


def _line(e: Evidence, figure: str, label: str) -> Curve:
    for one in e.study.figures:
        for line in one.lines if one.name == figure else ():
            if line.label == label:
                return line.curve
    raise MissingCurveError(f"{label} in {figure}")
