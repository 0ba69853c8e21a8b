"""Where events go: what users write, such as mlflow:http://127.0.0.1:5000, and what opens it."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from fedcommons.errors import ArgumentError
from fedcommons.tracking.events import About, Event

MOST_SERIES = 64  # of sites or lines with a series of their own; JSON lines have all
KINDS = {  # the module with its `Sink`, and the package that it needs
    "jsonl": ("fedcommons.tracking.json_lines", ""),
    "mlflow": ("fedcommons.tracking.mlflow_runs", "mlflow"),
    "tensorboard": ("fedcommons.tracking.tensorboard", "tensorboardX"),
}
HELP = "jsonl:FILE, mlflow:URI or tensorboard:DIR"


class Sink(Protocol):
    """Takes events in the order in which they happen; what it raises is not its end."""

    def write(self, events: Sequence[Event]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Target:
    """Where events go, checked; nothing is opened or reached yet."""

    kind: str
    where: str

    @classmethod
    def of(cls, text: object, *, absolute: bool = False) -> Target:
        """`text` as users write it; paths must be `absolute` where nobody chose the folder."""
        kind, _, where = text.partition(":") if isinstance(text, str) else ("", "", "")
        if kind not in KINDS or not where:
            raise ArgumentError(f"track must be {HELP}, got {text!r}")
        package = KINDS[kind][1]
        if package and find_spec(package) is None:
            raise ArgumentError(f"track {kind} needs more: pip install 'fedcommons[tracking]'")
        target = cls(kind, where)
        if kind != "mlflow":
            target._check_path(absolute)
        elif re.match(r"\w+://", where) is None:
            raise ArgumentError(
                "track mlflow must be the address of a server such as http://127.0.0.1:5000, or a "
                f"database such as sqlite:///mlflow.db, got {where!r}"
            )
        return target

    def _check_path(self, absolute: bool) -> None:
        path = Path(self.where)
        if absolute and not path.is_absolute():
            raise ArgumentError(f"track must have an absolute path, got {self.where!r}")
        if (path.is_dir()) != (self.kind == "tensorboard") and path.exists():
            raise ArgumentError(
                f"track {self.kind} must be a {'file' if path.is_dir() else 'folder'}, got {path}"
            )
        there = next(one for one in (path, *path.absolute().parents) if one.exists())
        if not os.access(there, os.W_OK) or not (there == path or there.is_dir()):
            raise ArgumentError(f"track cannot be written: {there}")

    def __str__(self) -> str:
        return f"{self.kind}:{self.where}"

    def open(self, about: About) -> Sink:
        module = importlib.import_module(KINDS[self.kind][0])
        sink: Sink = module.Sink(self.where, about)
        return sink


def targets(texts: str | Iterable[object], *, absolute: bool = False) -> list[Target]:
    """Those that users name, one or several, each once."""
    texts = [texts] if isinstance(texts, str) else texts
    return list(dict.fromkeys(Target.of(text, absolute=absolute) for text in texts))


def slug(name: str) -> str:
    """A name as it can be part of a path or of a metric's name."""
    return re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII).strip("._") or "_"
