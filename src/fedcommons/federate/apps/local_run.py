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
from fedcommons.federate.transport.simulation import PARTITION, PARTITIONS

KINDS = ("serverapp", "clientapp")


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
    config = {**config, "sites": n_sites, **overrides}
    nodes = [{PARTITION: k, PARTITIONS: n_sites} for k in range(n_sites)]
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
