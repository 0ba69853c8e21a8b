"""Simulated federations: Flower's own simulation, and all sites in one process.

What an operator sets at a real site has a default here. The nodes of a simulation know no more than
`partition-id` and `num-partitions`; a site is named after the first, its store lies beside the
server's state, and its peers' keys are trusted on first use: nobody else is there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcommons import checks

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid

logger = logging.getLogger("fedcommons.federate.server")  # what the server logs

FOLDER = "simulation"  # in a state-dir: the exchange of real sites is kept apart
PARTITION, PARTITIONS = "partition-id", "num-partitions"
ENGINE = "InMemoryGrid"  # the class of the grid that Flower's simulation gives a ServerApp
SETTLED_SECONDS = 1.0  # without a new node: all are there
LONGEST_SETTLING = 60.0

_in_this_process: ContextVar[bool] = ContextVar("in_this_process", default=False)


@contextlib.contextmanager
def simulating() -> Iterator[None]:
    """What runs meanwhile are the nodes of a simulation in this process."""
    token = _in_this_process.set(True)
    try:
        yield
    finally:
        _in_this_process.reset(token)


def is_simulated(context: Context) -> bool:
    """Whether this node belongs to a simulation, and its operator set nothing.

    It takes proof of the first: a real site whose operator forgot something must not share data
    with peers whose keys are not pinned.
    """
    return set(context.node_config) == {PARTITION, PARTITIONS} and (
        _in_this_process.get() or _is_actor_of_ray()
    )


def is_in_simulation(context: Context) -> bool:
    """Whether this node has no operator: all sites are in one process, whatever they are told."""
    return _in_this_process.get() or is_simulated(context)


def _is_actor_of_ray() -> bool:
    ray: Any = sys.modules.get("ray")  # imported by Flower where it simulates
    return bool(ray and ray.is_initialized() and ray.get_runtime_context().get_actor_id())


def site_name(context: Context) -> str:
    return f"site-{context.node_config[PARTITION]}"


def store_folder(context: Context) -> Path:
    """Where a simulated site's store is; every process that handles its messages finds it."""
    folder = state_folder(context.run_config, context.run_id)
    return folder / "sites" / site_name(context)


def state_folder(run_config: Mapping[str, Any], run_id: int) -> Path:
    """Where a simulated federation keeps everything.

    It is the folder `simulation` of the run config's state-dir, where a later run goes on. Without
    one each run begins anew, in a folder of its own under Flower's home.
    """
    if run_config.get("state-dir"):
        return checks.path("state-dir", run_config["state-dir"]) / FOLDER
    home = os.environ.get("FLWR_HOME")  # as Flower itself finds it
    return (Path(home) if home else Path.home() / ".flwr") / "fedcommons" / str(run_id)


def arranged(
    asked: Mapping[str, Any], n: int, run_config: Mapping[str, Any], run_id: int
) -> dict[str, Any]:
    """What `share` was asked for, as it suits a simulation of `n` nodes.

    All of them take part, and nobody comes later. More copies than there are other sites are
    reduced: how many nodes there are is chosen elsewhere, for each run.
    """
    folder = asked["state_dir"]
    if folder:
        folder = checks.path("state-dir", folder) / FOLDER
    else:
        folder = state_folder(run_config, run_id)
    copies = asked["copies"]
    if type(copies) is int and copies >= n >= 2:
        logger.warning(
            "copies is %d instead of %d, because %d sites are simulated; for %d: flwr run . "
            "--federation-config 'num-supernodes=%d', or fedcommons federate run . --sites %d",
            *(n - 1, copies, n, copies + 1, copies + 1, copies + 1),
        )
        copies = n - 1
    logger.info("%d sites are simulated; everything is kept in %s", n, folder)
    return {
        **asked,
        "state_dir": folder,
        "copies": copies,
        "n_sites": max(n, 2),
        "nobody_comes": True,
    }


def n_nodes(grid: Grid) -> int | None:
    """How many nodes a simulation has; None if the grid is none of a simulation.

    The server app starts while they are being made, so their number must have settled.
    """
    if not _simulates(grid):
        return None
    end = time.monotonic() + LONGEST_SETTLING
    found, since = len(list(grid.get_node_ids())), time.monotonic()
    settling = SETTLED_SECONDS if _is_flowers(grid) else 0.0
    while (now := time.monotonic()) < end and (not found or now - since < settling):
        time.sleep(0.1)
        if (n := len(list(grid.get_node_ids()))) != found:
            found, since = n, time.monotonic()
    return found


def _simulates(grid: Grid) -> bool:
    return _is_flowers(grid) or bool(getattr(grid, "simulates", False))


def _is_flowers(grid: Grid) -> bool:
    return any(kind.__name__ == ENGINE for kind in type(grid).__mro__)
