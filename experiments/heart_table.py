"""The table of docs/heart.md, from the results of experiments/heart.toml.

python experiments/heart_table.py results/heart docs/heart.md
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from fedcommons.simulate.folder import Folder

BEGIN, END = "<!-- results: begin -->\n", "<!-- results: end -->\n"
TITLES = {"rounds-missed": "p = {p:g}", "absences-that-last": "p = {p:g}, lasting"}


def table(folder: Path) -> str:
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
    places = list(dict.fromkeys(place for row in cells.values() for place in row))
    lines = [["", *places], ["---"] * (len(places) + 1)]
    lines += [[label, *(row[place] for place in places)] for label, row in cells.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    found, page = table(Path(sys.argv[1])), Path(sys.argv[2])
    before, rest = page.read_text().split(BEGIN)
    page.write_text(before + BEGIN + found + END + rest.split(END)[1])
