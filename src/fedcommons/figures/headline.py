"""The one sentence of a study's page, and the figure that it is about."""

from __future__ import annotations

import pyarrow

from fedcommons.figures import series
from fedcommons.figures.captions import OF_METRICS
from fedcommons.metrics import Metric
from fedcommons.simulate.definition import Figure, Study
from fedcommons.simulate.findings import listed
from fedcommons.simulate.ranking import Setting
from fedcommons.simulate.summary import Summary

SOON = 10  # rounds: where methods differ most
PAPERS = {  # figure -> its lines, and what they are in words
    "beyond-single-class": {
        "both, warm": "with this project’s code and memory",
        "paper": "with the paper’s method",
        "responder average": "with the average over who answers",
        "nobody missing": "with nobody missing",
    },
    "figure2": {
        "(0.5, 3)": "with half of the examples shared",
        "no sharing": "without sharing",
        "IID": "on IID data",
    },
    "figure1": {
        "(0.5, 3)": "with half of the examples shared",
        "no sharing": "without sharing",
        "IID": "on IID data",
    },
}


def headline(study: Study, table: pyarrow.Table, summary: Summary | None) -> tuple[str, Figure]:
    """What was found, in a sentence, and where it is seen; the sentence may be empty."""
    if study.is_papers:
        for name, lines in PAPERS.items():
            for figure in study.figures:
                if figure.name == name and (words := _of_paper(figure, table, lines)):
                    return words, figure
    first = next((f for f in study.figures if f.kind in OF_METRICS), study.figures[0])
    if summary is None or not summary.settings:
        return "", first
    lead = next(f for f in study.figures if f.name == summary.settings[0].figure)
    if study.target is not None and summary.sentences:
        return summary.sentences[0], lead  # on seconds to the target
    return _of_summary(summary, study.measured[0]), lead


def _of_paper(figure: Figure, table: pyarrow.Table, lines: dict[str, str]) -> str:
    """What each line reached after ten rounds where most are missing; empty if one is not there."""
    p, found = list(series.panels(series.read(figure, table)).items())[-1]
    of_label = {s.label: s for s in found}
    if not set(lines) <= set(of_label):
        return ""
    t = min(SOON, len(found[0].mean("accuracy")) - 1)
    reached = [
        f"{of_label[label].mean('accuracy')[t]:.3f} {words}" for label, words in lines.items()
    ]
    where = "single-class data" if "1" not in figure.name else "Dirichlet data"
    return (
        f"On {where}, when each client misses a round with probability {p:g}, the accuracy after "
        f"{t} rounds is {listed(reached)}."
    )


def _of_summary(summary: Summary, main: Metric) -> str:
    """The first sentence of a summary; of a single setting with its numbers."""
    if len(summary.settings) == 1 and len(summary.settings[0].ranks) > 1:
        return _of_setting(summary.settings[0], main)
    return summary.sentences[0] if summary.sentences else ""


def _of_setting(setting: Setting, main: Metric) -> str:
    best, second, *_ = setting.ranks
    found = f"{best.label} is best, with {main.title} {main.with_half(best.mean, best.half)}"
    if second.behind is None:
        return f"{found}; next is {second.label}."
    tied = [rank.label for rank in setting.ranks[1:] if rank.as_good]
    if tied:
        return f"{found}, but {listed(tied)} cannot be told from it."
    ahead = main.with_half(second.behind, second.behind_half)
    return f"{found}: {ahead} better than {second.label}, the next."
