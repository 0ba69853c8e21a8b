"""A study's blocks on a Dask cluster: the same function, elsewhere (`fedcommons[cluster]`).

Blocks are pure functions of the study and their number, so where and how often one is computed does
not matter; a worker that dies has its blocks done again by another. Results travel back and are
written here: workers need fedcommons and, for data or models of one's own, the same paths.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from fedcommons.errors import ArgumentError, FedcommonsError
from fedcommons.simulate.result import RunResult
from fedcommons.simulate.studies import Study

LOCAL = re.compile(r"local:([1-9][0-9]*)")
CONNECT_SECONDS = 20

Compute = Callable[[Study, int], Mapping[int, RunResult]]


def check(address: str) -> None:
    """Refuse what cannot be a cluster, before anything else is done."""
    if find_spec("distributed") is None:
        raise ArgumentError("cluster needs Dask: pip install 'fedcommons[cluster]'")
    if not LOCAL.fullmatch(address) and ":" not in address:
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
    with _client(address) as client:
        futures = {client.submit(function, study, block, pure=False): block for block in blocks}
        try:
            for future in distributed.as_completed(list(futures)):
                yield futures.pop(future), future.result()
                future.release()
        except distributed.KilledWorker as error:
            raise FedcommonsError(
                f"the cluster lost a block too often: {error}; the finished runs are kept: give "
                "the same command again to go on"
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
