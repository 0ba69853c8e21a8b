"""The page of a federation's training: how it learnt, who answered, who shared."""

from __future__ import annotations

import html
import json
import math
import string
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from matplotlib.ticker import MaxNLocator

from fedcommons.errors import ResultsError
from fedcommons.federate.server import results
from fedcommons.figures import style

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 260, 46, 30


def is_federation(folder: Path) -> bool:
    """Whether a results folder is that of a federation's training."""
    try:
        return bool(json.loads((folder / "run.json").read_text())["format"] == results.FORMAT)
    except FileNotFoundError:
        return (folder / "checkpoint.npz").exists()
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write_page(folder: Path) -> Path:
    """Write report.html from the folder's tables, or an interrupted run's checkpoint; its path."""
    try:
        page = render(*_read(folder))
    except (OSError, ValueError, KeyError, TypeError, pyarrow.ArrowException) as error:
        raise ResultsError(f"{folder} cannot be read as a federation's results: {error}") from None
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """What was run, its rounds and its answers."""
    if checkpoint := results.unfinished(folder):
        record = {**checkpoint.about, "rounds": checkpoint.round, "versions": {}}
        return record, *results.tables(checkpoint.history)
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    rounds, answers = (
        pyarrow.parquet.read_table(folder / f"{name}.parquet").to_pylist()
        for name in ("rounds", "answers")
    )
    return record, rounds, answers


def render(
    record: dict[str, Any], rounds: list[dict[str, Any]], answers: list[dict[str, Any]]
) -> str:
    """The page of one training: run.json, rounds.parquet and answers.parquet."""
    source = resources.files("fedcommons.figures")
    template = string.Template((source / "federation_template.html").read_text())
    known = {"round", "seconds", "answered", "sites"}
    metrics = [name for name in rounds[-1] if name not in known and _is_number(rounds[-1][name])]
    n_answers = sum(answer["answered"] for answer in answers)
    return template.substitute(
        css=style.page_css(),
        federation=html.escape(record["federation"]),
        n_sites=len(record["sites"]),
        n_rounds=record["rounds"],
        copies=record["copies"],
        examples=record["examples"],
        deliveries=record["deliveries"],
        answered=f"{n_answers} of {len(answers)}",
        last="; ".join(f"{name} {rounds[-1][name]:.4f}" for name in metrics) or "none measured",
        charts="".join(_chart(name, rounds) for name in metrics),
        attendance=_attendance(answers),
        sites=_sites(record, answers),
        settings=_settings(record),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _chart(name: str, rounds: list[dict[str, Any]]) -> str:
    """A line over the rounds, with a point and its value for each."""
    points = [(row["round"], float(row[name])) for row in rounds if _is_number(row.get(name))]
    values = [value for _, value in points]
    ticks = [float(v) for v in MaxNLocator(5).tick_values(min(values), max(values))]
    low, high = ticks[0], ticks[-1]
    last = max(1, points[-1][0])

    def x(t: float) -> float:
        return LEFT + t / last * (WIDTH - LEFT - 14)

    def y(value: float) -> float:
        return 10 + (high - value) / (high - low) * (HEIGHT - BOTTOM - 10)

    grid = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y(v):.1f}" y2="{y(v):.1f}" class="grid"/>'
        f'<text x="{LEFT - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.3g}</text>'
        for v in ticks
    )
    steps = sorted({round(last * k / 5) for k in range(6)})
    axis = "".join(
        f'<text x="{x(t):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{t}</text>' for t in steps
    )
    line = " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in points)
    dots = "".join(
        f'<circle cx="{x(t):.1f}" cy="{y(v):.1f}" r="4"><title>round {t}: {v:.4f}</title></circle>'
        for t, v in points
    )
    label = html.escape(name)
    return (
        f'<figure><figcaption class="caption">{label} after each round</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label} after each round">'
        f'{grid}{axis}<polyline points="{line}"/>{dots}</svg></figure>'
    )


def _attendance(answers: list[dict[str, Any]]) -> str:
    """A row for each site, a cell for each round: a sign as well as a colour."""
    by_site: dict[str, dict[int, dict[str, Any]]] = {}
    for answer in answers:
        by_site.setdefault(answer["site"], {})[answer["round"]] = answer
    rounds = sorted({answer["round"] for answer in answers})
    head = "".join(f"<th>{t if t == 1 or t % 5 == 0 else ''}</th>" for t in rounds)
    rows = []
    for site, row in by_site.items():
        cells = []
        for t in rounds:
            answer = row.get(t, {"answered": None, "outcome": "no member"})
            kind, sign = {True: ("yes", "✓"), False: ("no", "·"), None: ("", "")}[
                answer["answered"]
            ]
            said = html.escape(f"{site}, round {t}: {answer['outcome']}")
            cells.append(f'<td class="{kind}" title="{said}">{sign}</td>')
        rows.append(f"<tr><th scope='row'>{html.escape(site)}</th>{''.join(cells)}</tr>")
    return f"<table class='attendance'><tr><td></td>{head}</tr>{''.join(rows)}</table>"


def _sites(record: dict[str, Any], answers: list[dict[str, Any]]) -> str:
    rows = []
    for site in record["sites"]:
        mine = [answer for answer in answers if answer["site"] == site["site"]]
        missed: dict[str, int] = {}
        for answer in mine:
            if not answer["answered"]:
                missed[answer["outcome"]] = missed.get(answer["outcome"], 0) + 1
        reasons = "; ".join(f"{why} {n}" for why, n in sorted(missed.items())) or "-"
        p = f"{mine[-1]['straggler_prob']:.2f}" if mine else "-"
        cells = (
            site["site"],
            site["examples"],
            site["shareable"],
            sum(answer["answered"] for answer in mine),
            p,
            reasons,
            "yes" if site["present"] else "left",
        )
        rows.append("<tr>" + "".join(f"<td>{html.escape(str(c))}</td>" for c in cells) + "</tr>")
    heads = ("site", "examples", "shareable", "answers", "p at last", "missing because", "member")
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f"<table class='sites'><tr>{head}</tr>{''.join(rows)}</table>"


def _settings(record: dict[str, Any]) -> str:
    facts = {**record["settings"], "epoch": record["epoch"], "commit": record["serial"]}
    facts |= {f"version of {name}": value for name, value in record["versions"].items()}
    return "".join(
        f"<dt>{html.escape(name.replace('_', ' '))}</dt><dd>{html.escape(str(value))}</dd>"
        for name, value in facts.items()
    )
