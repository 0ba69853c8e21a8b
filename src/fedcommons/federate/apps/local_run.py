"""Runs a Flower app from its folder on the embedded engine."""

from __future__ import annotations

import contextlib
import importlib
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcommons.checks import BoolArray
from fedcommons.errors import FederationError
from fedcommons.federate.transport.embedded_grid import EmbeddedGrid, run_embedded
from fedcommons.federate.transport.simulation import PARTITION, PARTITIONS
from fedcommons.flower import CodedSum, settings_from, share
from fedcommons.stragglers import Trace

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
    with _importable(folder.resolve()):
        server_app, client_app = (_load(components[kind]) for kind in KINDS)
        return run_embedded(server_app, client_app, nodes, config)


def run_recorded(
    folder: Path,
    nodes: Sequence[Mapping[str, Any]],
    overrides: Mapping[str, Any],
    answered: BoolArray,
) -> None:
    """Run an app that `new_app` wrote, with those answering who did elsewhere: (rounds, N)."""
    server = ServerApp()
    with _importable(folder.resolve()):
        task = importlib.import_module(f"{folder.name}.task")
        client = importlib.import_module(f"{folder.name}.client_app").app

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            initial = task.initial_arrays()
            settings = settings_from(context.run_config)
            strategy = CodedSum(share(grid, context), **settings, stragglers=Trace(answered))
            strategy.start(grid, initial, num_rounds=int(context.run_config["num-rounds"]))

        run_embedded(server, client, nodes, {**read_app(folder)[1], **overrides})


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _load(component: str) -> Any:
    module, _, name = component.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise FederationError(
            f"the app's component {component} cannot be loaded: {error}"
        ) from None
