"""A results folder as one self-contained interactive page: no network, no libraries.

Its words are here, in captions.py and in page_template.html; page_figures.js draws the figures
from embedded JSON.
"""

from __future__ import annotations

import json
import math
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from fedcommons import shown
from fedcommons.figures import captions, series, style
from fedcommons.figures.captions import OF_METRICS
from fedcommons.figures.claims_section import claims_section, count, tally
from fedcommons.figures.headline import headline
from fedcommons.figures.markup import Markup, joined, markup, packaged, text
from fedcommons.figures.site_table import site_tables
from fedcommons.figures.summary_section import summary_section
from fedcommons.figures.time_table import time_table
from fedcommons.metrics import Metric
from fedcommons.simulate.curve_fields import setting_words
from fedcommons.simulate.definition import PAPER, PAPER_CLOCK, Figure, Study
from fedcommons.simulate.summary import Summary
from fedcommons.simulate.tables import worst_site

SCRIPTS = ("page_charts.js", "page_figures.js", "page.js")
COLUMNS = {  # what each kind of figure draws beside metrics
    "curves": ("second_moment", "second_moment_exact"),
    "scalar-products": ("type1", "type2", "gradient_norm2"),
    "heterogeneity": (
        "heterogeneity_before",
        "heterogeneity_after",
        "heterogeneity_after_expected",
    ),
    "second-moment": (
        *("second_moment", "second_moment_exact"),
        *("reduction", "reduction_expected", "remark_bound", "theorem2_bound"),
    ),
    "grid": (),
}
TITLES = {
    PAPER: "The paper, reproduced and taken further",
    PAPER_CLOCK: "By the clock: seconds to an accuracy",
}
BESIDE = (
    '<p class="beside"><a href="clock/report.html">By the clock</a>, in seconds instead of rounds: '
    "$found Of $n about that, $hold.</p>"
)
PAPERS_CURVES = Markup(
    "<p>Which curves are drawn is this project’s choice: the legends of the paper’s figures are "
    "not in its source text. The study file sets them.</p>"
)


def render_page(
    study: Study,
    table: pyarrow.Table,
    claims: dict[str, Any],
    record: dict[str, Any],
    figure_files: Mapping[str, str],
    summary: Summary | None = None,
    sites: pyarrow.Table | None = None,
    times: pyarrow.Table | None = None,
    beside: Mapping[str, Any] | None = None,
) -> Markup:
    """The page of a results folder.

    Args:
        study: what was run.
        table: curves.parquet.
        claims: claims.json.
        record: run.json.
        figure_files: name of a figure -> path of its SVG, relative to the page.
        summary: what a study found that is not the paper's.
        sites: sites.parquet, where sites are known.
        times: times.parquet, where a clock has a target.
        beside: what is reported of the study by the clock in the folder inside, if there is one.
    """

    def under(figure: Figure) -> Markup:
        """The tables under a figure."""
        found = []
        if sites is not None:
            found.append(site_tables(figure, sites, study.measured))
        if times is not None:
            found.append(time_table(figure, captions.labels(figure), times, study.measured[0]))
        return joined(found)

    sentence, leading = headline(study, table, summary)
    lead: list[Markup] = []
    rest: list[Markup] = []
    for group in _groups(study):
        (lead if leading in group else rest).append(
            _group(study, group, figure_files, table, under)
        )
    return markup(
        packaged("page_template.html"),
        title=TITLES.get(study.name, study.name),
        css=style.page_css(),
        script=joined((packaged(name) for name in SCRIPTS), "\n"),
        data=json_for_script(
            [_figure_data(figure, table, study.measured) for figure in study.figures]
        ),
        header=_header(study),
        found=markup('<p class="found">$words</p>', words=sentence) if sentence else "",
        tally=tally(claims),
        beside=_beside(beside) if beside else "",
        idea=packaged("page_idea.html") if study.is_papers else "",
        lead=joined(lead, "\n"),
        summary=summary_section(summary, study.measured[0]) if summary else "",
        contents=_contents(study, claims),
        figures=joined(rest, "\n"),
        claims=claims_section(claims),
        command=shown.without_folders(record.get("command", "")),
        choice=PAPERS_CURVES if study.is_papers else "",
        facts=_facts(study, record),
    )


def json_for_script(content: Any) -> Markup:
    """JSON from which no text can break out of a script element."""
    found = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&\x7f":
        found = found.replace(character, f"\\u{ord(character):04x}")
    return Markup(found)


def _beside(reported: Mapping[str, Any]) -> Markup:
    """Where the study by the clock is, and what it found."""
    verdicts = [claim["verdict"] for claim in reported["claims"]]
    n, holding = len(verdicts), verdicts.count("holds")
    words = f"{holding} hold{'s' if holding == 1 else ''}"
    return markup(BESIDE, found=reported["found"], n=count(n, "claim"), hold=words)


def _figure_data(figure: Figure, table: pyarrow.Table, metrics: Sequence[Metric]) -> dict[str, Any]:
    """What page_figures.js draws of a figure; a value that is not there is null."""
    metrics = metrics if figure.kind in OF_METRICS else ()
    names = [metric.name for metric in metrics]
    at_worst = [name for n in names if f"{(name := worst_site(n))}_mean" in table.column_names]
    columns = (*names, *at_worst, *COLUMNS[figure.kind])
    lines = []
    for line in series.read(figure, table):
        curve = line.curve
        lines.append(
            {
                "label": shown.plain(line.label),
                "p": curve.straggler_prob,
                "c": curve.proportion,
                "d": curve.copies,
                "always": line.always,
                "reference": line.reference,
                "rounds": line.columns["round"].tolist(),
                **_of_clock(line),
                "values": {
                    name: {
                        "mean": [_number(v) for v in line.mean(name)],
                        "half": [_number(v) for v in line.interval(name)],
                    }
                    for name in columns
                },
            }
        )
    return {
        "kind": figure.kind,
        "title": shown.plain(figure.title),
        "metrics": [
            {
                "name": metric.name,
                "title": metric.heading,
                "higher": metric.higher_is_better,
                "proportion": metric.is_proportion,
            }
            for metric in metrics
        ],
        "sites": bool(at_worst),
        "lines": lines,
    }


def _of_clock(line: series.Series) -> dict[str, Any]:
    """Over what else a line's numbers stand: seconds, and ticks of its own."""
    if not line.clocked:
        return {}
    ticks = np.round(np.nan_to_num(line.columns["ticks_mean"]), 1)
    return {"seconds": line.times.tolist(), "ticks": ticks.tolist()}


def _number(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _groups(study: Study) -> list[list[Figure]]:
    """Neighbouring figures that differ in the setting alone, to switch between."""

    def likeness(figure: Figure) -> tuple[Any, ...]:
        if figure.kind != "curves":
            return (figure.name,)
        return tuple((line.label, line.curve.straggler_prob) for line in figure.lines)

    return [list(members) for _, members in groupby(study.figures, key=likeness)]


def _group(
    study: Study,
    members: list[Figure],
    figure_files: Mapping[str, str],
    table: pyarrow.Table,
    under: Callable[[Figure], Markup],
) -> Markup:
    sections = joined(
        (_section(study, figure, figure_files, table, under) for figure in members), "\n"
    )
    return markup('<div class="group">\n$sections\n</div>', sections=sections)


def _section(
    study: Study,
    figure: Figure,
    figure_files: Mapping[str, str],
    table: pyarrow.Table,
    under: Callable[[Figure], Markup],
) -> Markup:
    index, anchor = study.figures.index(figure), _anchor(figure)
    settings = dict.fromkeys(setting_words(line.curve) for line in figure.lines)
    option = next((name for name in reversed(settings) if name != "IID"), "IID")
    path = urllib.parse.quote(figure_files[figure.name])
    bands = (
        f"Means of {study.runs:,} runs; bands and ± are 95 % confidence intervals."
        if study.runs > 1
        else "A single run, hence no confidence intervals."
    )
    clocked = study.clock is not None
    caption = f"{captions.caption(figure.kind, study.measured, clocked=clocked)} {bands}"
    return markup(
        '<section class="figure" id="$anchor" data-index="$index" '
        'data-option="$option" aria-labelledby="$anchor-title">\n'
        '<h2 id="$anchor-title">$title '
        '<a class="link" href="#$anchor" aria-label="Link to this figure">#</a></h2>\n'
        '<p class="caption">$caption$diverged</p>\n<div class="plot"></div>\n'
        '<noscript><img src="$path" alt="$alternative"></noscript>\n'
        '<div class="foot">$under$described<a href="$path" download>Download as SVG</a>'
        '<a class="as-csv needs-script" href="#">Download as CSV</a></div>\n'
        "</section>",
        anchor=anchor,
        index=index,
        option=option,
        title=_title(figure),
        caption=caption,
        diverged=_diverged(figure, table),
        path=path,
        alternative=figure.title,
        described=_described_lines(figure),
        under=under(figure),
    )


def _diverged(figure: Figure, table: pyarrow.Table) -> Markup:
    lost = [
        f"{count(s.diverged, 'run')} of {s.label} at p = {s.curve.straggler_prob:g}"
        for s in series.read(figure, table)
        if s.diverged
    ]
    said = " <b>Diverged, and left out of the means:</b> $lost."
    return markup(said, lost=", ".join(lost)) if lost else Markup()


def _anchor(figure: Figure) -> str:
    return "fig-" + "-".join(figure.name.split())


def _title(figure: Figure) -> Markup:
    return Markup(text(figure.title).replace(" = ", "&nbsp;=&nbsp;"))


def _described_lines(figure: Figure) -> Markup:
    if figure.kind != "curves":
        return Markup()
    items = joined(
        markup("<li><b>$label</b>: $words</li>", label=label, words=words)
        for label, words in captions.descriptions(figure).items()
    )
    block = "<details><summary>What each line is</summary><ul>$items</ul></details>"
    return markup(block, items=items)


def _header(study: Study) -> Markup:
    ways = len(study.curves)
    return Markup(
        f"<b>{count(study.runs, 'run')}</b> of <b>{_length(study)}</b> with "
        f"<b>N = {study.clients}</b> clients and {_examples(study)}, "
        f"from <b>seed {study.seed}</b>."
        + (f" {ways} ways to train, compared on the same data." if ways > 1 else "")
    )


def _length(study: Study) -> str:
    if study.clock is None:
        return count(study.rounds, "round")
    return f"{study.clock.seconds:,g} seconds by the clock"


def _examples(study: Study) -> Markup:
    dataset = {"mnist": "MNIST"}.get(study.dataset, Path(study.dataset).name)
    if not study.class_size:
        return markup("<b>all</b> training examples of $dataset", dataset=dataset)
    words = "<b>K = $size</b> examples of each class of $dataset, drawn anew in each run"
    return markup(words, size=study.class_size, dataset=dataset)


def _contents(study: Study, claims: dict[str, Any]) -> Markup:
    links: list[tuple[str, str]] = [(_anchor(figure), _title(figure)) for figure in study.figures]
    links += [("claims", "The claims")] if claims["claims"] else []
    links += [("again", "Run it again")]
    return joined(markup('<li><a href="#$to">$words</a></li>', to=to, words=w) for to, w in links)


def _facts(study: Study, record: Mapping[str, Any]) -> Markup:
    facts = {"study": f"{study.name}, digest {record['digest'][:12]}"}
    if record.get("commit"):
        facts["commit"] = record["commit"]
    for key in ("versions", "machine"):
        if key in record:
            facts[key] = ", ".join(f"{name} {entry}" for name, entry in record[key].items())
    if "data" in record:
        facts["data"] = shown.without_folders("; ".join(record["data"].get("words", ())))
    if "seconds" in record:  # not before the study's first end
        facts["time"] = f"{record['seconds']:,.1f} seconds"
    return joined(markup("<dt>$k</dt><dd>$v</dd>", k=k, v=v) for k, v in facts.items())
