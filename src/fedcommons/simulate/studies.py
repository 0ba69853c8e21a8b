"""A study: what to run and which figures to make of it, from a TOML file."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons import checks, datasets
from fedcommons.errors import ArgumentError, StudyError
from fedcommons.simulate import batched, grids, models, parsing, recordings
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.parsing import CURVE_KEYS, choices, known_keys
from fedcommons.simulate.settings import ALL, parts_of

ENGINES = ("example-space", "batched", "primal")
POOLS = ("all", "tuning", "tuned")
KINDS = ("curves", "scalar-products", "grid", "heterogeneity", "second-moment")
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
    "learning_rate",
    "decay",
    "figure",
    "grid",
)
EXAMPLE_SPACE_UP_TO = 500  # examples of a class: above that the products of all pairs are too many
MAY_BE_ALL = ("class_size", "test_size")  # examples of a class, and to test on
FIGURE_KEYS = ("name", "kind", "title", "curves", *CURVE_KEYS)
ENGINE_VERSION = 8  # raised when the numbers that a study gives change
FIGURE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a figure: a curve and how the figure calls it."""

    label: str
    curve: Curve


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: its kind says how its lines are drawn."""

    name: str
    kind: str
    title: str
    lines: tuple[Line, ...]

    @property
    def needs_theory(self) -> bool:
        return self.kind in ("scalar-products", "second-moment")


@dataclass(frozen=True)  # without slots: what follows from many lines is computed once
class Study:
    """Everything that decides the results, and the figures to draw of them."""

    name: str
    figures: tuple[Figure, ...]
    dataset: str = "mnist"
    clients: int = 10
    class_size: int | None = 30
    rounds: int = 50
    runs: int = 10
    seed: int = 0
    engine: str = "example-space"
    dataset_digest: str = ""
    test_size: int | None = None
    tune: bool = False
    tune_runs: int = 3
    pool: str = "all"
    parts_digest: str = ""

    def __post_init__(self) -> None:
        for name, low in (
            ("clients", 1),
            ("rounds", 1),
            ("runs", 1),
            ("seed", 0),
            ("tune_runs", 1),
        ):
            checks.integer(name, getattr(self, name), low=low)
        for name in MAY_BE_ALL:
            if getattr(self, name) is not None:
                checks.integer(name, getattr(self, name), low=1)
        if self.pool not in POOLS:
            raise ArgumentError(f"pool must be one of {', '.join(POOLS)}, got {self.pool!r}")
        if self.engine not in ENGINES:
            raise ArgumentError(f"engine must be one of {', '.join(ENGINES)}, got {self.engine!r}")
        self._check_engine()
        if not self.figures:
            raise ArgumentError("figure or grid must be given at least once, got none")
        for curve in self._lines_curves():
            if curve.copies > self.clients - 1:
                raise ArgumentError(
                    f"d must be in {{0, ..., {self.clients - 1}}} for {self.clients} clients, "
                    f"got {curve.copies}"
                )
            if curve.algorithm == "fractional_repetition" and self.clients % (curve.copies + 1):
                raise ArgumentError(
                    f"d + 1 must divide the {self.clients} clients for fractional_repetition, "
                    f"got d = {curve.copies}"
                )

    def _check_engine(self) -> None:
        if self.engine != "example-space" and self.theory_curves:
            raise ArgumentError(
                "engine must be example-space for figures of the kinds scalar-products and "
                f"second-moment, got {self.engine}"
            )
        for curve in self._lines_curves() if self.engine == "primal" else self.theory_curves:
            if not curve.in_example_space:
                raise ArgumentError(
                    "the primal engine and figures of the kinds scalar-products and second-moment "
                    "are for softmax, coded_gd, full batches and a known p, the "
                    f"same for all clients, got {curve.key}"
                )

        for curve in self.theory_curves:
            if (curve.code, curve.estimator) != ("equal-split", "coded_sum"):
                raise ArgumentError(
                    "figures of the kinds scalar-products and second-moment are for the code and "
                    "the estimator of the theory, equal-split and coded_sum, got "
                    f"{curve.code} and {curve.estimator}"
                )

    @cached_property
    def batched_curves(self) -> tuple[Curve, ...]:
        """The curves for the batched engine: what the paper's setting is too narrow for."""
        if self.engine == "primal":
            return ()
        large = self.class_size is None or self.class_size > EXAMPLE_SPACE_UP_TO
        asked = self.theory_curves
        return tuple(
            curve
            for curve in self.curves
            if self.engine == "batched"
            or not curve.in_example_space
            or (large and curve not in asked)
        )

    @cached_property
    def block_size(self) -> int:
        """How many runs are computed together."""
        return batched.block_size(len(self.batched_curves), self.class_size)

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """Every curve once, in an order that does not depend on the figures'."""
        return tuple(sorted(set(self._lines_curves()), key=lambda curve: curve.key))

    def _lines_curves(self) -> Iterator[Curve]:
        """The curve of every line: some may come several times."""
        return (line.curve for figure in self.figures for line in figure.lines)

    @cached_property
    def theory_curves(self) -> frozenset[Curve]:
        """The curves for which a figure needs the theory at every round."""
        return frozenset(line.curve for f in self.figures if f.needs_theory for line in f.lines)

    @cached_property
    def digest(self) -> str:
        """What the numbers of a run depend on; the number of runs is not part of it."""
        content = {
            "version": ENGINE_VERSION,
            "numpy": np.__version__,  # its products may round differently in another version
            "engine": self.engine,
            "dataset": self.dataset_digest or self.dataset,
            "clients": self.clients,
            "class_size": self.class_size,
            "rounds": self.rounds,
            "seed": self.seed,
            "curves": [curve.key for curve in self.curves],
            "theory": sorted(curve.key for curve in self.theory_curves),
        }
        if self.batched_curves:
            content["block"] = self.block_size
        if self.test_size:
            content["test_size"] = self.test_size
        if self.pool != "all":
            content["pool"] = self.pool
        if any(models.needs_torch(curve.model) for curve in self.curves):
            content["torch"] = _version("torch")
        if self.parts_digest:
            content["parts"] = self.parts_digest
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """The resolved configuration."""
        return asdict(self)

    def only(self, names: Iterable[str]) -> Study:
        """The study with these figures alone."""
        known = [figure.name for figure in self.figures]
        for name in names:
            if name not in known:
                raise ArgumentError(f"figure must be one of {', '.join(known)}, got {name!r}")
        return replace(self, figures=tuple(f for f in self.figures if f.name in set(names)))

    def only_lines(self, labels: Iterable[str]) -> Study:
        """The study with the lines of these labels alone."""
        labels = list(labels)
        known = sorted({line.label for f in self.figures for line in f.lines})
        for label in labels:
            if label not in known:
                raise ArgumentError(f"curves must be among {', '.join(known)}; got {label!r}")
        return self._where(lambda line: line.label in labels)

    def only_curves(self, curves: Set[Curve]) -> Study:
        """The study with the lines of these curves alone."""
        return self._where(lambda line: line.curve in curves)

    def _where(self, wanted: Callable[[Line], bool]) -> Study:
        kept = (replace(f, lines=tuple(filter(wanted, f.lines))) for f in self.figures)
        return replace(self, figures=tuple(f for f in kept if f.lines))


def from_dict(content: Any) -> Study:
    """The record `Study.as_dict` gave, back as a study."""
    try:
        figures = tuple(
            Figure(
                f["name"],
                f["kind"],
                f["title"],
                tuple(Line(line["label"], Curve(**line["curve"])) for line in f["lines"]),
            )
            for f in content["figures"]
        )
        return Study(**{**content, "figures": figures})
    except (KeyError, TypeError, ArgumentError) as error:
        raise StudyError(f"the recorded study cannot be read: {error}") from None


def load(path: str | os.PathLike[str], *, data: str | None = None) -> Study:
    """Read a study file; with `data`, a name or a path, on that dataset instead of its own."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"study {path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"study {path} is not valid TOML: {error}") from None
    try:
        study = parse(content)
    except (StudyError, ArgumentError) as error:
        raise StudyError(f"study {path}: {error}") from None
    beside = Path(path).parent  # what files are relative to
    study = _with_traces(study, beside)
    if (study.dataset if data is None else data) == "mnist":
        return replace(study, dataset="mnist")
    return with_data(study, beside / study.dataset if data is None else checks.path("data", data))


def with_data(study: Study, path: Path) -> Study:
    """The study on the dataset at this path."""
    return replace(study, dataset=str(path.resolve()), dataset_digest=datasets.digest(path))


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
    with resources.as_file(resources.files("fedcommons.simulate") / "paper.toml") as path:
        return load(path)


def parse(content: Mapping[str, Any]) -> Study:
    """A study from the content of a study file."""
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
        )
        if key in content
    }
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
    study = Study(name=str(content["name"]), figures=figures, **settings)
    return replace(study, parts_digest=_parts_digest(study))


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
    if not sources:
        return ""
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


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
