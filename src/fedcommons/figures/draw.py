"""Drawing every figure of a study from its table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow

from fedcommons.errors import ResultsError
from fedcommons.figures import series, style
from fedcommons.figures.plots import PLOTS
from fedcommons.simulate.definition import Study


def draw_all(study: Study, table: pyarrow.Table, folder: Path) -> dict[str, str]:
    """Write each figure as PNG and SVG; figure name -> the SVG's name."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ResultsError(f"folder {folder} cannot be written: {error}") from None
    files = {}
    for figure in study.figures:
        with style.applied():
            lines = [replace(s, label=style.words(s.label)) for s in series.read(figure, table)]
            picture = PLOTS[figure.kind](figure, lines)
            for suffix in ("png", "svg"):
                metadata = {"Date": None} if suffix == "svg" else None
                file = folder / f"{figure.name}.{suffix}"
                try:
                    picture.savefig(file, metadata=metadata)
                except OSError as error:
                    raise ResultsError(f"{file} cannot be written: {error}") from None
        files[figure.name] = f"{folder.name}/{figure.name}.svg"
    return files
