"""What `fedcommons plan` found, for people and for machines."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from fedcommons.cli import plan_sites, screen

if TYPE_CHECKING:
    from fedcommons.plan import Option, Outcome, Recommendation

MEMORY = (
    "With memory the first round's variance is the one above, or 0 if it starts warm; later it is "
    "that of how much answers change between rounds, which a plan cannot predict: try it with "
    "fedcommons simulate or fedcommons federate run."
)
LEGEND = (
    "c: how much of all examples is shared; variance: of the first round's estimate, relative to "
    "no sharing; · not beaten in cost and variance at once."
)
TIMES = (
    "Deadline: the longest within 5 % of the fewest hours. Round: seconds on average, with the "
    "copies' load. Late answers count as missing."
)
FEW_SITES = 12  # of which each has a line
MOST_NAMES = 12  # of classes, in words


@dataclass(frozen=True, slots=True)
class Plan:
    """What was found.

    Attributes:
        options: what was compared.
        taken: which of them to take.
        sentence: the same in words to repeat.
        placed: the placement that is there, if any.
        rounds: the pilot's, if no times are known.
        timed: what options bring at their deadlines, if times are known.
        by_site: what the option to take means for each site (`plan_sites.records`).
        about: who and what this is about.
    """

    options: list[Option]
    taken: Recommendation
    sentence: str
    placed: Option | None
    rounds: dict[Option, float]
    timed: dict[Option, Outcome]
    by_site: list[dict[str, Any]]
    about: dict[str, Any]

    def say_json(self) -> None:
        record = {
            **self.about,
            "options": [self._record(option) for option in self.options],
            "placed": asdict(self.placed) if self.placed else None,
            "recommended": self._record(self.taken.option) if self.taken.option else None,
            "reason": self.taken.reason,
            "sentence": self.sentence,
            "by_site": self.by_site,
            "memory": MEMORY,
        }
        screen.say_json(record)

    def _record(self, option: Option) -> dict[str, Any]:
        found = asdict(option)
        if self.rounds:
            found["rounds_to_accuracy"] = _finite(self.rounds.get(option, math.inf))
        if outcome := self.timed.get(option):
            found |= {
                "deadline": outcome.deadline,
                "seconds_a_round": outcome.seconds,
                "rounds": _finite(outcome.rounds),
                "hours": _finite(outcome.hours),
                "straggler_prob": outcome.straggler_prob.tolist(),
            }
        return found

    def print(self) -> None:
        about = self.about
        title = f"{about['sites']} sites, {about['code']}, {about['geometry']}"
        table = Table(
            title=screen.words(title, "table.title"), box=box.SIMPLE_HEAD, collapse_padding=True
        )  # fits 80 columns
        more = ["deadline", "round", "rounds", "hours"] if self.timed else ["vs IID"]
        heads = ["c", "d", *([] if self.timed else ["heterogeneity"]), "variance", *more, "moved"]
        heads += [] if self.timed else ["compute"]
        for name in [*heads, "cost", *(["rounds"] if self.rounds else []), ""]:
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
        if self.timed:
            console.print(screen.words(f"Rounds: {about['course']}. {TIMES}", "dim"))
        if late := about.get("if_late_answers_are_remembered"):
            console.print(
                f"If late answers are remembered (late = remember) a deadline of "
                f"{late['deadline']:.3g} s is enough: {late['arrives']:.0%} of the weight arrives."
                f"{_of_pilot(late['hours'])}"
            )
        if len(self.by_site) <= FEW_SITES and any(row["sends"] for row in self.by_site):
            console.print(plan_sites.table(self.by_site, timed=bool(self.timed)))
            what = "hours" if self.timed else "noise"
            console.print(plan_sites.LEGEND.format(what=what), style="dim")
        for words in about["assumed"]:
            console.print(screen.words(f"Assumed: {words}", "yellow"))
        console.print(screen.words(self.sentence, "bold"))
        console.print(MEMORY, style="dim")

    def _row(self, option: Option) -> list[str]:
        needed, outcome = self.rounds.get(option), self.timed.get(option)
        plain = [f"{option.variance_iid:.2f}"]
        return [
            f"{option.proportion:.3g}",
            f"{option.copies:.3g}",
            *([] if self.timed else [f"{option.heterogeneity:.4f}"]),
            f"{option.variance:.3f}",
            *(_times(outcome) if self.timed else plain),
            f"{option.moved:,.0f}",
            *([] if self.timed else [f"+{option.extra_compute:.0%}"]),
            f"{option.cost:,.0f}",
            *([f"{needed:g}" if needed is not None else ""] if self.rounds else []),
        ]


def _of_pilot(hours: float | None) -> str:
    """What a pilot on late answers took, if there was one that got there."""
    if hours is None:
        return ""
    from fedcommons import plan as planner

    return (
        f" Training of a pilot, with the default estimator, takes {planner.duration(3600 * hours)} "
        "then."
    )


def _times(outcome: Outcome | None) -> list[str]:
    if outcome is None or outcome.hours is None:
        return [""] * 4
    if math.isinf(outcome.hours):
        return [f"{outcome.deadline:.3g} s", f"{outcome.seconds:.3g} s", "never", "never"]
    times = (outcome.deadline, outcome.seconds)
    return [*(f"{t:.3g} s" for t in times), f"{outcome.rounds:.0f}", f"{outcome.hours:.3g}"]


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _listed(names: list[str]) -> str:
    """Names, the first few of many."""
    return ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
