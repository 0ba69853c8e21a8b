"""A results folder: the finished runs, what was run, and the tables made of it.

run.json         the study, versions, machine, seconds
runs/00042.npz   the statistics of run 42, written whole or not at all
curves.parquet   one row per figure, line and round
runs.parquet     one row per run and curve: the summaries behind the claims
claims.json, figures/, report.html
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import logging
import os
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from fedcommons.errors import ResultsError, StudyError
from fedcommons.npz import read_npz
from fedcommons.simulate import studies
from fedcommons.simulate.result import RunResult
from fedcommons.simulate.studies import Study

logger = logging.getLogger(__name__)

FORMAT = "fedcommons.results"
TABLES_AT_ONCE = 50  # one row group of a Parquet file: each costs memory until it is closed
VERSION = 2
RECORDED: dict[str, tuple[type, ...]] = {  # what run.json and its invocations hold, if they do
    "digest": (str,),
    "study": (dict,),
    "command": (str,),
    "versions": (dict,),
    "machine": (dict,),
    "commit": (str, type(None)),
    "seconds": (int, float),
    "invocations": (list,),
}


def default_path(name: str) -> Path:
    """Where the results of a study of this name go unless somebody says otherwise."""
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in name)
    return Path("results") / (safe or "study")


class Folder:
    """The results of one study on disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.runs = self.path / "runs"
        self.figures = self.path / "figures"

    @contextlib.contextmanager
    def opened(self, study: Study) -> Iterator[None]:
        """Make the folder for a study, or open it if it is this study's, for one process alone."""
        self._check_is_for(study)  # before anything is written into it
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            lock = (self.runs / ".lock").open("w")
        except OSError as error:
            raise ResultsError(f"folder {self.path} cannot be written: {error}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ResultsError(f"folder {self.path} is in use by another process") from None
            self._check_is_for(study)  # another process may have used it since
            yield

    def _check_is_for(self, study: Study) -> None:
        if self._record_path.exists():
            found = self.record()
            if found["digest"] != study.digest and any(self.runs.glob("*.npz")):
                raise ResultsError(
                    f"folder {self.path} holds the results of another study "
                    f"({found['study'].get('name')}, seed {found['study'].get('seed')}, "
                    f"digest {found['digest'][:12]}, this is {study.digest[:12]}); choose another "
                    "folder with --out, or remove it"
                )
        elif self._holds_something():
            raise ResultsError(
                f"folder {self.path} must be empty or a results folder with its run.json, "
                "got other files in it"
            )

    def _holds_something(self) -> bool:
        try:
            others = [entry for entry in self.path.iterdir() if entry != self.runs]
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ResultsError(f"folder {self.path} cannot be written: {error}") from None
        return bool(others) or any(self.runs.glob("*.npz"))

    def begin(self, study: Study, about: dict[str, Any]) -> None:
        """Record that an invocation works on the study: earlier ones stay recorded."""
        invocations = self.record().get("invocations", []) if self._record_path.exists() else []
        self._write_record(study, about, [*invocations, {**about, "complete": False}])

    def finish(self, study: Study, *, seconds: float, fresh_runs: int) -> None:
        """Record that the invocation came to its end."""
        invocations = self.record()["invocations"]
        about = {k: v for k, v in invocations[-1].items() if k != "complete"}
        invocations[-1] |= {"complete": True, "seconds": seconds, "fresh_runs": fresh_runs}
        total = round(sum(invocation.get("seconds", 0) for invocation in invocations), 1)
        self._write_record(study, {**about, "complete": True, "seconds": total}, invocations)

    def _write_record(
        self, study: Study, about: dict[str, Any], invocations: list[dict[str, Any]]
    ) -> None:
        content = {
            "format": FORMAT,
            "version": VERSION,
            "digest": study.digest,
            "study": study.as_dict(),
            **about,
            "invocations": invocations,
        }
        self.write_text("run.json", json.dumps(content, indent=2) + "\n")

    def record(self) -> dict[str, Any]:
        """run.json, checked."""
        try:
            content = json.loads(self._record_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ResultsError(
                f"{self.path} is not a results folder: run.json is missing"
            ) from None
        except (OSError, ValueError) as error:
            raise ResultsError(f"{self._record_path} cannot be read: {error}") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ResultsError(f"{self._record_path} is not a record of fedcommons results")
        if "study" not in content or "digest" not in content:
            raise ResultsError(f"{self._record_path} must hold the study and its digest")
        if content.get("version") != VERSION:
            raise ResultsError(
                f"{self.path} must be results of version {VERSION}, got {content.get('version')}"
            )
        self._check_types(content)
        for invocation in content.get("invocations", []):
            if not isinstance(invocation, dict):
                raise ResultsError(f"{self._record_path}: {invocation!r} is no invocation")
            self._check_types(invocation)
        return content

    def _check_types(self, entry: dict[str, Any]) -> None:
        for key, kinds in RECORDED.items():
            if key in entry and not isinstance(entry[key], kinds):
                names = " or ".join(kind.__name__ for kind in kinds)
                raise ResultsError(
                    f"{self._record_path}: {key} must be {names}, got {entry[key]!r}"
                )

    def study(self) -> Study:
        """The study whose results these are."""
        try:
            study = studies.from_dict(self.record()["study"])
        except StudyError as error:
            raise ResultsError(f"{self._record_path}: {error}") from None
        words = [study.name, study.dataset]
        for figure in study.figures:
            words += [figure.title, *(line.label for line in figure.lines)]
            if figure.kind not in studies.KINDS:
                raise ResultsError(
                    f"{self._record_path}: kind must be one of {', '.join(studies.KINDS)}, "
                    f"got {figure.kind!r}"
                )
            if not isinstance(figure.name, str) or not studies.FIGURE_NAME.fullmatch(figure.name):
                raise ResultsError(f"{self._record_path}: {figure.name!r} cannot name a figure")
        for word in words:
            if not isinstance(word, str):
                raise ResultsError(f"{self._record_path}: names must be strings, got {word!r}")
        return study

    def has_run(self, run: int, digest: str) -> bool:
        """Whether this run is here and whole; a damaged one is removed, to be done again."""
        path = self._run_path(run)
        if not path.exists():
            return False
        try:
            found = read_npz(path, ("digest", *RunResult.names()), ResultsError)
        except ResultsError as error:
            logger.warning("%s; it is done again", error)
            path.unlink()
            return False
        if str(found["digest"]) != digest:
            raise ResultsError(f"{path} belongs to another study")
        return True

    def write_run(self, run: int, digest: str, result: RunResult) -> None:
        arrays = {name: getattr(result, name) for name in RunResult.names()}
        path = self._run_path(run)
        part = path.with_suffix(f".part{os.getpid()}")
        try:
            with part.open("wb") as file:
                np.savez(file, digest=np.array(digest), **arrays)
            part.replace(path)
        except OSError as error:
            raise ResultsError(f"{path} cannot be written: {error}") from None
        finally:
            part.unlink(missing_ok=True)

    def read_run(self, run: int, digest: str) -> RunResult:
        arrays = read_npz(self._run_path(run), ("digest", *RunResult.names()), ResultsError)
        if str(arrays.pop("digest")) != digest:
            raise ResultsError(f"{self._run_path(run)} belongs to another study")
        return RunResult(**arrays)

    def write_tables(self, name: str, tables: Iterable[pyarrow.Table]) -> None:
        """Write one file of tables that follow each other, holding a few in memory at a time."""
        part = self.path / f"{name}.part"
        rest = iter(tables)
        try:
            with contextlib.ExitStack() as stack:
                writer = None
                while few := list(itertools.islice(rest, TABLES_AT_ONCE)):
                    table = pyarrow.concat_tables(few)
                    if writer is None:
                        writer = stack.enter_context(
                            pyarrow.parquet.ParquetWriter(part, table.schema)
                        )
                    writer.write_table(table)
            part.replace(self.path / name)
        except OSError as error:
            raise ResultsError(f"{self.path / name} cannot be written: {error}") from None

    def read_table(
        self, name: str, schema: pyarrow.Schema | None = None, may_be_null: Container[str] = ()
    ) -> pyarrow.Table:
        """A table; with a schema, of these columns, and without nulls but where they may be."""
        try:
            table = pyarrow.parquet.read_table(self.path / name)
        except (OSError, pyarrow.ArrowException) as error:
            raise ResultsError(f"{self.path / name} cannot be read: {error}") from None
        for column in schema or ():
            k = table.schema.get_field_index(column.name)
            right = k >= 0 and table.schema.field(k).type == column.type
            if not right or (table[k].null_count and column.name not in may_be_null):
                raise ResultsError(
                    f"{self.path / name} must have the column {column.name} ({column.type}), whole"
                )
        return table

    def write_text(self, name: str, text: str) -> None:
        part = self.path / f"{name}.part"
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(self.path / name)
        except OSError as error:
            raise ResultsError(f"{self.path / name} cannot be written: {error}") from None

    @property
    def _record_path(self) -> Path:
        return self.path / "run.json"

    def _run_path(self, run: int) -> Path:
        return self.runs / f"{run:05d}.npz"
