"""`fedcommons simulate`: a study of your own, on your data, with your model."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcommons import provenance, tracking
from fedcommons.cli import exit_codes, screen, terminal
from fedcommons.cli.options import AsJson, Track, Workers
from fedcommons.cli.reproduce import run_and_report
from fedcommons.errors import ArgumentError
from fedcommons.simulate import cluster as clusters
from fedcommons.simulate import data_record, estimate, feasible, runner, studies, tuning
from fedcommons.simulate.definition import Study
from fedcommons.simulate.folder import Folder, default_path

LONG = 3600.0  # seconds: a study that takes longer is asked about first


def simulate(
    study: Annotated[Path | None, typer.Argument(help="A study file (TOML).")] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Print a study to start from.")
    ] = False,
    runs: Annotated[int | None, typer.Option(help="Runs to average over.")] = None,
    seed: Annotated[int | None, typer.Option(help="Root seed of every random draw.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Results folder; by default results/NAME.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Another dataset: mnist, heart, .csv, .parquet, .npz, a folder."),
    ] = None,
    workers: Workers = None,
    cluster: Annotated[
        str | None, typer.Option(help="A Dask cluster: its scheduler's address, or local:2.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Run it even if it takes more than an hour.")
    ] = False,
    track: Track = None,
    as_json: AsJson = False,
) -> None:
    """Run a study of your own: tables, figures and a report, in a results folder.

    What is interrupted goes on where it was when the same command is given again; more runs are
    added to those that are there. A study that would take more than an hour is asked about first;
    without a terminal it needs --yes (else exit code 2, and nothing is run).

    Example: fedcommons simulate --example > study.toml && fedcommons simulate study.toml
    """
    if example:
        screen.say(*_example().splitlines())
        return
    if study is None:
        raise ArgumentError("study must be given: a file such as --example prints")
    chosen = studies.load(study, data=data)
    chosen = replace(
        chosen,
        runs=chosen.runs if runs is None else runs,
        seed=chosen.seed if seed is None else seed,
    )
    runner.count_workers(workers)  # before anything is written
    tracking.targets(track or ())
    folder = Folder(out if out is not None else default_path(chosen.name))
    if cluster is not None:
        clusters.check(cluster)
    first = tuning.tuning_study(chosen) if chosen.tune else chosen
    feasible.check_fits(first, runner.study_data(first))
    for sentence in _words_of_data(chosen):
        screen.say(f"fedcommons: data: {sentence}", err=True)
    before = Folder(folder.path.with_name(f"{folder.path.name}-tuning"))
    if folder.path.exists():
        _check_opens(folder, chosen)
    if not yes and cluster is None:
        _ask_if_long(chosen, folder, before, workers)
    about: dict[str, Any] = {}
    if chosen.tune:
        _check_opens(folder, chosen)  # before the rates are tried, which takes as long
        chosen, tried = _tuned(chosen, before, workers=workers, cluster=cluster)
        about = {"tuning": tried}
    run_and_report(
        chosen,
        folder,
        workers=workers,
        cluster=cluster,
        track=track,
        as_json=as_json,
        about=about,
        show_lines=True,
    )


def _words_of_data(study: Study) -> list[str]:
    dataset = runner.study_data(replace(study, pool="all", tune=False))
    said: list[str] = data_record.about(dataset).get("data", {}).get("words", [])
    return said


def _example() -> str:
    return (resources.files("fedcommons.simulate") / "example.toml").read_text(encoding="utf-8")


def _ask_if_long(study: Study, folder: Folder, before: Folder, workers: int | None) -> None:
    n_workers = runner.count_workers(workers)
    if study.tune:
        parts = [(tuning.tuning_study(study), before), (tuning.expected(study, folder), folder)]
    else:
        parts = [(study, folder)]
    left = LONG
    total = 0.0
    for part, where in parts:
        n_blocks = _n_missing(part, where)
        total += estimate.seconds(part, n_blocks, n_workers, at_most=left)
        left = max(0.0, LONG - total)
    if total < LONG:
        return
    words = f"this study will take about {estimate.in_words(total)} with {n_workers} processes"
    if not sys.stdin.isatty():
        raise ArgumentError(f"{words}: give --yes to run it, or fewer runs, rounds or settings")
    try:
        agreed = typer.confirm(f"fedcommons: {words}. Run it?")
    except typer.Abort:  # Ctrl-C, or the end of the input
        screen.say("", err=True)
        raise exit_codes.InterruptedCommand from None
    if not agreed:
        raise typer.Exit(exit_codes.INTERRUPTED)


def _check_opens(folder: Folder, study: Study) -> None:
    """Refuse a folder that cannot take the study's results."""
    with folder.opened(tuning.expected(study, folder) if study.tune else study):
        if study.tune:
            tuning.check_same_runs(study, folder)


def _n_missing(study: Study, folder: Folder) -> int:
    if not folder.runs.exists():
        return -(-study.runs // study.block_size)
    with folder.opened(study):  # refuses another study's
        return len(runner.missing_blocks(study, folder))


def _tuned(
    study: Study, folder: Folder, *, workers: int | None, cluster: str | None
) -> tuple[Study, list[dict[str, Any]]]:
    """The study with every line's best rate, from a results folder of its own."""
    tried = tuning.tuning_study(study)
    with folder.opened(tried), terminal.resumable(folder.path):
        folder.begin(tried, provenance.about(provenance.command_line()))
        with terminal.progress(f"{len(tried.curves)} rates to choose from, runs") as bar:
            runner.run_study(tried, folder, workers=workers, cluster=cluster, on_progress=bar)
        chosen, record = tuning.choose(study, folder, len(runner.study_data(tried).y_test))
    for n, which in zip(tuning.at_the_edge(study, chosen), ("smallest", "largest"), strict=True):
        if n:
            screen.say(
                f"fedcommons: the {which} learning_rate was the best of the list for {n} of "
                f"{len(chosen.curves)} curves: a wider list may serve them better",
                err=True,
            )
    return chosen, record
