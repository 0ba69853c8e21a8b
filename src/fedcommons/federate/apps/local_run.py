"""Runs a Flower app from its folder on the embedded engine."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcommons.errors import FederationError
from fedcommons.federate.transport.embedded_grid import EmbeddedGrid, run_embedded

KINDS = ("serverapp", "clientapp")
EMBEDDED = "embedded"  # the folder in an app's state-dir for runs in one process


def read_app(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """The components and the run config of an app's pyproject.toml."""
    path = folder / "pyproject.toml"
    try:
        app = tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]
        components = {kind: str(app["components"][kind]) for kind in KINDS}
        return components, dict(app.get("config", {}))
    except OSError as error:
        raise FederationError(f"{path} cannot be read: {error}") from None
    except KeyError as error:
        raise FederationError(f"{path} must describe a Flower app: {error} is missing") from None
    except (ValueError, TypeError) as error:
        raise FederationError(f"{path} must describe a Flower app: {error}") from None


def run_app(folder: Path, n_sites: int, overrides: Mapping[str, Any]) -> EmbeddedGrid:
    """Run an app in this process; the sites divide the app's data among themselves."""
    components, config = read_app(folder)
    unknown = sorted(set(overrides) - set(config))
    if unknown:
        raise FederationError(
            f"run config must only have the keys {sorted(config)}, got {unknown[0]!r}"
        )
    if (
        "state-dir" in config and "state-dir" not in overrides
    ):  # the exchange of real sites is kept apart
        config["state-dir"] = str(Path(str(config["state-dir"])) / EMBEDDED)
    if "wait" in config:
        config["wait"] = 0  # no site comes later than the others
    config = {**config, "sites": n_sites, **overrides}
    nodes: list[dict[str, Any]] = [
        {"partition-id": k, "num-partitions": n_sites} for k in range(n_sites)
    ]
    if "state-dir" in config:  # only an app that shares examples needs stores
        for k, node in enumerate(nodes):
            store = Path(str(config["state-dir"])) / "sites" / f"site-{k}"
            node |= {"site": f"site-{k}", "store": str(store), "peers": "first-use"}
    sys.path.insert(0, str(folder.resolve()))
    try:
        server_app, client_app = (_load(components[kind]) for kind in KINDS)
        return run_embedded(server_app, client_app, nodes, config)
    finally:
        sys.path.remove(str(folder.resolve()))


def _load(component: str) -> Any:
    module, _, name = component.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise FederationError(
            f"the app's component {component} cannot be loaded: {error}"
        ) from None
