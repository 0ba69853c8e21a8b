"""Studies as TOML files."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons import checks, datasets
from fedcommons.datasets import Dataset, Reading
from fedcommons.errors import ArgumentError, StudyError
from fedcommons.metrics import METRICS
from fedcommons.simulate import grids, models, parsing, recordings, timing
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import FIGURE_NAME, KINDS, MAY_BE_ALL, Figure, Line, Study
from fedcommons.simulate.parsing import CURVE_KEYS, choices, known_keys
from fedcommons.simulate.settings import ALL, parts_of
from fedcommons.simulate.timing import Timing
from fedcommons.tasks.cross_entropy import CrossEntropy
from fedcommons.tasks.losses import LOSSES, has_numbers

LOSS_KEYS = (
    "loss",
    "huber_delta",
    "time_intervals",
    "strata_bins",
    "metrics",
    "metric_rounds",
)
STUDY_KEYS = (
    "name",
    "dataset",
    "clients",
    "class_size",
    "rounds",
    "runs",
    "seed",
    "engine",
    "test_size",
    "tune",
    "tune_runs",
    *LOSS_KEYS,
    "learning_rate",
    "decay",
    "data",
    "clock",
    "figure",
    "grid",
)
FIGURE_KEYS = ("name", "kind", "title", "curves", *CURVE_KEYS)


def load(path: str | os.PathLike[str], *, data: str | None = None) -> Study:
    """Read a study file; with `data`, a name or a path, on that dataset instead of its own."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"study {path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"study {path} is not valid TOML: {error}") from None
    given = None if data is None else str(checks.path("data", data))
    beside = Path(path).parent  # what files are relative to
    try:
        study = parse(content, beside=beside, data=given)
    except (StudyError, ArgumentError) as error:
        raise StudyError(f"study {path}: {error}") from None
    return _with_traces(study, beside)


def data_of(name: str, *, seed: int = 0) -> Dataset:
    """An embedded dataset, the one at this path, or the one that the study file there is on."""
    if Path(name).suffix == ".toml":
        study = load(name)
        numbers = has_numbers(study.loss)
        return datasets.opened(study.dataset, study.data, seed=study.seed, numbers=numbers)
    return datasets.opened(name, seed=seed)


def _with_traces(study: Study, beside: Path) -> Study:
    """The study whose curves know their recordings: where they are, and what is in them."""

    def with_trace(curve: Curve) -> Curve:
        if not curve.trace:
            return curve
        path = str((beside / curve.trace).resolve())
        digest = recordings.digest(path)
        n_clients = np.asarray(recordings.load(path, digest).mask).shape[1]
        if n_clients != study.clients:
            raise StudyError(
                f"clients must be the {n_clients} of the trace {path}, got {study.clients}"
            )
        found = replace(curve, trace=path, trace_digest=digest)
        return replace(found, straggler_prob=float(found.client_probs(n_clients).mean()))

    figures = tuple(
        replace(f, lines=tuple(Line(line.label, with_trace(line.curve)) for line in f.lines))
        for f in study.figures
    )
    return replace(study, figures=figures)


def paper() -> Study:
    """The study of the paper, as it comes with the package."""
    return _packaged("paper.toml")


def paper_by_the_clock() -> Study:
    """What goes with it: seconds instead of rounds."""
    return _packaged("paper_clock.toml")


def _packaged(name: str) -> Study:
    with resources.as_file(resources.files("fedcommons.simulate") / name) as path:
        return load(path)


def parse(
    content: Mapping[str, Any], *, beside: Path | None = None, data: str | None = None
) -> Study:
    """A study from the content of a study file.

    Args:
        beside: the folder that the dataset's path is relative to; without it the dataset is not
            looked at, unless `data` names it.
        data: another dataset than the content's, a name or a path.
    """
    known_keys(content, STUDY_KEYS, "the study")
    if "name" not in content:
        raise StudyError("the study must have the key 'name'")
    shared = {key: content[key] for key in ("learning_rate", "decay") if key in content}
    entries = content.get("figure", [])
    if not isinstance(entries, list):
        raise StudyError(f"figures must be written as [[figure]], got {entries!r}")
    if not isinstance(content.get("dataset", ""), str):
        raise StudyError(f"dataset must be a name or a path, got {content['dataset']!r}")
    settings = {
        key: content[key]
        for key in (
            *("dataset", "clients", "class_size", "rounds", "runs", "seed", "engine"),
            *("test_size", "tune", "tune_runs"),
            *LOSS_KEYS,
        )
        if key in content
    }
    if "clock" in content:
        settings["clock"] = _clock(content["clock"], beside)
        shared = {"policy": "all", "decay": 1.0, **shared}
    settings["data"] = _reading(content.get("data", {}))
    settings |= _lists(settings)
    if settings.get("loss", CrossEntropy.name) != CrossEntropy.name:
        shared["model"] = models.linear_name(settings["loss"])
        settings.setdefault("class_size", ALL)
    for key in MAY_BE_ALL:
        if settings.get(key) == ALL:
            settings[key] = None
    if type(settings.get("tune", False)) is not bool:
        raise StudyError(f"tune must be true or false, got {settings['tune']!r}")
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise StudyError(f"figures must be written as [[figure]], got {entry!r}")
    tune = settings.get("tune", False)
    figures = tuple(_figure(entry, shared) for entry in entries)
    figures += _grid_figures(content.get("grid", []), shared, tune=tune)
    for name, times in Counter(figure.name for figure in figures).items():
        if times > 1:
            raise StudyError(f"figure names must differ, got {name!r} twice")
    rates = {line.curve.learning_rate for figure in figures for line in figure.lines}
    if tune and len(rates) < 2:
        raise StudyError(f"tune must have several values of learning_rate, got {sorted(rates)}")
    settings |= _dataset(settings.get("dataset", "mnist"), beside, data)
    if any(line.curve.is_natural for figure in figures for line in figure.lines):
        settings = {"class_size": None, **settings}
        if "clients" not in settings and "dataset_digest" in settings:
            settings["clients"] = _n_sites(settings)
    study = Study(name=str(content["name"]), figures=figures, **settings)
    return replace(study, parts_digest=_parts_digest(study))


def _lists(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics and the rounds that they are measured after."""
    found: dict[str, Any] = {}
    if "metrics" in settings:
        names = settings["metrics"]
        if not isinstance(names, list | tuple) or not names:
            raise StudyError(f"metrics must be a list of names, got {names!r}")
        found["metrics"] = tuple(names)
    if "metric_rounds" in settings:
        rounds = settings["metric_rounds"]
        last = settings.get("rounds", Study.rounds)
        if rounds == ALL:
            found["metric_rounds"] = None
        elif isinstance(rounds, list | tuple):
            for t in rounds:
                checks.integer("metric_rounds", t, low=0)
                if t > last:
                    raise StudyError(f"metric_rounds must be at most rounds, {last}, got {t}")
            found["metric_rounds"] = tuple(rounds)
        else:
            raise StudyError(f'metric_rounds must be a list of rounds or "{ALL}", got {rounds!r}')
    return found


def _reading(table: Any) -> Reading:
    """How the data are to be read: the table [data]."""
    if not isinstance(table, Mapping):
        raise StudyError(f"data must be written as [data], got {table!r}")
    known_keys(table, [one.name for one in fields(Reading)], "[data]")
    try:
        return Reading(**table)
    except ArgumentError as error:
        raise StudyError(f"[data]: {error}") from None


def _clock(table: Any, beside: Path | None) -> Timing:
    """How the clock runs: the table [clock]."""
    if not isinstance(table, Mapping):
        raise StudyError(f"clock must be written as [clock], got {table!r}")
    known_keys(table, [one.name for one in fields(Timing) if one.name != "digest"], "[clock]")
    try:
        return timing.parse(table).opened(beside)
    except ArgumentError as error:
        raise StudyError(f"[clock]: {error}") from None


def _dataset(name: str, beside: Path | None, data: str | None) -> dict[str, Any]:
    """Which dataset it is: where it is, and what is in it."""
    if (name if data is None else data) in datasets.EMBEDDED:
        return {"dataset": name if data is None else data, "dataset_digest": ""}
    if data is None and beside is None:
        return {"dataset": name}
    path = Path(data) if data is not None else beside / name if beside else Path(name)
    return {"dataset": str(path.resolve()), "dataset_digest": datasets.digest(path)}


def _n_sites(settings: Mapping[str, Any]) -> int:
    """How many sites the data are from: the clients of a natural partition."""
    seed = checks.integer("seed", settings.get("seed", 0), low=0)
    numbers = has_numbers(settings.get("loss", CrossEntropy.name))
    found = datasets.opened(settings["dataset"], settings["data"], seed=seed, numbers=numbers)
    return len(found.sites) or Study.clients  # data without sites are refused later, with advice


def _grid_figures(tables: Any, shared: Mapping[str, Any], *, tune: bool) -> tuple[Figure, ...]:
    if isinstance(tables, Mapping):
        tables = [tables]
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise StudyError(f"a grid must be written as [grid] or [[grid]], got {tables!r}")
    found = grids.figures(grids.curves(tables, shared), tune=tune)
    return tuple(
        Figure(name, "curves", title, tuple(Line(label, curve) for label, curve in lines))
        for name, title, lines in found
    )


def _parts_digest(study: Study) -> str:
    """The SHA-256 of the files that define what comes from elsewhere; empty without any."""
    curves = study.curves
    sources = [
        models.source(name)
        for name in sorted({curve.model for curve in curves} - set(models.NAMES))
    ]
    for field, setting in parsing.SETTINGS.items():
        parts = parts_of(setting)
        if parts is not None:
            names = sorted({getattr(curve, field) for curve in curves})
            sources += [text for name in names if (text := parts.source(name))]
    sources += [text for name in study.metrics if (text := METRICS.source(name))]
    sources += [text for text in (LOSSES.source(study.loss),) if text]
    if not sources:
        return ""
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


def _figure(entry: Mapping[str, Any], shared: Mapping[str, Any]) -> Figure:
    name = entry.get("name")
    where = f"[[figure]] {name!r}"
    known_keys(entry, FIGURE_KEYS, where)
    for key in ("name", "kind", "curves"):
        if key not in entry:
            raise StudyError(f"{where} must have the key {key!r}")
    if entry["kind"] not in KINDS:
        raise StudyError(f"{where}: kind must be one of {', '.join(KINDS)}, got {entry['kind']!r}")
    if not isinstance(name, str) or not FIGURE_NAME.fullmatch(name):
        raise StudyError(
            f"{where}: name must be 1 to 100 letters, digits, '.', '_' or '-': files are named so"
        )
    if not isinstance(entry["curves"], list) or not entry["curves"]:
        raise StudyError(f"{where}: curves must be a list of tables, got {entry['curves']!r}")
    base = {**shared, **{key: entry[key] for key in CURVE_KEYS if key in entry}}
    lines = []
    for written in entry["curves"]:
        if not isinstance(written, Mapping):
            raise StudyError(f"{where}: each curve must be a table, got {written!r}")
        known_keys(written, ("label", *CURVE_KEYS), f"a curve of {where}")
        if "label" not in written:
            raise StudyError(f"a curve of {where} must have the key 'label'")
        parsing.check_values({**base, **written}, where)
        for choice in choices({**base, **written}):
            lines.append(Line(str(written["label"]), parsing.curve(choice, where)))  # noqa: PERF401
    return Figure(str(name), entry["kind"], str(entry.get("title", name)), tuple(lines))
