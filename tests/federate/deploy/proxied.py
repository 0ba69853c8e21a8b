"""A real nginx as the fleet proxy: in front of a deployment's SuperLink, or of any other server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedcommons.cli.federate import app
from fedcommons.federate.deploy.deployment import Deployment
from fedcommons.federate.deploy.fleet_proxy import nginx_command
from fedcommons.federate.deploy.superlink import HOST, free_port
from fedcommons.federate.deploy.supervisor import Process, wait_until
from tests.federate.deploy.leftovers import is_listening

PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"  # where nginx is


def need_nginx() -> None:
    """Skip where nginx is not installed; in CI it must be."""
    if shutil.which("nginx", path=PATH) is None:
        if os.environ.get("CI"):
            pytest.fail("nginx must be installed in CI: apt-get install nginx-light")
        pytest.skip("nginx is not installed, so the proxy was not tried")


def start_nginx(
    folder: Path,
    tls: Path,
    superlink: str,
    start: Callable[[Sequence[str]], Process],
    *options: str,
) -> tuple[Process, int]:
    """The proxy's process and its port, configured by `fedcommons federate proxy`."""
    need_nginx()
    port = free_port()
    addresses = ["--listen", f"{HOST}:{port}", "--superlink", superlink]
    done = CliRunner().invoke(app, ["proxy", str(folder), "--tls", str(tls), *addresses, *options])
    assert done.exit_code == 0, done.output
    proxy = start(nginx_command(folder))
    wait_until("nginx", lambda: is_listening(port) or proxy.exit_code() is not None, 60)
    assert proxy.exit_code() is None, proxy.output()
    return proxy, port


def start_proxy(deployment: Deployment) -> tuple[Process, int]:
    """The proxy in front of a deployment's SuperLink, and its port."""
    link = deployment.superlink
    return start_nginx(
        deployment.folder / "proxy",
        link.tls.folder,
        link.address,
        lambda command: deployment.operator.start_process(command, "proxy"),
    )
