"""Everything that is made of a results folder's tables: claims, figures and the page."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow

from fedcommons import claims
from fedcommons.figures import captions
from fedcommons.figures.draw import draw_all
from fedcommons.figures.headline import headline
from fedcommons.figures.page import render_page
from fedcommons.simulate import tables, times
from fedcommons.simulate.definition import Study
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.summary import summarise


def write_report(folder: Folder) -> dict[str, Any]:
    """Check the claims, draw the figures and write the page.

    What claims.json holds, under "summary" what a study found that is not the paper's, and under
    "lines" what every line reached in the last round by the main metric, named under "metric"; and
    the same under "clock" for the study that was run along with the paper's, if one was.
    """
    record = folder.record()
    beside = _beside(folder)
    study, table, runs = tables.read(folder)
    checked = {
        "runs": study.runs,
        "claims": [claim.as_dict() for claim in claims.check_all(study, runs)],
    }
    folder.write_text("claims.json", json.dumps(checked, indent=2, allow_nan=False) + "\n")
    found = None if study.is_papers else summarise(study, runs, captions.labels)
    files = draw_all(study, table, folder.figures)
    sites = tables.read_sites(folder, study)
    seconds = times.read(folder, study)
    page = render_page(study, table, checked, record, files, found, sites, seconds, beside)
    folder.write_text("report.html", page)
    summary = {"summary": found.as_dict()} if found else {}
    return {
        "found": headline(study, table, found)[0],
        **checked,
        **summary,
        "metric": study.measured[0].name,
        "lines": _reached(study, folder, seconds),
        **({"clock": beside} if beside else {}),
    }


def _beside(folder: Folder) -> dict[str, Any] | None:
    """What is reported of the study that was run along with this one, if it came to its end."""
    inside = Folder(folder.beside)
    if not (inside.path / "run.json").exists() or not inside.record().get("complete"):
        return None
    return write_report(inside)


def _reached(study: Study, folder: Folder, seconds: pyarrow.Table | None) -> list[dict[str, Any]]:
    """Every line in the last round, by a label that no other line of its figure has.

    Under a clock with "clock", for how long it trained; with a target also "target", how many runs
    "reached" it, and "seconds", those of the median run, or None if that never got there.
    """
    labels = [label for figure in study.figures for label in captions.labels(figure)]
    lines = tables.last_round(folder, study.measured[0].name)
    found = [{**line, "label": label} for line, label in zip(lines, labels, strict=True)]
    if study.clock is not None:
        found = [{**line, "clock": study.clock.seconds} for line in found]
    if seconds is None:
        return found
    return [
        {
            **line,
            "target": row["target"],
            "reached": row["reached"],
            "seconds": row["median"] if math.isfinite(row["median"]) else None,
        }
        for line, row in zip(found, seconds.to_pylist(), strict=True)
    ]
