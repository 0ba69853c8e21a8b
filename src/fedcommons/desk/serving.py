"""A small web server that answers what it was given, and nothing else; it can only be read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from fedcommons import checks, shown
from fedcommons.errors import FedcommonsError, FederationError

LOOPBACK = "127.0.0.1"
SECONDS = 15.0  # that a client may take for its request
ALWAYS = {  # headers of every answer
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

logger = shown.logger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back."""

    status: HTTPStatus
    content: bytes = b""
    kind: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


def refused(status: HTTPStatus) -> Answer:
    return Answer(status, f"{status.value} {status.phrase}\n".encode())


Respond = Callable[[str], Answer]
"""The answer to a path, without what stands behind a question mark."""


@contextlib.contextmanager
def serving(respond: Respond, *, host: str = LOOPBACK, port: int = 0) -> Iterator[str]:
    """Answer requests in threads until the end of the block; the server's address."""
    port = checks.integer("port", port, low=0, high=65535)
    handler = type("Handler", (_Handler,), {"respond": staticmethod(respond)})
    try:
        server = ThreadingHTTPServer((host, port), handler)
    except OSError as error:
        raise FederationError(f"{host}:{port} cannot be listened on: {error.strerror}") from None
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    respond: Respond
    timeout = SECONDS
    server_version, sys_version = "fedcommons", ""

    def do_GET(self) -> None:
        self._send(with_body=True)

    def do_HEAD(self) -> None:
        self._send(with_body=False)

    def _send(self, *, with_body: bool) -> None:
        try:
            found = type(self).respond(self.path.partition("?")[0])
        except FedcommonsError as error:  # the folder is damaged, or gone
            logger.warning("%s", error)
            found = refused(HTTPStatus.SERVICE_UNAVAILABLE)
        self.send_response(found.status)
        for name, value in {**ALWAYS, **found.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", found.kind)
        self.send_header("Content-Length", str(len(found.content)))
        self.end_headers()
        if with_body:
            self.wfile.write(found.content)

    def log_message(self, *_: object) -> None:
        """Nothing: paths contain the token."""
