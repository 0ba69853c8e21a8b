"""Real processes behind the fleet-only proxy reach the model of the embedded engine."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedcommons.desk import prometheus
from fedcommons.federate.apps.new_app import write_app
from fedcommons.federate.deploy.deployment import Deployment
from fedcommons.federate.deploy.superlink import HOST
from tests.federate.deploy.leftovers import is_listening, processes_that_know
from tests.federate.deploy.proxied import start_proxy

FEDCOMMONS = Path(sys.executable).with_name("fedcommons")
SITES = ["site-0", "site-1", "site-2"]
CONFIG = {
    "sites": 3,
    "copies": 2,
    "num-rounds": 3,
    "seed": 7,
    "rehearse-stragglers": 0.5,
    "straggler-prob": 0.5,
}


@pytest.fixture
def deployment():
    """Three sites that reach their SuperLink through the proxy."""
    with Deployment() as running:
        _, port = start_proxy(running)
        running.add_sites(SITES, superlink=f"{HOST}:{port}")
        for site in SITES:
            running.set_policy(site, {"share-with-all": True})
        yield running
    assert not processes_that_know(running.folder)
    assert not is_listening(port)
    assert not is_listening(running.superlink.port)
    assert not running.folder.exists()


def results_of(state: Path) -> Path:
    (found,) = state.glob("*/run.json")
    return found.parent


def metrics_of(folder: Path) -> dict:
    """What each site measured on its held-out data, by round, site and metric."""
    rows = pq.read_table(folder / "site_metrics.parquet").to_pylist()
    assert all(row["left_out"] is None and row["kind"] == "evaluation" for row in rows)
    return {(row["round"], row["site"], row["metric"]): row["value"] for row in rows}


def test_real_processes_reach_the_model_of_the_embedded_engine_and_go_on(deployment):
    app, state = deployment.folder / "digits", deployment.folder / "state"
    write_app(app)
    run = deployment.operator.run_to_completion(app, {"state-dir": str(state), **CONFIG})
    assert "6 deliveries, 300 examples" in run.log

    embedded = deployment.folder / "embedded"
    run_embedded(app, embedded)
    there, here = results_of(state), results_of(embedded / "simulation")
    assert there.name == here.name
    with np.load(there / "model.npz") as real, np.load(here / "model.npz") as same:
        assert real.files == same.files
        for name in real.files:
            assert np.abs(real[name]).max() > 0
            np.testing.assert_allclose(real[name], same[name], rtol=1e-5, atol=1e-7)

    metrics, same_metrics = (metrics_of(folder) for folder in (there, here))
    assert {(t, site) for t, site, _ in metrics} <= {(t, site) for t in (1, 2, 3) for site in SITES}
    assert metrics
    assert metrics == pytest.approx(same_metrics)
    assert re.search(r"round 3/3: sites_accuracy 0\.\d+, ", run.log)

    exchange = (state / "exchange.json").read_bytes()
    more = {"state-dir": str(state), **CONFIG, "num-rounds": 4}
    again = deployment.operator.run_to_completion(app, more)
    assert "using the exchange of epoch 1" in again.log
    assert "going on after round 3" in again.log
    assert "round 4/4" in again.log
    assert (state / "exchange.json").read_bytes() == exchange

    pytest.importorskip("prometheus_client")
    assert "\nfedcommons_rounds_total 4.0\n" in prometheus.text_of(state).decode()
    of_site = prometheus.text_of(deployment.nodes["site-0"].store).decode()
    for kind in ("offer", "draw", "send", "receive", "train"):
        counted = rf'messages_total{{kind="{kind}",outcome="ok"}} [1-9]'
        assert re.search(counted, of_site), of_site


def run_embedded(app: Path, state: Path) -> None:
    """The same app with the same run config, in one process."""
    overrides = " ".join(f"{key}={value}" for key, value in CONFIG.items())
    subprocess.run(
        [
            *(FEDCOMMONS, "federate", "run", app, "--sites", "3"),
            *("--run-config", f'{overrides} state-dir="{state}"'),
        ],
        check=True,
        timeout=120,
    )
