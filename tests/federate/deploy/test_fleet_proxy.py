"""The proxy passes on the fleet interface, and nothing that only looks like it; no Flower here.

A real nginx with the configuration of `fedcommons federate proxy`, before an echoing server.
"""

import http.server
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from fedcommons.errors import ArgumentError
from fedcommons.federate.deploy import fleet_proxy
from fedcommons.federate.deploy.certificates import Tls, renew_tls, write_tls
from fedcommons.federate.deploy.superlink import HOST, is_healthy
from fedcommons.federate.deploy.supervisor import Process, wait_until
from tests.federate.deploy.proxied import PATH, need_nginx, start_nginx

FLEET = "/v1/fleet/pull-messages"
ELSEWHERE = [
    "/v1/control/start-run",
    "/v1/runtime/acquire-task",
    "/v1/fleet/../control/start-run",
    "/v1/fleet/%2e%2e/control/start-run",
    "/v1/fleet/..%2fcontrol/start-run",
    "/v1/fleet//control",
    "/v1/fleet/",
    "/v1/FLEET/pull-messages",
    "//v1/control/start-run",
    "/health",
    "/docs",
    "/",
]
OTHER_METHODS = ["GET", "PUT", "DELETE", "OPTIONS"]
PATIENCE = 120  # seconds


@pytest.fixture
def superlink(tmp_path):
    """A server that answers with what it was asked: its address, TLS files, and what it heard."""
    tls, heard = write_tls(tmp_path / "tls"), []

    class Echo(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            heard.append(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(418)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("X-Signature", self.headers.get("X-Signature", ""))
            answer = self.path.encode() + b" " + body
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_arguments):
            pass

    server = http.server.ThreadingHTTPServer((HOST, 0), Echo)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.superlink_certificate, tls.superlink_key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"{HOST}:{server.server_port}", tls, heard
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture
def start(tmp_path):
    """start(superlink, *options): a proxy's process and port."""
    started = []

    def start_one(address, tls, *options):
        def process(command):
            env = {**os.environ, "PATH": PATH}
            started.append(Process(command, tmp_path / "nginx.log", env))
            return started[-1]

        return start_nginx(tmp_path / "proxy", tls.folder, address, process, *options)

    yield start_one
    for process in started:
        process.stop()


@pytest.fixture
def proxy(superlink, start):
    """A proxy, as a client that knows its authority."""
    address, tls, _ = superlink
    _, port = start(address, tls)
    with link_to(port, tls) as link:
        yield link


def link_to(port, tls):
    context = ssl.create_default_context(cafile=str(tls.ca))
    return httpx.Client(base_url=f"https://{HOST}:{port}", verify=context, timeout=PATIENCE)


def test_the_fleet_interface_is_passed_on_both_ways(proxy):
    body = b"\0protobuf" * 2_000_000  # 18 MB: more than any message
    answer = proxy.post(FLEET, content=body, headers={"X-Signature": "signed"})
    assert (answer.status_code, answer.content) == (418, FLEET.encode() + b" " + body)
    assert answer.headers["x-signature"] == "signed"
    assert answer.headers["content-type"] == "application/x-protobuf"


def test_everything_else_is_refused(proxy, superlink):
    for path in ELSEWHERE:
        asked = proxy.build_request("POST", "/")
        asked.url = asked.url.copy_with(raw_path=path.encode())
        assert proxy.send(asked).status_code == 403, path
    for method in OTHER_METHODS:
        assert proxy.request(method, FLEET).status_code == 403, method
    assert superlink[2] == []


def test_a_superlink_that_is_not_there_is_a_bad_gateway(superlink, start):
    _, tls, _ = superlink
    with link_to(start("127.0.0.1:1", tls)[1], tls) as link:
        assert link.post(FLEET).status_code == 502


def test_a_superlink_of_another_authority_is_not_talked_to(superlink, start, tmp_path):
    address, _, heard = superlink
    other = write_tls(tmp_path / "other")
    with link_to(start(address, other)[1], other) as link:
        assert link.post(FLEET).status_code == 502
    assert heard == []


def test_a_request_that_is_too_large_is_refused(superlink, start):
    address, tls, heard = superlink
    with link_to(start(address, tls, "--megabytes", "1")[1], tls) as link:
        assert link.post(FLEET, content=bytes(1_000_000)).status_code == 418
        assert link.post(FLEET, content=bytes(1_100_000)).status_code == 413
    assert len(heard) == 1


def test_an_address_that_asks_too_much_is_told_to_come_again(superlink, start):
    """503 is what a SuperNode answers by trying again: not every status is."""
    address, tls, _ = superlink
    _, port = start(address, tls, "--at-a-time", "3", "--per-second", "1000")
    begun = b"Content-Length: 99\r\n\r\n"
    held = [unfinished(port, tls, begun) for _ in range(3)]
    with link_to(port, tls) as link:
        wait_until("limit", lambda: link.post(FLEET).status_code == 503, PATIENCE)
        for connection in held:
            connection.close()
        wait_until("place", lambda: link.post(FLEET).status_code == 418, PATIENCE)


def unfinished(port, tls, begun):
    """A connection with a request of which this much follows its first lines."""
    context = ssl.create_default_context(cafile=str(tls.ca))
    connection = context.wrap_socket(
        socket.create_connection((HOST, port)), server_hostname="localhost"
    )
    connection.sendall(f"POST {FLEET} HTTP/1.1\r\nHost: x\r\n".encode() + begun)
    return connection


def test_requests_come_no_faster_than_their_rate(superlink, start):
    address, tls, _ = superlink
    _, port = start(address, tls, "--per-second", "1")
    with link_to(port, tls) as link:
        seen = [link.post(FLEET).status_code for _ in range(4)]
        assert seen == [418] * 4  # slowed down, not refused
    answers = []

    def ask():
        with link_to(port, tls) as link:
            answers.append(link.post(FLEET).status_code)

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(answers) == 12
    assert set(answers) == {418, 503}


@pytest.mark.parametrize("kind", ["handshake", "head", "body"])
def test_what_is_not_finished_is_closed_and_the_superlink_never_hears_of_it(
    superlink, start, monkeypatch, kind
):
    monkeypatch.setattr(fleet_proxy, "HEAD_SECONDS", 1)
    monkeypatch.setattr(fleet_proxy, "BODY_SECONDS", 1)
    address, tls, heard = superlink
    _, port = start(address, tls)
    if kind == "handshake":
        connection = socket.create_connection((HOST, port))
    else:
        begun = b"Content-Length: 99\r\n\r\n" if kind == "body" else b"X: "
        connection = unfinished(port, tls, begun)
    with connection:
        assert is_closed(connection, trickle=kind == "head")
    assert heard == []


def is_closed(connection, *, trickle):
    """Whether the other side ends a connection, even if a byte comes every now and then."""
    connection.settimeout(0.3)
    for _ in range(3 * PATIENCE):
        try:
            if trickle:
                connection.sendall(b"x")
            if not connection.recv(1000):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_strangers_do_not_keep_the_honest_from_being_served(tmp_path):
    """A thousand connections that finish nothing; how long the honest wait is in the benchmark."""
    need_nginx()
    benchmark = Path(__file__).parents[3] / "benchmarks" / "proxy.py"
    out = tmp_path / "found.json"
    subprocess.run(
        [sys.executable, benchmark, "--requests", "50", "--pause", "0", "--json", out],
        check=True,
        timeout=600,
    )
    found = json.loads(out.read_text())
    assert sum(found["hostile connections"].values()) >= 1000
    assert found["honest requests"] == 150
    assert found["honest requests that failed"] == 0
    assert found["hostile requests that reached the SuperLink"] == 0


def test_a_renewed_certificate_is_taken_up_without_a_request_being_lost(superlink, start):
    """As docs/maintenance.md has it: renew, have nginx reload. The SuperLink goes on as it is."""
    address, tls, _ = superlink
    process, port = start(address, tls)
    loopback = tls.superlink_certificate.read_bytes()
    before, lost, over = certificate_at(port), [], threading.Event()

    def keep_asking():
        while not over.is_set():
            with link_to(port, tls) as link:
                if link.post(FLEET).status_code != 418:
                    lost.append(1)

    asking = threading.Thread(target=keep_asking)
    asking.start()
    try:
        with unfinished(port, tls, b"Content-Length: 99\r\n\r\n") as held:
            assert renew_tls(tls.folder)
            os.kill(process.pid, signal.SIGHUP)
            wait_until("new certificate", lambda: certificate_at(port) != before, PATIENCE)
            held.sendall(b"y" * 99)  # what was on its way is answered
            assert held.recv(1000).startswith(b"HTTP/1.1 418")
    finally:
        over.set()
        asking.join(PATIENCE)
    assert lost == []
    assert tls.superlink_certificate.read_bytes() == loopback
    assert process.exit_code() is None


def test_a_certificate_that_does_not_fit_its_key_leaves_the_old_one_in_use(superlink, start):
    address, tls, _ = superlink
    process, port = start(address, tls)
    before = certificate_at(port)
    tls.key.write_bytes(tls.superlink_key.read_bytes())
    os.kill(process.pid, signal.SIGHUP)
    wait_until("complaint", lambda: process.has_printed("key values mismatch"), PATIENCE)
    assert certificate_at(port) == before
    assert not is_healthy(port, tls.ca)  # /health is not for sites; but TLS still works


def certificate_at(port):
    return ssl.get_server_certificate((HOST, port), timeout=PATIENCE)


@pytest.mark.parametrize("name", ['a"b', "a;b", "a$b", "a{b", "a\nb"])
def test_a_path_cannot_say_more_than_a_path(tmp_path, name):
    limits = fleet_proxy.Limits()
    where = {"listen": "127.0.0.1:1", "superlink": "127.0.0.1:2", "limits": limits}
    tls = write_tls(tmp_path / "tls")
    with pytest.raises(ArgumentError, match="folder must be a path without quotes"):
        fleet_proxy.write_nginx(tmp_path / name, tls, **where)
    with pytest.raises(ArgumentError, match="tls must be a path without quotes"):
        fleet_proxy.write_nginx(tmp_path, Tls(tmp_path / name), **where)


@pytest.mark.parametrize("limit", ["at_a_time", "per_second", "megabytes"])
def test_limits_are_positive(limit):
    with pytest.raises(ArgumentError, match=f"{limit} must be an integer in"):
        fleet_proxy.Limits(**{limit: 0})
