"""The decision page: what to share, with sliders, as one self-contained page.

outcome.js computes what `fedcommons.plan.outcome` does, from what is embedded here; decision.js
shows it, with the elements and charts of page_charts.js.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons import shown
from fedcommons.errors import ArgumentError, ResultsError
from fedcommons.figures import style
from fedcommons.figures.markup import Markup, joined, markup, packaged
from fedcommons.figures.page import json_for_script
from fedcommons.plan import Option, Outcome, Question
from fedcommons.plan.deadline import tried
from fedcommons.plan.timing import CHANCES, STEPS, interpolation_error

MOST_SITES = 60  # a row and a slider for each
DEADLINES = 60  # on the page's curve
SCRIPTS = ("page_charts.js", "outcome.js", "decision.js")
SITE_HEADS = {
    "sends": "sends, records",
    "receives": "receives",
    "longer": "a round takes it",
    "misses": "misses rounds",
    "gains": "gains",
    "verdict": "all in all",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """What the page shows.

    Attributes:
        question: who would share, and what is known of them.
        options: what was compared.
        taken: the option to take, if any.
        sentence: the recommendation in words.
        timed: the outcome of each option, where times are known.
        assumed: what was assumed, in words, where it matters.
        command: what to type to get the page again.
    """

    question: Question
    options: Sequence[Option]
    taken: Option | None
    sentence: str
    timed: Mapping[Option, Outcome]
    assumed: Sequence[str]
    command: str


def check(question: Question, path: Path) -> None:
    """Refuse a page that could not be written, or would show what it does not compute."""
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ResultsError(f"{path} cannot be written: not a file in a folder that may be written")
    if question.code != "equal-split":
        raise ArgumentError(f"page must go with the code equal-split, got {question.code}")
    if question.sites.n_sites > MOST_SITES:
        raise ArgumentError(
            f"page must be of at most {MOST_SITES} sites, a row for each, got "
            f"{question.sites.n_sites}"
        )


def render(found: Decision) -> Markup:
    """The page."""
    question, timing = found.question, found.question.timing
    sites = question.sites
    best = "noisy" if timing is None else "slow"
    return markup(
        packaged("decision_template.html"),
        css=style.page_css(),
        own_css=packaged("decision.css"),
        script=joined((packaged(name) for name in SCRIPTS), "\n"),
        data=json_for_script(_data(found)),
        who=f"{sites.n_sites} sites, {sites.n_examples:,} examples of {sites.n_classes} classes.",
        sentence=found.sentence,
        warnings=joined(
            markup('<p class="warning"><b>Assumed:</b> $words</p>', words=words)
            for words in found.assumed
        ),
        heads=joined(markup('<th scope="col">$h</th>', h=h) for h in SITE_HEADS.values()),
        best_deadlines=", at the best deadline for each point if so chosen" if timing else "",
        better=f"less {best}",
        n_options=len(found.options),
        table=_table(found),
        how=joined(markup("<li>$line</li>", line=line) for line in _how(found)),
        command=found.command,
    )


def _how(found: Decision) -> list[str]:
    question, timing = found.question, found.question.timing
    lines = [
        "Noise is the exact expectation of the first round’s variance over random sharing and "
        "who answers, for given scalar products of gradients; unevenness is Theorem 1 "
        "(arXiv 2404.03524v1). This page computes both anew for every setting.",
        f"Rounds: {question.course.words}.",
    ]
    if question.course.error:
        lines.append(
            f"The trainings lie {question.course.error:.0%} from that curve (root mean square)."
        )
    if timing is not None:
        error = interpolation_error(timing, _deadlines(question)[[10, 25, 45]])
        lines.append(
            f"Times: {timing.words}. Seconds of a round come from a grid of quantiles that was "
            f"computed beforehand and is interpolated: within {max(error, 0.001):.1%} of the laws "
            "themselves, at three deadlines, half filled."
        )
    return lines


def _data(found: Decision) -> dict[str, Any]:
    question = found.question
    sites = question.sites
    taken = found.taken or found.options[0]
    outcome = found.timed.get(taken)
    return {
        "names": [shown.plain(name) for name in sites.called],
        "siteHeads": list(SITE_HEADS.items()),
        "counts": sites.counts.tolist(),
        "most": sites.shareable.tolist(),
        "missing": sites.straggler_prob.tolist(),
        "norm2": np.asarray(question.geometry.norm2).tolist(),
        "products": np.asarray(question.geometry.products).tolist(),
        "examples": sites.n_examples,
        "gradient": question.gradient,
        "alone": question.alone,
        "course": {"noise": question.course.noise, "rounds": question.course.rounds},
        "prices": {
            "record": question.prices.record,
            "compute": question.prices.compute,
            "rounds": question.prices.rounds,
        },
        "mostCopies": int(max(option.copies for option in found.options)),
        "start": {
            "part": taken.part,
            "copies": int(taken.copies),
            "deadline": outcome.deadline if outcome else None,
        },
        "options": [_option(found, option, taken) for option in found.options],
        "timing": _timing(question),
    }


def _option(found: Decision, option: Option, taken: Option) -> dict[str, Any]:
    outcome = found.timed.get(option)
    hours = outcome.hours if outcome else None
    return {
        "proportion": option.proportion,
        "copies": option.copies,
        "cost": option.cost,
        "variance": option.variance,
        "hours": hours if hours is not None and math.isfinite(hours) else None,
        "best": option in _front(found),
        "recommended": option == taken and found.taken is not None,
    }


def _front(found: Decision) -> list[Option]:
    """Those that no other beats in both cost and hours; without times cost and variance."""
    if not found.timed:
        return [option for option in found.options if option.best]

    def hours(option: Option) -> float:
        value = found.timed[option].hours
        return math.inf if value is None else value

    def beaten(option: Option) -> bool:
        return any(
            other.cost <= option.cost
            and hours(other) <= hours(option)
            and (other.cost, hours(other)) != (option.cost, hours(option))
            for other in found.options
        )

    return [option for option in found.options if not beaten(option)]


def _deadlines(question: Question) -> np.ndarray:
    """From the first that all sites keep with their own data to one that all keep with copies."""
    timing = question.timing
    assert timing is not None
    low, high = tried(question, timing.own)[0], tried(question, timing.most)[-1]
    return np.geomspace(low, high, DEADLINES)


def _timing(question: Question) -> dict[str, Any] | None:
    timing = question.timing
    if timing is None:
        return None
    first, last = timing.ends
    return {
        "chances": CHANCES.tolist(),
        "first": first.T.tolist(),
        "last": last.T.tolist(),
        "own": timing.own.tolist(),
        "most": timing.most.tolist(),
        "away": timing.presence.away.tolist(),
        "mean": [timing.mean(timing.own).tolist(), timing.mean(timing.most).tolist()],
        "steps": STEPS,
        "deadlines": _deadlines(question).tolist(),
    }


def _table(found: Decision) -> Markup:
    heads = ["c", "d", "unevenness", "noise", "records moved", "more computing", "cost"]
    heads += ["deadline, s", "a round, s", "rounds", "hours"] if found.timed else []
    rows = []
    for option in found.options:
        cells = [
            *(f"{option.proportion:.3g}", f"{option.copies:g}", f"{option.heterogeneity:.4f}"),
            *(f"{option.variance:.3f}", f"{option.moved:,.0f}", f"{option.extra_compute:.0%}"),
            f"{option.cost:,.0f}",
        ]
        if outcome := found.timed.get(option):
            numbers = (outcome.deadline, outcome.seconds, outcome.rounds, outcome.hours)
            cells += [
                f"{n:.3g}" if n is not None and math.isfinite(n) else "never" for n in numbers
            ]
        rows.append(markup("<tr>$c</tr>", c=joined(markup("<td>$v</td>", v=v) for v in cells)))
    head = joined(markup('<th scope="col">$h</th>', h=h) for h in heads)
    return markup("<table><thead><tr>$head</tr></thead><tbody>$rows</tbody></table>",
                  head=head, rows=joined(rows))  # fmt: skip
