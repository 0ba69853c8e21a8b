"""A federation of real processes behind the fleet-only proxy: one deployment for all tests here."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedcommons.federate import certificates
from fedcommons.federate.deployment import HOST, Deployment, free_port
from fedcommons.federate.new_app import write_app
from fedcommons.federate.supervisor import Process, wait_until
from tests.deployment.leftovers import is_listening, processes_that_know

pytestmark = pytest.mark.xdist_group("deployment-end-to-end")

BIN = Path(sys.executable).parent
SITES = ["site-0", "site-1", "site-2"]
CONFIG = {
    "sites": 3,
    "copies": 2,
    "num-rounds": 3,
    "seed": 7,
    "rehearse-stragglers": 0.5,
    "straggler-prob": 0.5,
}


@pytest.fixture(scope="module")
def deployment():
    """Three sites that reach their SuperLink through the proxy."""
    with Deployment(environment={"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3"}) as running:
        port = free_port()
        command = [
            *(str(BIN / "fedcommons"), "federate", "proxy", "--tls", str(running.tls.ca.parent)),
            *("--listen", f"{HOST}:{port}", "--superlink", running.address),
        ]
        proxy = running.start_process(command, "proxy")
        running.add_connection("through-the-proxy", f"{HOST}:{port}")
        wait_until("proxy", lambda: proxy.has_printed("Uvicorn running"), 60)
        running.proxy, running.proxy_address = proxy, f"{HOST}:{port}"
        running.add_sites(SITES, superlink=running.proxy_address)
        running.app = running.folder / "digits"
        write_app(running.app)
        yield running
    assert not processes_that_know(running.folder)
    assert not is_listening(port)
    assert not is_listening(running.port)
    assert not running.folder.exists()


@pytest.fixture(scope="module")
def trained(deployment):
    """The server's folder after an exchange and three rounds."""
    state = deployment.folder / "state"
    run = deployment.run_to_completion(deployment.app, {"state-dir": str(state), **CONFIG})
    return state, run


def results_of(state: Path) -> Path:
    (found,) = state.glob("*/run.json")
    return found.parent


def test_real_processes_reach_the_model_of_the_embedded_engine(deployment, trained):
    state, run = trained
    assert "6 deliveries, 300 examples" in run.log
    embedded = deployment.folder / "embedded"
    overrides = " ".join(f"{key}={value}" for key, value in CONFIG.items())
    subprocess.run(
        [
            *(BIN / "fedcommons", "federate", "run", deployment.app, "--sites", "3"),
            *("--run-config", f'{overrides} state-dir="{embedded}"'),
        ],
        check=True,
        timeout=120,
    )
    there, here = results_of(state), results_of(embedded)
    assert there.name == here.name
    with np.load(there / "model.npz") as real, np.load(here / "model.npz") as same:
        assert real.files == same.files
        for name in real.files:
            assert np.abs(real[name]).max() > 0
            np.testing.assert_allclose(real[name], same[name], rtol=1e-5, atol=1e-7)


def test_a_second_run_takes_up_the_exchange_and_goes_on(deployment, trained):
    state, _ = trained
    before = (state / "exchange.json").read_bytes()
    more = {"state-dir": str(state), **CONFIG, "num-rounds": 4}
    run = deployment.run_to_completion(deployment.app, more)
    assert "using the exchange of epoch 1" in run.log
    assert "going on after round 3" in run.log
    assert "round 4/4" in run.log
    assert (state / "exchange.json").read_bytes() == before


def test_operators_are_refused_by_the_proxy(deployment):
    process = deployment.start_flwr("run", str(deployment.app), "through-the-proxy")
    assert process.wait(60) not in (0, None)
    assert "403" in process.output()
    assert "Successfully started" not in process.output()
    assert "refused POST '/v1/control/start-run'" in deployment.proxy.output()


def start_supernode(deployment: Deployment, ca: Path, key: Path) -> Process:
    """A SuperNode that should not get in."""
    command = [
        *(str(BIN / "flower-supernode"), "--superlink", deployment.address),
        *("--port", str(free_port()), "--root-certificates", str(ca)),
        *("--auth-supernode-private-key", str(key), "--max-retries", "0"),
    ]
    return deployment.start_process(command, "stranger")


def test_a_supernode_that_trusts_another_authority_does_not_connect(deployment):
    other = certificates.write_tls(deployment.folder / "other-authority")
    node = start_supernode(deployment, other.ca, deployment.folder / "site-0" / "node.key")
    assert node.wait(60) not in (0, None)
    assert "CERTIFICATE_VERIFY_FAILED" in node.output()
    assert "SuperNode ID" not in node.output()


def test_a_supernode_with_an_unregistered_key_is_refused(deployment):
    key = deployment.folder / "stranger.key"
    certificates.write_node_key(key)
    node = start_supernode(deployment, deployment.tls.ca, key)
    assert node.wait(60) not in (0, None)
    assert "Exit Code: 305" in node.output()
    assert "2004" in node.output()
    assert "SuperNode ID" not in node.output()
