"""Processes are brought back, and end when they should; no Flower here."""

import os
import sys
from pathlib import Path

import pytest

from fedcommons.errors import FederationError
from fedcommons.federate.deploy.supervisor import Process, Supervisor, wait_until

PATIENT = "import time; print('up', flush=True); time.sleep(60)"
WITH_A_CHILD = (
    "import subprocess, sys, time; "
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
    "print('up', child.pid, flush=True); time.sleep(60)"
)
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(60)"
)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture
def supervise(tmp_path):
    supervisors = []

    def make(code):
        command = [sys.executable, "-c", code]
        supervisor = Supervisor(lambda: command, tmp_path / "log", os.environ, "up")
        supervisors.append(supervisor)
        return supervisor

    yield make
    for supervisor in supervisors:
        supervisor.stop()


def test_a_killed_process_is_brought_back(supervise):
    supervisor = supervise(PATIENT)
    supervisor.start()
    wait_until("first start", lambda: supervisor.is_up, 20)
    first = supervisor.process.pid
    supervisor.kill()
    assert not is_alive(first)
    wait_until("second start", lambda: supervisor.is_up and supervisor.process.pid != first, 20)
    assert supervisor.starts == 2


def test_what_ends_at_once_is_tried_again_and_again_until_it_is_in(supervise, tmp_path):
    marker = tmp_path / "accepted"
    supervisor = supervise(
        f"import pathlib, time\nif pathlib.Path({str(marker)!r}).exists():\n"
        "    print('up', flush=True); time.sleep(60)"
    )
    supervisor.start()
    wait_until("two attempts", lambda: supervisor.starts >= 2, 20)
    assert not supervisor.is_up
    marker.touch()
    wait_until("accepted", lambda: supervisor.is_up, 20)


def test_a_stopped_process_stays_stopped_with_all_that_it_started(supervise):
    supervisor = supervise(WITH_A_CHILD)
    supervisor.start()
    wait_until("start", lambda: supervisor.is_up, 20)
    child = int(supervisor.process.output().split()[1])
    supervisor.stop()
    assert supervisor.process.exit_code() is not None
    wait_until("the child's end", lambda: not is_alive(child), 60)
    assert supervisor.starts == 1
    supervisor.start()
    wait_until("start again", lambda: supervisor.is_up, 20)


def test_what_ignores_being_asked_is_killed(tmp_path):
    process = Process([sys.executable, "-c", STUBBORN], tmp_path / "log", os.environ)
    wait_until("start", lambda: process.has_printed("up"), 20)
    process.stop(grace=0.5)
    assert process.exit_code() == -9


def test_waiting_has_an_end():
    with pytest.raises(FederationError, match=r"pigs fly: not ready within 0\.2 s"):
        wait_until("pigs fly", lambda: False, 0.2)
