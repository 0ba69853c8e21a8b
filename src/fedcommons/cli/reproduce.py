"""`fedcommons reproduce`: the paper's experiment, its figures and its claims."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcommons import provenance, tracking
from fedcommons.cli import screen, terminal
from fedcommons.cli.options import AsJson, Track, Workers
from fedcommons.errors import StudyError
from fedcommons.simulate import (
    data_record,
    feasible,
    runner,
    running,
    studies,
    study_events,
    tables,
)
from fedcommons.simulate.definition import Study
from fedcommons.simulate.folder import Folder, default_path


def reproduce(
    runs: Annotated[
        int | None, typer.Option(help="Runs to average over; the paper has 1000.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Communication rounds of a run.")] = None,
    seed: Annotated[int | None, typer.Option(help="Root seed of every random draw.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Results folder; by default results/NAME of the study.")
    ] = None,
    figure: Annotated[
        list[str] | None, typer.Option(help="Only this figure; may be given several times.")
    ] = None,
    curves: Annotated[
        list[str] | None,
        typer.Option(help="Only lines with this label; may be given several times."),
    ] = None,
    study: Annotated[
        Path | None, typer.Option(help="A study file instead of the paper's own.")
    ] = None,
    workers: Workers = None,
    track: Track = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper on MNIST: figures, claims and a report, in a results folder.

    What is interrupted goes on where it was when the same command is given again; more runs are
    added to those that are there. The default takes about two minutes on two cores. Along with the
    whole study goes one by the clock, in the folder clock inside: as many runs, but at most its own
    number.

    Example: fedcommons reproduce --runs 1000 --figure figure1 --figure figure2 --out results/full
    """
    chosen = studies.load(study) if study else studies.paper()
    if chosen.tune:
        raise StudyError(f"study {study}: tune is for fedcommons simulate")
    chosen = replace(
        chosen,
        runs=chosen.runs if runs is None else runs,
        rounds=chosen.rounds if rounds is None else rounds,
        seed=chosen.seed if seed is None else seed,
    )
    if figure:
        chosen = chosen.only(figure)
    if curves:
        chosen = chosen.only_lines(curves)
    folder = Folder(default_path(chosen.name) if out is None else out)
    whole = study is None and not figure and not curves and rounds is None
    beside = _by_the_clock(runs, seed) if whole else None
    run_and_report(chosen, folder, workers=workers, track=track, as_json=as_json, beside=beside)


def _by_the_clock(runs: int | None, seed: int | None) -> Study:
    found = studies.paper_by_the_clock()
    return replace(
        found,
        runs=found.runs if runs is None else min(runs, found.runs),
        seed=found.seed if seed is None else seed,
    )


def run_and_report(
    study: Study,
    folder: Folder,
    *,
    workers: int | None,
    as_json: bool,
    track: Sequence[str] | None = None,
    cluster: str | None = None,
    about: Mapping[str, Any] | None = None,
    show_lines: bool = False,
    beside: Study | None = None,
) -> None:
    """Run what is missing, then make the tables, claims, figures and page.

    `about` goes into run.json as well; `show_lines` prints what every line reached; `beside` is a
    study that is run along with it, in a folder inside.
    """
    from fedcommons.figures.report import write_report  # matplotlib is slow to import

    targets = tracking.targets(track or ())  # before anything is run
    runner.count_workers(workers)
    dataset = runner.study_data(study)
    feasible.check_fits(study, dataset)
    start = time.perf_counter()
    with folder.opened(study), terminal.resumable(folder.path):
        origin = provenance.about(provenance.command_line())
        folder.begin(study, {**origin, **data_record.about(dataset), **(about or {})})
        what = f"{len(study.curves)} curves x {study.rounds} rounds, runs"
        with terminal.progress(what) as bar, _tracked(study, folder, targets) as tracked:

            def advance(done: int, total: int) -> None:
                bar(done, total)
                tracked(done)

            fresh = runner.run_study(
                study, folder, workers=workers, cluster=cluster, on_progress=advance
            )
        tables.build(study, folder, dataset)
        if beside is not None:
            with terminal.progress(f"{len(beside.curves)} curves by the clock, runs") as bar:
                running.complete(
                    beside, Folder(folder.beside), origin, workers=workers, on_progress=bar
                )
        seconds = time.perf_counter() - start
        folder.finish(study, seconds=round(seconds, 1), fresh_runs=fresh)
        reported = write_report(folder)
    if as_json:
        terminal.print_json(folder.path, reported)
        return
    terminal.print_report(reported, lines_by=study.measured[0] if show_lines else None)
    runs = terminal.count(fresh, "run")
    screen.say(f"{runs} in {seconds:.0f} s. Open {folder.path / 'report.html'}")


@contextlib.contextmanager
def _tracked(
    study: Study, folder: Folder, targets: Sequence[tracking.Target]
) -> Iterator[Callable[[int], None]]:
    """Call it with the number of finished runs; at the end the curves are tracked, too."""
    if not targets:
        yield lambda _done: None
        return
    from fedcommons.figures.captions import labels

    tracker = tracking.Tracker(targets, study_events.about(study))
    events = study_events.StudyEvents(study, folder, labels)
    try:
        yield lambda done: tracker.send(events.progress(done))
        tracker.send(events.curves())
    finally:
        tracker.close()
