"""The recommendation as sentences that can be repeated: what to do, what it brings, how sure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcommons.plan.geometry import assumed_geometry
from fedcommons.plan.options import Option, options
from fedcommons.plan.outcome import Outcome, Question
from fedcommons.plan.recommendation import Recommendation
from fedcommons.plan.sites import C, P, Sites

OTHER_DATA = ((0.1, 0.0), (0.9, 0.8))  # how alike inputs are: hardly, and nearly the same
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
PARTS = {1.0: "all that it may share", 0.5: "half of what it may share"}


def sentence(
    taken: Recommendation,
    *,
    outcomes: Mapping[Option, Outcome] | None = None,
    alone: Outcome | None = None,
    span: tuple[float, float] | None = None,
    error: float = 0.0,
) -> str:
    """What to do, what it brings, why, and how sure that is.

    Args:
        outcomes: of every option, where hours are known.
        alone: the outcome without sharing.
        span: the variance of the option for other kinds of data, where its geometry is assumed.
        error: of the hours, relative.
    """
    option = taken.option
    if option is None:
        return f"Nothing fits: {taken.reason}."
    outcome = outcomes.get(option) if outcomes else None
    said = [_what(option), *([_time(outcome, alone, error)] if outcome else [_noise(option, span)])]
    return " ".join([*said, f"Why this: {taken.reason}."])


def _what(option: Option) -> str:
    if not option.copies:
        return "Share nothing (c = 0)."
    part = PARTS.get(option.part, f"{option.part:.0%} of what it may share")
    d = int(option.copies)
    many = f"{WORDS[d] if d < len(WORDS) else d} other site{'s' if d > 1 else ''}"
    return (
        f"Let each site copy {part} to {many} (c = {option.proportion:.3g}, d = {d}): "
        f"{option.moved:,.0f} records move, and a round takes {option.extra_compute:.0%} more "
        "computing."
    )


def _noise(option: Option, span: tuple[float, float] | None) -> str:
    if not option.copies:
        return "The noise of training stays as it is."
    if span is None:
        return f"That takes away {1 - option.variance:.0%} of the noise of the first round."
    low, high = (1 - v for v in sorted(span, reverse=True))
    return (
        f"That takes away about {1 - option.variance:.0%} of the noise of the first round "
        f"({low:.0%} to {high:.0%}, depending on the data)."
    )


def _time(outcome: Outcome, alone: Outcome | None, error: float) -> str:
    if outcome.hours is None or outcome.deadline is None:
        return ""
    spread = f" (give or take {error:.0%})" if error else ""
    said = (
        f"With a deadline of {duration(outcome.deadline)} a round training takes about "
        f"{duration(3600 * outcome.hours)}{spread}"
    )
    if alone is None or alone.hours is None or not outcome.copies:
        return f"{said}."
    return f"{said}, against {duration(3600 * alone.hours)} without sharing."


def duration(seconds: float) -> str:
    """Seconds in words, two digits: "40 s", "3.1 h"."""
    if not np.isfinite(seconds):
        return "for ever"
    units = (("days", 86400), ("h", 3600), ("min", 60), ("s", 1))
    unit, size = next((one for one in units if seconds >= 2 * one[1]), units[-1])
    return f"{float(f'{seconds / size:.2g}'):g} {unit}"


def assumptions(
    question: Question, span: tuple[float, float] | None, *, p_assumed: bool, c_assumed: bool
) -> list[str]:
    """What was assumed, where it matters: in words.

    Args:
        span: as in `sentence`.
        p_assumed, c_assumed: whether nobody said how often sites are missing, what they may share.
    """
    said = []
    if span is not None:
        low, high = (1 - v for v in sorted(span, reverse=True))
        said.append(
            "examples are as alike as MNIST’s images. For other data the recommendation takes away "
            f"between {low:.0%} and {high:.0%} of the noise: measure it on yours (--data)."
        )
    if p_assumed:
        said.append(
            f"every site misses half of the rounds ({P:g}), as nobody said how often: give --p or "
            "a column p. The gain from sharing stands and falls with it."
        )
    if c_assumed:
        said.append(
            f"every site may share half of its examples ({C:g}): give --share or a column c."
        )
    if question.timing is not None and question.course.is_assumed:
        said.append(
            f"training takes {question.course.rounds[0]:g} rounds without noise, and noise makes "
            "that more in proportion. Near its end training feels noise more than that: try it on "
            "data (--data and --accuracy)."
        )
    return said


def for_other_data(sites: Sites, option: Option, code: str) -> tuple[float, float]:
    """The variance of an option, relative to no sharing, if examples are hardly or much alike."""
    found = []
    for same, other in OTHER_DATA:
        geometry = assumed_geometry(sites.n_classes, same_class=same, other_class=other)
        (again,) = options(
            sites, geometry, copies=(int(option.copies),), proportions=(option.part,), code=code
        )
        found.append(again.variance)
    return min(found), max(found)


__all__ = ["assumptions", "duration", "for_other_data", "sentence"]


def __dir__() -> list[str]:
    return __all__
