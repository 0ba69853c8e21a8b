"""Everything that is made of a results folder's tables: claims, figures and the page."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow

from fedcommons.errors import ResultsError
from fedcommons.figures.draw import draw_all
from fedcommons.figures.page import render_page
from fedcommons.simulate import claims
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.studies import Study


def write_report(folder: Folder) -> dict[str, Any]:
    """Check the claims, draw the figures and write the page; what claims.json holds."""
    record = folder.record()
    table, runs = folder.read_table("curves.parquet"), folder.read_table("runs.parquet")
    study = _as_tabulated(folder.study(), table, runs, folder)
    checked = {
        "runs": study.runs,
        "claims": [claim.as_dict() for claim in claims.check_all(study, runs)],
    }
    folder.write_text("claims.json", json.dumps(checked, indent=2, allow_nan=False) + "\n")
    files = draw_all(study, table, folder.figures)
    folder.write_text("report.html", render_page(study, table, checked, record, files))
    return checked


def _as_tabulated(study: Study, table: pyarrow.Table, runs: pyarrow.Table, folder: Folder) -> Study:
    """The study with the number of runs that the tables hold: a longer one may be under way."""
    rows = Counter(table["figure"].to_pylist())
    for figure in study.figures:
        if rows[figure.name] != len(figure.lines) * (study.rounds + 1):
            raise ResultsError(
                f"{folder.path / 'curves.parquet'} must hold figure {figure.name} whole, got "
                f"{rows[figure.name]} rows; run the study to its end first"
            )
    return replace(study, runs=runs.num_rows // len(study.curves))
