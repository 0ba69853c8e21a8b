"""A results folder: the finished runs, what was run, and the tables made of it.

run.json         the study, versions, machine, seconds
runs/00042.npz   the statistics of run 42, written whole or not at all
curves.parquet   one row per figure, line and round
runs.parquet     one row per run and curve: the summaries behind the claims
sites.parquet    one row per curve, site, round and metric, where sites are known
times.parquet    one row per figure and line: seconds to the target, where a clock has one
claims.json, figures/, report.html
clock/           of the paper's study: the one that is run by the clock along with it
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from fedcommons import shown
from fedcommons.errors import ResultsError
from fedcommons.locks import fcntl
from fedcommons.npz import read_npz
from fedcommons.parquet import read_parquet
from fedcommons.simulate import run_record
from fedcommons.simulate.definition import Study
from fedcommons.simulate.result import MEASURED, RunResult

logger = shown.logger(__name__)

TABLES_AT_ONCE = 50  # one row group of a Parquet file: each costs memory until it is closed


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
        self.beside = self.path / "clock"

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
            "format": run_record.FORMAT,
            "version": run_record.VERSION,
            "digest": study.digest,
            "study": study.as_dict(),
            **about,
            "invocations": invocations,
        }
        self.write_text("run.json", json.dumps(content, indent=2) + "\n")

    def record(self) -> dict[str, Any]:
        """run.json, checked."""
        return run_record.read(self.path)

    def study(self) -> Study:
        """The study whose results these are."""
        return run_record.study_of(self.path, self.record())

    def has_run(self, run: int, digest: str) -> bool:
        """Whether this run is here and whole; a damaged one is removed, to be done again."""
        path = self._run_path(run)
        if not path.exists():
            return False
        try:
            found = read_npz(path, ("digest", *RunResult.names()), ResultsError, optional=MEASURED)
        except ResultsError as error:
            logger.warning("%s; it is done again", error)
            path.unlink()
            return False
        if str(found["digest"]) != digest:
            raise ResultsError(f"{path} belongs to another study")
        return True

    def write_run(self, run: int, digest: str, result: RunResult) -> None:
        arrays = {name: getattr(result, name) for name in RunResult.names()}
        arrays |= {name: there for name in MEASURED if (there := getattr(result, name)).size}
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
        arrays = read_npz(
            self._run_path(run), ("digest", *RunResult.names()), ResultsError, optional=MEASURED
        )
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
        table = read_parquet(self.path / name, ResultsError)
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
