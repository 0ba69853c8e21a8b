"""A study's blocks on a Dask cluster: the same function, elsewhere (`fedcommons[cluster]`).

Blocks are pure functions of the study and their number, so where and how often one is computed does
not matter; a worker that dies has its blocks done again by another. Results travel back and are
written here: workers need fedcommons and, for data or models of one's own, the same paths.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from importlib.util import find_spec
from typing import Any

from fedcommons.errors import ArgumentError, FedcommonsError
from fedcommons.simulate.definition import Study
from fedcommons.simulate.result import RunResult

LOCAL = re.compile(r"local:([1-9][0-9]*)")
CONNECT_SECONDS = 20

Compute = Callable[[Study, int], Mapping[int, RunResult]]


def check(address: str) -> None:
    """Refuse what cannot be a cluster, before anything else is done."""
    if find_spec("distributed") is None:
        raise ArgumentError("cluster needs Dask: pip install 'fedcommons[cluster]'")
    if not LOCAL.fullmatch(address) and (":" not in address or address.startswith("local:")):
        raise ArgumentError(
            "cluster must be the address of a Dask scheduler such as tcp://10.0.0.5:8786, or "
            f"local:2 for two processes here, got {address!r}"
        )


def compute(
    function: Compute, study: Study, blocks: Sequence[int], *, address: str
) -> Iterator[tuple[int, Mapping[int, RunResult]]]:
    """(block, its runs) for every block, as they are done."""
    check(address)
    if not blocks:
        return
    distributed: Any = importlib.import_module("distributed")
    # It logs with a traceback what it raises as well.
    logging.getLogger("distributed.utils").setLevel(logging.CRITICAL)
    client = _client(address)
    try:
        with client:
            futures = {client.submit(function, study, block, pure=False): block for block in blocks}
            for future in distributed.as_completed(list(futures)):
                yield futures.pop(future), future.result()
                future.release()
    except (distributed.KilledWorker, CancelledError, OSError) as error:
        killed = isinstance(error, distributed.KilledWorker)
        what = "a block too often" if killed else "its scheduler"
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise FedcommonsError(
            f"the cluster lost {what}: {why}; the finished runs are kept: give the same command "
            "again to go on"
        ) from None


def _client(address: str) -> Any:
    distributed: Any = importlib.import_module("distributed")
    if local := LOCAL.fullmatch(address):
        # Nobody needs the dashboard of a cluster that ends with the command.
        return distributed.Client(
            n_workers=int(local[1]), threads_per_worker=1, processes=True, dashboard_address=None
        )
    try:
        return distributed.Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError, TimeoutError) as error:
        raise ArgumentError(f"cluster {address} cannot be reached: {error}") from None
