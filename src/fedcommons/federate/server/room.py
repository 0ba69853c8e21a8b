"""What a round needs of the server's memory and disk, said before it is needed."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from fedcommons import shown
from fedcommons.errors import FederationError
from fedcommons.estimators import ESTIMATORS
from fedcommons.federate.protocol.model_schema import ModelSchema
from fedcommons.optimizers import OPTIMIZERS

logger = shown.logger(__name__)

WHATEVER_THE_MODEL = 256 << 20  # bytes of memory: a block of the sum, answers on their way, Python
FLOAT64 = 8


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of memory and of disk."""

    memory: int
    disk: int

    def __str__(self) -> str:
        return f"{_in_words(self.memory)} of memory and {_in_words(self.disk)} of disk"


def needed(n_sites: int, schema: ModelSchema, *, estimator: str, server_optimizer: str) -> Room:
    """What a round needs at most.

    In memory: three copies of the model in its own precision (the model, the message, an answer),
    in float64 the estimate, the direction, the step and the model that it leads to, and the
    optimizer's moments before and after. On the disk: everybody's answers, as many that are
    remembered, and two checkpoints, the one being written too.
    """
    n_moments = OPTIMIZERS[server_optimizer].n_moments
    P, a_model = schema.n_params, schema.n_params * schema.precision.itemsize
    moments = n_moments * FLOAT64 * P
    kept = 2 if ESTIMATORS[estimator].remembers else 1
    return Room(
        memory=WHATEVER_THE_MODEL + 3 * a_model + 4 * FLOAT64 * P + 2 * moments,
        disk=kept * n_sites * a_model + 2 * (a_model + moments),
    )


def check(
    n_sites: int, schema: ModelSchema, folder: Path, *, estimator: str, server_optimizer: str
) -> None:
    """Say what a round needs, and refuse what this machine does not have.

    What a training already has in the folder is room that it has.
    """
    need = needed(n_sites, schema, estimator=estimator, server_optimizer=server_optimizer)
    whose = f"a round of {n_sites} sites with {schema.n_params:,} parameters"
    logger.info("%s needs up to %s", whose, need)
    parts = (
        ("memory", need.memory, available_memory(), "a smaller model, or a machine with more"),
        ("disk", need.disk, available_disk(folder), "choose another state-dir, or make room"),
    )
    for what, wanted, there, advice in parts:
        if there is not None and wanted > there:
            kept = " and memory of each" if ESTIMATORS[estimator].remembers else ""
            raise FederationError(
                f"{whose}{kept} needs {_in_words(wanted)} of {what}, {_in_words(there)} are there"
                f"{f' in {folder}' if what == 'disk' else ''}: {advice}"
            )


def available_disk(folder: Path) -> int:
    """Bytes that are free where a folder is, or will be, and those of the files that are in it."""
    parent = next(path for path in (folder, *folder.parents) if path.exists())
    own = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return shutil.disk_usage(parent).free + own


def available_memory() -> int | None:
    """Bytes that a process may still get, its container's limit included; None if not known."""
    found = []
    with contextlib.suppress(OSError, LookupError, ValueError):  # another system
        found.append(1024 * _number_after("MemAvailable:", Path("/proc/meminfo")))
    with contextlib.suppress(OSError, LookupError, ValueError):  # no container, or no limit
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        found.append(limit - _number_after("anon", group / "memory.stat"))
    return min(found, default=None)


def _number_after(word: str, path: Path) -> int:
    """The number behind a word, in a file of lines that begin with one."""
    lines = (line.split() for line in path.read_text().splitlines())
    return int({fields[0]: fields[1] for fields in lines}[word])


def _in_words(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"
