"""Who does not get in: a SuperLink and its proxy, and those that they refuse."""

import sys
from pathlib import Path

import pytest

from fedcommons.federate.apps.new_app import write_app
from fedcommons.federate.deploy import certificates
from fedcommons.federate.deploy.deployment import Deployment
from fedcommons.federate.deploy.superlink import HOST, free_port
from fedcommons.federate.deploy.supervisor import Process
from tests.federate.deploy.proxied import start_proxy

SUPERNODE = Path(sys.executable).with_name("flower-supernode")


@pytest.fixture(scope="module")
def deployment():
    with Deployment() as running:
        yield running


def test_operators_are_refused_by_the_proxy(deployment):
    _, port = start_proxy(deployment)
    deployment.operator.add_connection(
        "through-the-proxy", f"{HOST}:{port}", deployment.superlink.tls.ca
    )
    app = deployment.folder / "digits"
    write_app(app)
    key = certificates.write_node_key(deployment.folder / "own.key")
    for command in (["run", str(app)], ["supernode", "register", str(key)]):
        process = deployment.operator.start_flwr(*command, "through-the-proxy")
        assert process.wait(60) not in (0, None)
        assert "403" in process.output()
        assert "uccessfully" not in process.output()


def start_supernode(deployment: Deployment, ca: Path, key: Path) -> Process:
    """A SuperNode that should not get in."""
    command = [
        *(str(SUPERNODE), "--superlink", deployment.superlink.address, "--port", str(free_port())),
        *("--root-certificates", str(ca), "--auth-supernode-private-key", str(key)),
        *("--max-retries", "0"),
    ]
    return deployment.operator.start_process(command, "stranger")


def test_a_supernode_that_trusts_another_authority_does_not_connect(deployment):
    other = certificates.write_tls(deployment.folder / "other-authority")
    key = deployment.folder / "registered" / "node.key"
    certificates.write_node_key(key)
    deployment.register("registered")
    node = start_supernode(deployment, other.ca, key)
    assert node.wait(60) not in (0, None)
    assert "CERTIFICATE_VERIFY_FAILED" in node.output()
    assert "SuperNode ID" not in node.output()


def test_a_supernode_with_an_unregistered_key_is_refused(deployment):
    key = deployment.folder / "stranger.key"
    certificates.write_node_key(key)
    node = start_supernode(deployment, deployment.superlink.tls.ca, key)
    assert node.wait(60) not in (0, None)
    assert "Exit Code: 305" in node.output()
    assert "2004" in node.output()
    assert "SuperNode ID" not in node.output()
