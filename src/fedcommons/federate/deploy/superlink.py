"""A SuperLink on this machine, as a process of its own."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

from fedcommons.errors import FederationError
from fedcommons.federate.deploy import certificates, programs
from fedcommons.federate.deploy.supervisor import Process, wait_until

HOST = "127.0.0.1"
START_SECONDS = 60.0


class SuperLink:
    """A SuperLink with TLS by an authority of its own, which only takes in registered SuperNodes.

    `folder` gets its certificates and, with `database`, what it remembers; `log` what it prints.
    """

    def __init__(self, folder: Path, log: Path, *, database: bool) -> None:
        self.log = log
        self.tls = certificates.write_tls(folder / "tls")
        self.database = folder / "superlink.db" if database else None
        self.port = 0
        self.process: Process | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self, environment: Mapping[str, str]) -> None:
        """Start it and wait until it answers. A restart is on the same port."""
        if self.process is not None:
            self._launch(environment)
            return
        for attempts_left in (2, 1, 0):  # another program may take the port in the meantime
            self.port = free_port()
            try:
                self._launch(environment)
                return
            except FederationError:
                if not attempts_left:
                    raise

    def _launch(self, environment: Mapping[str, str]) -> None:
        command = programs.superlink(HOST, self.port, self.tls, self.database)
        process = self.process = Process(command, self.log, environment)
        wait_until(
            "SuperLink",
            lambda: is_healthy(self.port, self.tls.ca) or process.exit_code() is not None,
            START_SECONDS,
        )
        if process.exit_code() is not None:
            raise FederationError("the SuperLink did not start").showing(process.output()[-2000:])

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def stop(self, grace: float) -> None:
        if self.process is not None:
            self.process.stop(grace)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def is_healthy(port: int, ca: Path) -> bool:
    """Whether a server on this machine answers by a certificate of this authority."""
    context = ssl.create_default_context(cafile=str(ca))
    link = http.client.HTTPSConnection(HOST, port, timeout=5, context=context)
    try:
        link.request("GET", "/health")
        return link.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        link.close()
