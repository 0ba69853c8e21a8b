"""Drawing every figure of a study from its table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow
from matplotlib.figure import Figure as Picture

from fedcommons.errors import ResultsError
from fedcommons.figures import series, style
from fedcommons.figures.captions import OF_METRICS
from fedcommons.figures.plots import PLOTS
from fedcommons.simulate.definition import Study


def draw_all(study: Study, table: pyarrow.Table, folder: Path) -> dict[str, str]:
    """Write each figure as PNG and SVG, of the main metric; figure name -> the SVG's name.

    Other metrics get files of their own, with their name at the end.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ResultsError(f"folder {folder} cannot be written: {error}") from None
    files = {}
    for figure in study.figures:
        with style.applied():
            lines = [replace(s, label=style.words(s.label)) for s in series.read(figure, table)]
            for metric in study.measured if figure.kind in OF_METRICS else study.measured[:1]:
                is_main = metric == study.measured[0]
                name = figure.name if is_main else f"{figure.name}-{metric.name}"
                _save(PLOTS[figure.kind](figure, lines, metric), folder / name)
        files[figure.name] = f"{folder.name}/{figure.name}.svg"
    return files


def _save(picture: Picture, file: Path) -> None:
    """As PNG and SVG, which share one layout; `file` is without its suffix."""
    picture.draw_without_rendering()
    picture.set_layout_engine("none")
    for suffix in ("png", "svg"):
        metadata = {"Date": None} if suffix == "svg" else None
        path = file.with_name(f"{file.name}.{suffix}")
        try:
            picture.savefig(path, metadata=metadata)
        except OSError as error:
            raise ResultsError(f"{path} cannot be written: {error}") from None
