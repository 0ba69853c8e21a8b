"""What `fedcommons plan` found, for people and for machines."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from fedcommons.cli import screen

if TYPE_CHECKING:
    from fedcommons.plan import Option, Recommendation

MEMORY = (
    "With memory the first round's variance is the one above, or 0 if it starts warm; later it is "
    "that of how much answers change between rounds, which a plan cannot predict: try it with "
    "fedcommons simulate or fedcommons federate run."
)
LEGEND = (
    "c: how much of all examples is shared; variance: of the first round's estimate, relative to "
    "no sharing; · not beaten in cost and variance at once."
)
MOST_NAMES = 12  # of classes, in words


@dataclass(frozen=True, slots=True)
class Plan:
    """The options, which to take, the placement that is there if any, and the pilot's rounds."""

    options: list[Option]
    taken: Recommendation
    placed: Option | None
    rounds: dict[Option, float]
    about: dict[str, Any]

    def say_json(self) -> None:
        record = {
            **self.about,
            "options": [self._record(option) for option in self.options],
            "placed": asdict(self.placed) if self.placed else None,
            "recommended": self._record(self.taken.option) if self.taken.option else None,
            "reason": self.taken.reason,
            "memory": MEMORY,
        }
        screen.say_json(record)

    def _record(self, option: Option) -> dict[str, Any]:
        if not self.rounds:
            return asdict(option)
        needed = self.rounds.get(option, math.inf)
        return {**asdict(option), "rounds_to_accuracy": None if math.isinf(needed) else needed}

    def print(self) -> None:
        about = self.about
        title = f"{about['sites']} sites, {about['code']}, {about['geometry']}"
        table = Table(
            title=screen.words(title, "table.title"), box=box.SIMPLE_HEAD, collapse_padding=True
        )  # fits 80 columns
        heads = ["c", "d", "heterogeneity", "variance", "vs IID", "moved", "compute", "cost"]
        for name in [*heads, *(["rounds"] if self.rounds else []), ""]:
            table.add_column(name, justify="right")
        if self.placed:
            table.add_row(*self._row(self.placed), "as placed", end_section=True)
        for option in self.options:
            chosen = option == self.taken.option
            sign = "◀ take" if chosen else "·" if option.best else ""
            table.add_row(*self._row(option), sign)
        console = Console()
        console.print(table)
        words = f"{len(about['classes'])} classes: {_listed(about['classes'])}."
        console.print(screen.words(words, "dim"))
        for words in about["left_out"]:
            console.print(screen.words(f"Left out: {words}.", "dim"))
        console.print(LEGEND, style="dim")
        if self.taken.option:
            c, d = self.taken.option.proportion, self.taken.option.copies
            said = f"Take c = {c:.3g}, d = {d:g}: {self.taken.reason}."
        else:
            said = f"Nothing fits: {self.taken.reason}."
        console.print(screen.words(said))
        console.print(MEMORY, style="dim")

    def _row(self, option: Option) -> list[str]:
        needed = self.rounds.get(option)
        return [
            f"{option.proportion:.3g}",
            f"{option.copies:.3g}",
            f"{option.heterogeneity:.4f}",
            f"{option.variance:.3f}",
            f"{option.variance_iid:.2f}",
            f"{option.moved:,.0f}",
            f"+{option.extra_compute:.0%}",
            f"{option.cost:,.0f}",
            *([f"{needed:g}" if needed is not None else ""] if self.rounds else []),
        ]


def _listed(names: list[str]) -> str:
    """Names, the first few of many."""
    return ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
