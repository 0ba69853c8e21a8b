"""The fleet-only proxy in front of a deployment's SuperLink."""

from __future__ import annotations

import sys
from pathlib import Path

from fedcommons.federate.deploy.deployment import Deployment
from fedcommons.federate.deploy.superlink import HOST, free_port
from fedcommons.federate.deploy.supervisor import Process, wait_until


def start_proxy(deployment: Deployment) -> tuple[Process, int]:
    """The proxy's process and its port."""
    port = free_port()
    command = [
        *(str(Path(sys.executable).with_name("fedcommons")), "federate", "proxy"),
        *("--tls", str(deployment.superlink.tls.ca.parent)),
        *("--listen", f"{HOST}:{port}", "--superlink", deployment.superlink.address),
    ]
    proxy = deployment.operator.start_process(command, "proxy")
    wait_until("proxy", lambda: proxy.has_printed("Uvicorn running"), 60)
    return proxy, port
