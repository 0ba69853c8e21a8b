"""The proxy passes on the fleet interface, and nothing that only looks like it; no Flower here.

The same is asked of our own proxy and of nginx with the configuration of docs/deploy.md.
"""

import asyncio
import http.server
import os
import re
import shutil
import ssl
import subprocess
import threading
from pathlib import Path

import httpx
import pytest

from fedcommons.federate.deploy.certificates import write_tls
from fedcommons.federate.deploy.fleet_proxy import fleet_only
from fedcommons.federate.deploy.superlink import free_port
from fedcommons.federate.deploy.supervisor import wait_until
from tests.federate.deploy.leftovers import is_listening

PAGE = Path(__file__).parents[3] / "docs" / "deploy.md"
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


@pytest.fixture
def superlink(tmp_path):
    """A server that answers with what it was asked, and its address and TLS files."""
    tls = write_tls(tmp_path)

    class Echo(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
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

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", tls
    server.shutdown()
    server.server_close()
    thread.join(10)


def ask(superlink, method, path, **request):
    """One request, through the proxy, its path as it is."""

    async def through():
        app = fleet_only(*superlink)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://proxy") as link,
        ):
            asked = link.build_request(method, "/", **request)
            asked.url = asked.url.copy_with(raw_path=path.encode())
            answer = await link.send(asked)
            return answer.status_code, answer.content, answer.headers

    return asyncio.run(through())


def test_the_fleet_interface_is_passed_on_both_ways(superlink):
    status, content, headers = ask(
        superlink,
        "POST",
        "/v1/fleet/pull-messages",
        content=b"\0protobuf" * 1000,
        headers={"X-Signature": "signed"},
    )
    assert (status, content) == (418, b"/v1/fleet/pull-messages " + b"\0protobuf" * 1000)
    assert headers["x-signature"] == "signed"
    assert headers["content-type"] == "application/x-protobuf"


@pytest.mark.parametrize("path", ELSEWHERE)
def test_everything_else_is_refused(superlink, path):
    assert ask(superlink, "POST", path)[0] == 403


@pytest.mark.parametrize("method", OTHER_METHODS)
def test_other_methods_are_refused(superlink, method):
    assert ask(superlink, method, "/v1/fleet/pull-messages")[0] == 403


def test_a_superlink_that_is_not_there_is_a_bad_gateway(superlink):
    _, tls = superlink
    assert ask(("127.0.0.1:1", tls), "POST", "/v1/fleet/pull-messages")[0] == 502


def test_a_superlink_of_another_authority_is_not_talked_to(superlink, tmp_path):
    address, _ = superlink
    other = write_tls(tmp_path / "other")
    assert ask((address, other), "POST", "/v1/fleet/pull-messages")[0] == 502


@pytest.fixture
def nginx(superlink, tmp_path):
    """The page's server in an nginx of this test's own: a client that knows its authority."""
    program = shutil.which("nginx")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("nginx must be installed in CI: apt-get install nginx-light")
        pytest.skip("nginx is not installed, so its configuration was not tried")
    address, tls = superlink
    (block,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    port = free_port()
    for page, ours in {
        "listen 9092": f"listen 127.0.0.1:{port}",
        "127.0.0.1:8000": address,
        "/srv/federation/tls": str(tls.ca.parent),
    }.items():
        assert page in block
        block = block.replace(page, ours)
    folders = "".join(
        f"{kind}_temp_path {tmp_path / kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = tmp_path / "nginx.conf"
    file.write_text(
        f"daemon off;\nmaster_process off;\npid {tmp_path / 'pid'};\n"
        f"error_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{folders}{block}}}\n"
    )
    process = subprocess.Popen([program, "-p", tmp_path, "-e", "stderr", "-c", file])
    try:
        wait_until("nginx", lambda: is_listening(port) or process.poll() is not None, 30)
        context = ssl.create_default_context(cafile=str(tls.ca))
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context) as link:
            yield link
    finally:
        process.terminate()
        process.wait(10)


def test_nginx_as_on_the_page_passes_on_the_fleet_interface_alone(nginx):
    body = b"\0protobuf" * 200_000  # beyond what nginx takes by default
    fleet = "/v1/fleet/pull-messages"
    passed = nginx.post(fleet, content=body, headers={"X-Signature": "signed"})
    assert (passed.status_code, passed.content) == (418, fleet.encode() + b" " + body)
    assert passed.headers["x-signature"] == "signed"
    for path in ELSEWHERE:
        asked = nginx.build_request("POST", "/")
        asked.url = asked.url.copy_with(raw_path=path.encode())
        assert nginx.send(asked).status_code == 403, path
    for method in OTHER_METHODS:
        assert nginx.request(method, fleet).status_code == 403, method
