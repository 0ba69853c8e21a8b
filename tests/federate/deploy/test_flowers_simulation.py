"""`flwr run .` as it is typed, in Flower's own simulation: the app of `federate new`, unchanged."""

import importlib.util
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from fedcommons.federate.apps.new_app import write_app
from fedcommons.federate.deploy.programs import environment
from fedcommons.federate.deploy.superlink import HOST, free_port
from fedcommons.federate.deploy.supervisor import Process, wait_until
from tests.federate.deploy.leftovers import processes_that_know

PROGRAMS = Path(sys.executable).parent
SECONDS = 300  # of patience

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="pip install 'fedcommons[simulation]'"
)


@pytest.fixture
def local(tmp_path):
    """The environment of a local SuperLink, as `flwr run` starts one that stays up afterwards."""
    port, control = free_port(), free_port()
    given = {
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
        "FLWR_LOCAL_CONTROL_API_PORT": str(control),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    env = environment(tmp_path / "home", given)
    command = [PROGRAMS / "flower-superlink", "--insecure", "--simulation"]
    command += ["--isolation", "subprocess", "--host", HOST, "--port", str(port)]
    command += ["--control-api-address", f"{HOST}:{control}"]
    superlink = Process(list(map(str, command)), tmp_path / "superlink.log", env)
    try:
        wait_until("the SuperLink", lambda: is_healthy(port), 120)
        yield env
    finally:
        superlink.stop()
    wait_until("the simulation's end", lambda: not processes_that_know(tmp_path), 60)


def is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def said(command: list, env: dict) -> str:
    result = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    return result.stdout + result.stderr


def model_in(state: Path) -> np.ndarray:
    (found,) = (state / "simulation").glob("*/model.npz")
    with np.load(found) as model:
        return model["beta"]


def test_a_new_app_runs_unchanged_and_reaches_the_model_of_one_process(local, tmp_path):
    """Two actors handle three sites' messages, so each store is opened by more than one process."""
    app = tmp_path / "clinics"
    write_app(app)
    config = "num-rounds=2 copies=2 seed=7"
    log = said(
        [
            *(PROGRAMS / "flwr", "run", app, "--stream"),
            *("--federation-config", "num-supernodes=3 client-resources-num-cpus=1"),
            *("--run-config", config),
        ],
        local,
    )
    state = tmp_path / "clinics-state"
    assert f"3 sites are simulated; everything is kept in {state / 'simulation'}" in log
    assert "6 deliveries, 300 examples" in log
    assert re.search(r"round 2/2: sites_accuracy 0\.\d+, .*3 of 3 answered", log)
    assert {path.name for path in (state / "simulation" / "sites").iterdir()} == {
        "site-0", "site-1", "site-2"
    }  # fmt: skip

    elsewhere = tmp_path / "one-process"
    said(
        [
            *(PROGRAMS / "fedcommons", "federate", "run", app, "--sites", "3"),
            *("--run-config", f'{config} state-dir="{elsewhere}"'),
        ],
        local,
    )
    np.testing.assert_allclose(model_in(state), model_in(elsewhere), rtol=1e-5, atol=1e-7)
