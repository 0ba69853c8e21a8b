"""The tables of docs/heart.md, from the results of experiments/heart.toml.

python experiments/heart_table.py results/heart docs/heart.md
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from fedcommons.simulate.folder import Folder

TITLES = {"rounds-missed": "p = {p:g}", "absences-that-last": "p = {p:g}, lasting"}
OF_HOSPITALS = "absences-that-last", 0.7


def of_methods(folder: Path) -> str:
    """A row for each method, a column for each setting: mean accuracy, and the lowest of a run."""
    reached: dict[str, list[float]] = {}
    for row in pq.read_table(folder / "runs.parquet").to_pylist():
        reached.setdefault(row["curve"], []).append(row["final_accuracy"])
    cells: dict[str, dict[str, str]] = {}
    for figure in Folder(folder).study().figures:
        for line in figure.lines:
            found = reached[line.curve.key]
            place = TITLES[figure.name].format(p=line.curve.straggler_prob)
            cell = f"{np.mean(found):.3f} ({min(found):.3f})"
            cells.setdefault(line.label, {})[place] = cell
    return _written(cells)


def of_hospitals(folder: Path) -> str:
    """A row for each method, a column for each hospital: mean accuracy in one setting."""
    name, p = OF_HOSPITALS
    study = Folder(folder).study()
    (figure,) = (one for one in study.figures if one.name == name)
    label = {x.curve.key: x.label for x in figure.lines if x.curve.straggler_prob == p}
    cells: dict[str, dict[str, str]] = {one: {} for one in label.values()}
    for row in pq.read_table(folder / "sites.parquet").to_pylist():
        is_last = row["round"] == study.rounds and row["metric"] == "accuracy"
        if is_last and row["curve"] in label:
            cells[label[row["curve"]]][row["site"]] = f"{row['mean']:.3f}"
    for row in pq.read_table(folder / "curves.parquet").to_pylist():
        if (row["figure"], row["p"], row["round"]) == (name, p, study.rounds):
            worst = row["worst_site_accuracy_mean"]
            cells[row["label"]]["worst hospital of each run"] = f"{worst:.3f}"
    return _written(cells)


TABLES = {"results": of_methods, "hospitals": of_hospitals}


def _written(cells: dict[str, dict[str, str]]) -> str:
    places = list(dict.fromkeys(place for row in cells.values() for place in row))
    lines = [["", *places], ["---"] * (len(places) + 1)]
    lines += [[label, *(row[place] for place in places)] for label, row in cells.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def put(page: str, folder: Path) -> str:
    """The page with its tables made anew."""
    for name, table in TABLES.items():
        before, rest = page.split(f"<!-- {name}: begin -->\n")
        after = rest.split(f"<!-- {name}: end -->\n")[1]
        found = table(folder)
        page = f"{before}<!-- {name}: begin -->\n{found}<!-- {name}: end -->\n{after}"
    return page


if __name__ == "__main__":
    page = Path(sys.argv[2])
    page.write_text(put(page.read_text(), Path(sys.argv[1])))
