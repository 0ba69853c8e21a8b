"""Running a study from Python: from the study to its tables."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow

from fedcommons import checks, provenance, shown
from fedcommons.simulate import data_record, feasible, runner, studies, tables, tuning
from fedcommons.simulate.definition import Study
from fedcommons.simulate.folder import Folder

logger = shown.logger(__name__)

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Results:
    """What a study found.

    Attributes:
        study: what was run; with the rates that were chosen, if it was to tune them.
        curves: a row for each figure, line and round: means over the runs and standard errors.
        runs: a row for each run and curve: what paired comparisons are made of.
        path: the results folder; None if it was not kept.
    """

    study: Study
    curves: pyarrow.Table
    runs: pyarrow.Table
    path: Path | None


def study(
    name: str,
    *,
    grid: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    data: str | os.PathLike[str] = "mnist",
    reading: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Study:
    """A study whose lines are every combination of the lists in a grid, or in several.

    The keys of `grid` and of `settings` are those of a study file (docs/studies.md): for example
    `study("mine", grid={"partition": "iid", "p": [0.3, 0.7]}, clients=20, rounds=30, runs=5)`.
    `data` is a dataset's name or path, and `reading` the file's table [data]: how it is read.
    """
    tables = [dict(grid)] if isinstance(grid, Mapping) else [dict(table) for table in grid]
    content = {"name": name, "grid": tables, "data": dict(reading or {}), **settings}
    return studies.parse(content, data=str(checks.path("data", data)))


def run(
    study: Study | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    on_progress: Progress = lambda _done, _total: None,
) -> Results:
    """Run a study, or what is missing of it, and return its tables.

    Args:
        study: one that `study` or `studies.load` made, or the path of a study file.
        out: the results folder, as the command line writes them; the same call goes on where an
            interrupted one stopped. None keeps nothing.
        workers: processes; by default one a core. Parts that were only registered in this process
            need 1.
        cluster: a Dask cluster to work on instead (`simulate.cluster`).
        on_progress: called with the runs that are done and their total number.
    """
    chosen = study if isinstance(study, Study) else studies.load(study)
    with ExitStack() as stack:
        kept = None if out is None else checks.path("out", out)
        path = kept or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "results"
        options = {"workers": workers, "cluster": cluster, "on_progress": on_progress}
        about: dict[str, Any] = provenance.about(["fedcommons.simulate.run"])
        if chosen.tune:
            chosen, tried = tune(chosen, path.with_name(f"{path.name}-tuning"), about, **options)
            about = {**about, "tuning": tried}
        folder = Folder(path)
        complete(chosen, folder, about, **options)
        found, curves, runs = tables.read(folder)
    return Results(found, curves, runs, kept)


def tune(
    study: Study, path: Path, about: Mapping[str, Any], **options: Any
) -> tuple[Study, list[dict[str, Any]]]:
    """The study with every line's best rate, tried in a results folder of its own; all tried."""
    tried, folder = tuning.tuning_study(study), Folder(path)
    feasible.check_fits(tried, runner.study_data(tried))
    with folder.opened(tried):
        folder.begin(tried, dict(about))
        runner.run_study(tried, folder, **options)
        return tuning.choose(study, folder, len(runner.study_data(tried).y_test))


def complete(study: Study, folder: Folder, about: Mapping[str, Any], **options: Any) -> int:
    """Do the runs that are missing and make the tables; how many runs that were.

    `about` goes into run.json; `options` are those of `runner.run_study`.
    """
    dataset, start = runner.study_data(study), time.perf_counter()
    feasible.check_fits(study, dataset)
    with folder.opened(study):
        found = data_record.about(dataset)
        for note in found.get("data", {}).get("notes", ()):
            logger.warning("%s", note)
        folder.begin(study, {**about, **found})
        fresh = runner.run_study(study, folder, **options)
        tables.build(study, folder, dataset)
        folder.finish(study, seconds=round(time.perf_counter() - start, 1), fresh_runs=fresh)
    return fresh
