"""The fields of a curve about whom the server asks in a round."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fedcommons import checks
from fedcommons.asking import BY
from fedcommons.errors import ArgumentError
from fedcommons.estimators import ESTIMATORS
from fedcommons.simulate.algorithms import ALGORITHMS
from fedcommons.simulate.algorithms.algorithm import averaged, estimated
from fedcommons.simulate.settings import ALL, Setting, Values, one_of

if TYPE_CHECKING:
    from fedcommons.simulate.curves import Curve


def _asked(name: str, value: object) -> None:
    if value is None:
        return
    number = checks.real(name, value, low=0)
    if not number > 0 or (number > 1 and number % 1):
        raise ArgumentError(
            f"{name} must be a whole number of clients, or a part of them below 1, got {number:g}"
        )


def _can_ask_some(values: Values) -> bool:
    """Whether who is not asked can be missing."""
    algorithm = ALGORITHMS[values["algorithm"]]
    if algorithm.weigh is averaged:
        return True
    return algorithm.weigh is estimated and not ESTIMATORS[values["estimator"]].needs_everybody


def asked_words(curve: Curve) -> str:
    """How many are asked."""
    if curve.ask is None:
        return "all"
    return f"{curve.ask:.0f}" if curve.ask >= 1 else f"{100 * curve.ask:g} %"


ASKING: dict[str, Setting] = {
    # Clients that are asked in a round, or which part of them; None for all.
    "ask": Setting(
        "ask",
        _asked,
        _can_ask_some,
        "an algorithm whose server weighs the answers that came, and an estimator that does not "
        "wait for everybody",
        word_for_none=ALL,
        rank=15,
        label=lambda curve: "" if curve.ask is None else f"asking {asked_words(curve)}",
        tells=lambda curve: "asking all" if curve.ask is None else f"asking {asked_words(curve)}",
        caption=lambda curve: "" if curve.ask is None else f"{asked_words(curve)} asked a round",
    ),
    # How these are chosen: as a random subset, each by itself, or by remembered norms.
    "ask_by": Setting(
        "ask_by",
        partial(one_of, BY),
        lambda values: values["ask"] is not None and _can_ask_some(values),
        "ask, where not all are asked",
        rank=16,
        label=lambda curve: "" if curve.ask_by == "uniform" else f"by {curve.ask_by}",
        tells=lambda curve: f"asked by {curve.ask_by}",
        caption=lambda curve: "" if curve.ask_by == "uniform" else f"asked by {curve.ask_by}",
    ),
}
