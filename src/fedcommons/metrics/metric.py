"""What a metric is: a number for each model from its predictions and the truth."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import FloatArray
from fedcommons.errors import ArgumentError

Array = npt.NDArray[Any]
NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")
OF_TABLES = re.compile(  # columns of results that metrics must not be called like
    r"worst_site_.*|.*second_moment.*|gradient_norm2|heterogeneity_.*|type[12]|reduction.*"
    r"|.*_bound|.*_margin|ticks"
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: how studies call it.
        title: how figures do.
        kinds: of tasks that it goes with, as `tasks.Loss.kind`.
        higher_is_better: its direction.
        of: (predictions (B, n, ...), truth (n, ...)) -> (B,); NaN where it is undefined, which
            the truth decides. Predictions are scores; for times, risks (B, n).
        undefined: on what test examples it is.
        worst: what a lost model counts as.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    higher_is_better: bool
    of: Callable[[Array, Array], FloatArray]
    undefined: str = ""
    worst: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise ArgumentError(
                "name of a metric must be 1 to 50 of a-z, 0-9 and _, a letter first: columns of "
                f"results are called so; got {self.name!r}"
            )
        if OF_TABLES.fullmatch(self.name):
            raise ArgumentError(
                f"name of a metric must be none of results' own columns, got {self.name!r}"
            )

    @property
    def sign(self) -> int:
        """Times this, higher is better."""
        return 1 if self.higher_is_better else -1

    @property
    def is_proportion(self) -> bool:
        """Whether it lies in [0, 1]."""
        return self.worst == 0.0

    @property
    def words(self) -> str:
        """Its title and direction, for an axis."""
        return self.title if self.is_proportion else f"{self.title} ({self.direction})"

    @property
    def direction(self) -> str:
        return "higher is better" if self.higher_is_better else "lower is better"

    @property
    def heading(self) -> str:
        """Its title at the beginning of a sentence."""
        return self.title[0].upper() + self.title[1:]

    def shown(self, value: float) -> str:
        """A value or a distance of values, as people read it."""
        digits = f"{value:.3f}" if abs(value) < 100 else f"{value:,.4g}"
        return digits.replace("-", "\N{MINUS SIGN}")

    def with_half(self, value: float, half: float | None) -> str:
        """A value ± half of its interval, both to the place of the interval's second digit.

        Three places at most; just the value where there is no interval.
        """
        if half is None or not math.isfinite(half):
            return self.shown(value)
        places = min(3, 1 - math.floor(math.log10(half))) if half > 0 else 3
        both = (f"{round(number, places):,.{max(0, places)}f}" for number in (value, half))
        return " ± ".join(both).replace("-", "\N{MINUS SIGN}")

    def values(self, predictions: Array, truth: Array) -> FloatArray:
        """Of models' predictions (B, n, ...): (B,); NaN where undefined or not finite."""
        if len(truth) == 0:
            return np.full(len(predictions), np.nan)
        finite = np.isfinite(predictions).all(axis=tuple(range(1, predictions.ndim)))
        found = np.full(len(predictions), np.nan)
        if finite.any():
            found[finite] = self._of_finite(predictions[finite], truth)
        return found

    def _of_finite(self, predictions: Array, truth: Array) -> FloatArray:
        try:
            values = np.asarray(self.of(predictions, truth), np.float64)
        except Exception as error:  # whatever somebody else's metric does
            raise ArgumentError(
                f"metric {self.name} failed: {type(error).__name__}: {error}"
            ) from error
        if values.shape != (len(predictions),):
            raise ArgumentError(
                f"metric {self.name} must give a number for each of {len(predictions)} models, "
                f"got shape {values.shape}"
            )
        return values
