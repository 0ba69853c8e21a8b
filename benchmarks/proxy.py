"""What hostile connections cost honest requests to the fleet proxy.

    python benchmarks/proxy.py [--hostile 1000] [--requests 150] [--pause 0.1] [--json FILE]

A real nginx with the configuration of `fedcommons federate proxy`, in front of an echoing server.
Honest requests of 64 kB are timed before, while strangers hold connections of three kinds, and
again afterwards: TLS handshakes that were never begun, heads and bodies that trickle in byte by
byte. The strangers have other addresses than the honest where loopback has more than one (Linux).
What counts: no honest request fails, and the median takes less than twice as long.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.server
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from fedcommons.federate.deploy.certificates import Tls, write_tls
from fedcommons.federate.deploy.fleet_proxy import Limits, nginx_command, write_nginx
from fedcommons.federate.deploy.superlink import HOST, free_port
from fedcommons.federate.deploy.supervisor import wait_until

KINDS = ("handshake", "head", "body")
PATH = "/v1/fleet/push-object"
BODY = b"\0" * 65536
TRICKLE_SECONDS = 1.0  # between two bytes


class Echo(http.server.BaseHTTPRequestHandler):
    """Stands for the SuperLink: it answers with what it was sent, and counts."""

    requests = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        type(self).requests += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


@contextlib.contextmanager
def echo(tls: Tls) -> Iterator[str]:
    """An HTTPS server with the SuperLink's certificate; its address."""
    server = http.server.ThreadingHTTPServer((HOST, 0), Echo)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.superlink_certificate, tls.superlink_key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def nginx(folder: Path, tls: Tls, superlink: str, limits: Limits | None = None) -> Iterator[int]:
    """A running proxy, which keeps its files in this folder; its port."""
    port = free_port()
    write_nginx(
        folder, tls, listen=f"{HOST}:{port}", superlink=superlink, limits=limits or Limits()
    )
    env = {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(nginx_command(folder), env=env, stderr=log)
    try:
        wait_until("nginx", lambda: is_listening(port) or process.poll() is not None, 30)
        if process.poll() is not None:
            raise SystemExit((folder / "log").read_text())
        yield port
    finally:
        process.terminate()
        process.wait()


def is_listening(port: int) -> bool:
    with contextlib.suppress(OSError), httpx.Client(timeout=5) as probe:
        probe.get(f"http://{HOST}:{port}")  # 400: this is TLS
        return True
    return False


class Honest:
    """A site's requests, one after another, over a connection that is kept."""

    def __init__(self, port: int, tls: Tls) -> None:
        context = ssl.create_default_context(cafile=str(tls.ca))
        self.link = httpx.Client(base_url=f"https://{HOST}:{port}", verify=context, timeout=60)

    def ask(self, n: int, pause: float = 0.0) -> tuple[list[float], int]:
        """The seconds that each of n requests took, and how many failed; with pauses between."""
        seconds, failed = [], 0
        for _ in range(n):
            start = time.perf_counter()
            try:
                answer = self.link.post(PATH, content=BODY)
                failed += (answer.status_code, answer.content) != (200, BODY)
            except httpx.HTTPError:
                failed += 1
            seconds.append(time.perf_counter() - start)
            time.sleep(pause)
        return seconds, failed


class Strangers:
    """Connections that never finish what they begin, from a thread of their own."""

    def __init__(self, port: int, n: int) -> None:
        self.port, self.n = port, n
        self.open: Counter[str] = Counter()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()))
        self._over = threading.Event()
        self._careless = ssl.create_default_context()
        self._careless.check_hostname, self._careless.verify_mode = False, ssl.CERT_NONE

    def __enter__(self) -> Strangers:
        self._thread.start()
        wait_until("strangers", lambda: sum(self.open.values()) >= self.n, 120)
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    async def _all(self) -> None:
        tasks = [asyncio.create_task(self._one(k)) for k in range(self.n)]
        while not self._over.is_set():
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, k: int) -> None:
        """One connection, opened again whenever it is closed."""
        kind = KINDS[k % len(KINDS)]
        origin = (f"127.0.1.{1 + k % 20}", 0) if sys.platform == "linux" else None
        is_first = True
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                context = None if kind == "handshake" else self._careless
                reader, writer = await asyncio.open_connection(
                    HOST, self.port, ssl=context, local_addr=origin
                )
                try:
                    if kind == "head":
                        writer.write(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nX: ".encode())
                    elif kind == "body":
                        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n"
                        writer.write(head.encode())
                    if is_first:
                        self.open[kind] += 1
                        is_first = False
                    await self._trickle(kind, reader, writer)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.5)

    async def _trickle(
        self, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                if not await asyncio.wait_for(reader.read(1), TRICKLE_SECONDS):
                    return
            if kind != "handshake":
                writer.write(b"x")
                await writer.drain()


def measure(n_hostile: int, n_requests: int, pause: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        tls = write_tls(Path(scratch) / "tls")
        with echo(tls) as superlink, nginx(Path(scratch) / "proxy", tls, superlink) as port:
            honest = Honest(port, tls)
            honest.ask(5)
            before, failed_before = honest.ask(n_requests, pause)
            passed = Echo.requests
            with Strangers(port, n_hostile) as strangers:
                during, failed_during = honest.ask(n_requests, pause)
                held = dict(strangers.open)
            leaked = Echo.requests - passed - n_requests
            after, failed_after = honest.ask(n_requests, pause)
    medians = [1e3 * statistics.median(s) for s in (before, during, after)]
    return {
        "hostile connections": held,
        "honest requests": 3 * n_requests,
        "honest requests that failed": failed_before + failed_during + failed_after,
        "hostile requests that reached the SuperLink": leaked,
        "median ms before, during, after": medians,
        "slowest ms during": 1e3 * max(during),
        "during / usual": medians[1] / statistics.mean([medians[0], medians[2]]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hostile", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=150)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between requests")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = measure(arguments.hostile, arguments.requests, arguments.pause)
    for name, value in found.items():
        print(f"{name}: {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
