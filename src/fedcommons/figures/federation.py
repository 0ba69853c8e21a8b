"""The page of a federation's training: how it learnt, who answered, who shared."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow

from fedcommons.errors import ResultsError
from fedcommons.federate.server import results
from fedcommons.federate.server.open_question import OWES
from fedcommons.federate.server.round_notes import SITES
from fedcommons.figures import style
from fedcommons.figures.at_sites import at_sites
from fedcommons.figures.markup import Markup, joined, markup, packaged
from fedcommons.figures.round_chart import chart
from fedcommons.json_file import read_json
from fedcommons.parquet import read_parquet

DAMAGE = (  # what comes of fields that are missing, or are of another kind
    *(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    pyarrow.ArrowException,
)


def is_federation(folder: Path) -> bool:
    """Whether a results folder is that of a federation's training."""
    try:
        record = read_json(folder / "run.json", ResultsError)
    except FileNotFoundError:
        return (folder / "checkpoint.npz").exists()
    except ResultsError:
        return False
    return isinstance(record, dict) and record.get("format") == results.FORMAT


def write_page(folder: Path) -> Path:
    """Write report.html from the folder's tables, or an interrupted run's checkpoint; its path."""
    try:
        page = render(*_read(folder))
    except DAMAGE as error:
        raise ResultsError(
            f"{folder} cannot be read as a federation's results: {type(error).__name__}: {error}"
        ) from None
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


Rows = list[dict[str, Any]]


def _read(folder: Path) -> tuple[dict[str, Any], Rows, Rows, Rows]:
    """What was run, its rounds, its answers and what sites measured."""
    if checkpoint := results.unfinished(folder):
        record = {**checkpoint.about, "rounds": checkpoint.round, "versions": {}}
        return record, *results.tables(checkpoint.history)
    record = read_json(folder / "run.json", ResultsError)
    rounds, answers, of_sites = (_table(folder / f"{name}.parquet") for name in results.TABLES)
    return record, rounds, answers, of_sites


def _table(path: Path) -> Rows:
    """The rows of a table; those of an older version lack what sites measured."""
    if path.stem == "site_metrics" and not path.exists():
        return []
    found: Rows = read_parquet(path, ResultsError).to_pylist()
    return found


def render(
    record: dict[str, Any], rounds: Rows, answers: Rows, of_sites: Sequence[dict[str, Any]] = ()
) -> str:
    """The page of one training: run.json and the tables."""
    names = [name for name in rounds[-1] if name not in results.OF_A_ROUND]
    metrics = [name for name in names if any(_is_number(row.get(name)) for row in rounds)]
    last = [
        f"{_words(name)} {rounds[-1][name]:.4f}" for name in names if _is_number(rounds[-1][name])
    ]
    n_answers = sum(answer["answered"] for answer in answers)
    return markup(
        packaged("federation_template.html"),
        css=style.page_css(),
        federation=record["federation"],
        n_sites=len(record["sites"]),
        n_rounds=record["rounds"],
        copies=record["copies"],
        examples=record["examples"],
        deliveries=record["deliveries"],
        answered=f"{n_answers} of {len(answers)}",
        last="; ".join(last) or "none measured",
        charts=joined(_chart(name, rounds) for name in metrics),
        at_sites=at_sites(of_sites),
        attendance=_attendance(answers),
        sites=_sites(record, answers),
        settings=_settings(record),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _chart(name: str, rounds: list[dict[str, Any]]) -> Markup:
    points = [(row["round"], float(row[name])) for row in rounds if _is_number(row.get(name))]
    return chart(f"{_words(name)} after each round", points)


def _words(metric: str) -> str:
    """What a metric is called: `sites_accuracy` is the mean of what sites measured."""
    of_sites = metric.startswith(SITES)
    words = metric.removeprefix(SITES).replace("_", " ")
    return f"{words} over all sites" if of_sites else words


def _attendance(answers: list[dict[str, Any]]) -> Markup:
    """A row for each site, a cell for each round: a sign as well as a colour."""
    by_site: dict[str, dict[int, dict[str, Any]]] = {}
    for answer in answers:
        by_site.setdefault(answer["site"], {})[answer["round"]] = answer
    rounds = sorted({answer["round"] for answer in answers})
    head = joined(markup("<th>$t</th>", t=t if t == 1 or t % 5 == 0 else "") for t in rounds)
    rows = []
    for site, row in by_site.items():
        cells = []
        for t in rounds:
            answer = row.get(t, {"answered": None, "outcome": "no member"})
            kind, sign = {True: ("yes", "✓"), False: ("no", "·"), None: ("", "")}[
                answer["answered"]
            ]
            if not answer.get("asked", True):
                kind, sign = "", "-"
            if answer["outcome"] == OWES:
                kind, sign = "", "…"
            if answer.get("late_counts"):
                kind, sign = "yes", "↩"
            said = f"{site}, round {t}: {answer['outcome']}{_timing(answer)}"
            cell = '<td class="$kind" title="$said">$sign</td>'
            cells.append(markup(cell, kind=kind, said=said, sign=sign))
        row_of = '<tr><th scope="row">$site</th>$cells</tr>'
        rows.append(markup(row_of, site=site, cells=joined(cells)))
    table = '<table class="attendance"><tr><td></td>$head</tr>$rows</table>'
    return markup(table, head=head, rows=joined(rows))


def _timing(answer: dict[str, Any]) -> str:
    """How long the answer took that came, and by how much it was late."""
    if answer.get("seconds") is None:
        return ""
    if answer.get("asked_in") is None:
        return f" in {answer['seconds']:.1f} s"
    counts = "it counts" if answer["late_counts"] else "it does not count"
    return (
        f"; its answer to round {answer['asked_in']} came after {answer['seconds']:.1f} s, "
        f"{answer['late_by']:.1f} s late: {counts}"
    )


def _late(answers: list[dict[str, Any]]) -> str:
    """How many answers came late, how many of these count, and by how much they were late."""
    late = [answer for answer in answers if answer.get("asked_in") is not None]
    if not late:
        return "-"
    n = sum(answer["late_counts"] for answer in late)
    longest = max(answer["late_by"] for answer in late)
    return f"{n} of {len(late)} count; by up to {longest:.1f} s"


def _median_seconds(answers: list[dict[str, Any]]) -> str:
    took = [answer["seconds"] for answer in answers if answer.get("seconds") is not None]
    return f"{statistics.median(took):.1f} s" if took else "-"


def _sites(record: dict[str, Any], answers: list[dict[str, Any]]) -> Markup:
    rows = []
    why = {entry["identity"]: entry["why"] for entry in record.get("quarantine", ())}
    for site in record["sites"]:
        out = why.get(site["identity"], "by the commit") if site.get("quarantined") else None
        mine = [answer for answer in answers if answer["site"] == site["site"]]
        missed: dict[str, int] = {}
        for answer in mine:
            if not answer["answered"] and answer.get("asked", True) and answer["outcome"] != OWES:
                missed[answer["outcome"]] = missed.get(answer["outcome"], 0) + 1
        reasons = "; ".join(f"{why} {n}" for why, n in sorted(missed.items())) or "-"
        p = f"{mine[-1]['straggler_prob']:.2f}" if mine else "-"
        clipped = sum(answer.get("clipped", 1.0) < 1 for answer in mine)
        cells = (
            site["site"],
            site["examples"],
            site["shareable"],
            sum(answer["answered"] for answer in mine),
            sum(answer.get("asked", True) and answer["outcome"] != OWES for answer in mine),
            clipped or "-",
            _late(mine),
            _median_seconds(mine),
            p,
            reasons,
            "left" if not site["present"] else f"quarantined: {out}" if out else "yes",
        )
        rows.append(
            markup("<tr>$cells</tr>", cells=joined(markup("<td>$c</td>", c=c) for c in cells))
        )
    heads = (
        *("site", "examples", "shareable", "answers", "asked", "clipped"),
        *("late", "median time"),
        *("p at last", "missing because", "member"),
    )
    head = joined(markup("<th>$name</th>", name=name) for name in heads)
    table = '<table class="sites"><tr>$head</tr>$rows</table>'
    return markup(table, head=head, rows=joined(rows))


def _settings(record: dict[str, Any]) -> Markup:
    facts = {**record["settings"], "epoch": record["epoch"], "commit": record["serial"]}
    facts |= {f"version of {name}": value for name, value in record["versions"].items()}
    return joined(
        markup("<dt>$name</dt><dd>$value</dd>", name=name.replace("_", " "), value=_said(value))
        for name, value in facts.items()
    )


def _said(value: object) -> object:
    if value is None:
        return "–"
    return ("no", "yes")[value] if isinstance(value, bool) else value
