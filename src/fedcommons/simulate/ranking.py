"""The lines of one setting, ranked by paired differences.

All lines of a run share the training examples, and those with the same p the stragglers, so lines
are compared run by run. A line is as good as the best one if the 95 % interval of their paired
difference contains 0; intervals are Student's, and not corrected for how many there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.intervals import mean_and_half


@dataclass(frozen=True, slots=True)
class Rank:
    """One line among those of its setting.

    Attributes:
        mean, half: the study's main metric after the last round, and half of its 95 % interval.
        behind, behind_half: how far it is behind the best line, run by run, and half of that
            interval; 0 for the best line. None where there are fewer than two runs in common.
        as_good: whether it is the best line or cannot be told from it.
    """

    label: str
    mean: float
    half: float | None
    behind: float | None
    behind_half: float | None
    as_good: bool


@dataclass(frozen=True, slots=True)
class Setting:
    """The lines of one figure at one p, the best first; lost ones, by label, are apart.

    `beats` are pairs of labels whose paired difference has its 95 % interval on the first's side.
    """

    figure: str
    straggler_prob: float
    ranks: tuple[Rank, ...]
    lost: tuple[str, ...]
    beats: tuple[tuple[str, str], ...] = ()


def ranked(figure: str, p: float, of_line: Mapping[str, FloatArray], sign: int) -> Setting:
    """The best first: those with the highest values, or with sign -1 the lowest."""
    lost = [label for label, runs in of_line.items() if np.isnan(runs).all()]
    means = {label: np.nanmean(runs) for label, runs in of_line.items() if label not in lost}
    order = sorted(means, key=lambda label: -sign * means[label])
    ranks = []
    for label in order:
        own, best = of_line[label], of_line[order[0]]
        behind, behind_half = mean_and_half(sign * (best - own))
        is_best = label == order[0]
        ranks.append(
            Rank(
                label,
                *_known(mean_and_half(own)),
                0.0 if is_best else behind,
                0.0 if is_best else behind_half,
                is_best or behind is None or behind_half is None or behind <= behind_half,
            )
        )
    beats = [
        (one, other)
        for k, one in enumerate(order)
        for other in order[k + 1 :]
        if _is_ahead(*mean_and_half(sign * (of_line[one] - of_line[other])))
    ]
    return Setting(figure, p, tuple(ranks), tuple(lost), tuple(beats))


def _is_ahead(difference: float | None, half: float | None) -> bool:
    return difference is not None and half is not None and difference > half


def _known(found: tuple[float | None, float | None]) -> tuple[float, float | None]:
    mean, half = found
    return (math.nan if mean is None else mean), half
