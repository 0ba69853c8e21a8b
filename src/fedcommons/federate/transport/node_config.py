"""What a site's node config says: its name, its store, the keys of its peers, its data.

Paths at a site come from here alone, never from the server; in a simulation they have defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Context

from fedcommons.errors import ArgumentError
from fedcommons.federate.protocol.records import NAME
from fedcommons.federate.protocol.refusals import PeersNotPinned
from fedcommons.federate.site.data_files import load_site_data
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.peers_file import PinnedKeys, read_peers
from fedcommons.federate.site.policy import SIMULATED, Policy, read_policy
from fedcommons.federate.site.spool import SPOOL
from fedcommons.federate.transport import simulation

FIRST_USE = "first-use"


def store_folder(context: Context) -> Path:
    if simulation.is_simulated(context):
        return simulation.store_folder(context)
    folder = context.node_config.get("store")
    if not isinstance(folder, str) or not folder:
        raise ArgumentError('node config: store must be the folder of the store, as store="/path"')
    return Path(folder)


def site_name(context: Context, identity: str) -> str:
    """The site's name; without one, the first digits of its identity."""
    default = f"site-{identity[:8]}"
    if simulation.is_simulated(context):
        default = simulation.site_name(context)
    name = str(context.node_config.get("site", default))
    if not NAME.fullmatch(name):
        raise ArgumentError(f"node config: site must be letters, digits, . _ -, got {name!r}")
    return name


def peers_from_node_config(context: Context) -> PinnedKeys | None:
    """The pinned keys of the peers; None where the first use of a name is trusted."""
    source = context.node_config.get("peers")
    if source == FIRST_USE or simulation.is_simulated(context):
        return None
    if not isinstance(source, str):
        raise PeersNotPinned(f"node config: peers must be a file of pinned keys or {FIRST_USE!r}")
    return read_peers(Path(source))


def policy_of(context: Context) -> Policy:
    """The policy in the store's folder; without one, the safe one, or in a simulation none."""
    return read_policy(
        store_folder(context), SIMULATED if simulation.is_in_simulation(context) else None
    )


def data_from_node_config(context: Context, *, classes: Sequence[str] | None = None) -> SiteData:
    """The file that the node config names under `data`; labels may be names of `classes`."""
    return _data_file(context, "data", classes)


def held_out_from_node_config(
    context: Context, *, classes: Sequence[str] | None = None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Inputs and labels of the file that the node config names under `held-out`.

    They are for the app's evaluate function: nothing trains on them, and nothing is shared.
    """
    found = _data_file(context, "held-out", classes)
    return found.x.take(np.arange(found.n_examples)), found.y


def tells_means(context: Context) -> bool:
    """Whether the site may tell means and deviations of its inputs (`scale`)."""
    value = context.node_config.get("tell-means", True)
    if not isinstance(value, bool):
        raise ArgumentError(f"node config: tell-means must be true or false, got {value!r}")
    return value


def _data_file(context: Context, key: str, classes: Sequence[str] | None) -> SiteData:
    config = context.node_config
    if not isinstance(config.get(key), str):
        raise ArgumentError(
            f'node config: {key} must be an .npz, .parquet or .csv file, as {key}="/path"'
        )
    return load_site_data(
        str(config[key]),
        spool=store_folder(context) / SPOOL,
        label=str(config.get("label-column", "label")),
        shareable=str(config.get("shareable-column", "shareable")),
        ground=str(config.get("ground-column", "ground")),
        classes=classes,
        separator=str(config.get("separator", ",")),
        decimal=str(config.get("decimal", ".")),
    )
