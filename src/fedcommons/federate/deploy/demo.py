"""The demo: a federation of real processes on one machine, with sites that come and go."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedcommons.errors import FederationError, ResultsError
from fedcommons.federate.apps.new_app import write_app
from fedcommons.federate.apps.review import review
from fedcommons.federate.deploy.deployment import Deployment
from fedcommons.federate.deploy.supervisor import Process
from fedcommons.federate.deploy.without_coding import Bought, bought
from fedcommons.federate.server.checkpoints import read_checkpoint
from fedcommons.federate.server.round_notes import RoundNote

SITES = tuple(f"site-{k}" for k in range(5))
EVENTS = {  # what happens after a round
    1: [("stop", "site-1")],
    2: [("kill", "site-3")],
    3: [("restart", "site-1")],
    6: [("stop", "site-4")],
    8: [("restart", "site-4")],
}
EVALUATE_EVERY = 2  # rounds: a message takes each site seconds
ROUND_SECONDS, SETUP_SECONDS = 120.0, 300.0  # longer than this is a failure
POLL = 0.3
MARK = ".demo"  # a file in the results folder of a demo, which the next one may replace

Say = Callable[[str], None]
OnRound = Callable[[dict[str, Any]], None]


def play(out: Path, *, rounds: int, say: Say, on_round: OnRound) -> Bought:
    """Run the demo; afterwards its results are in `out`, and nothing else is left.

    `say` is told what happens, `on_round` is given the record of each round. What coding bought is
    returned.
    """
    check_out(out)
    with Deployment() as deployment:
        say(f"SuperLink is up on {deployment.superlink.address}, with its own TLS authority")
        deployment.add_sites(SITES)
        say(f"{len(SITES)} SuperNodes are connected, and the sites' keys are pinned")
        app, state = deployment.folder / "digits", deployment.folder / "state"
        write_app(app)
        config = {
            "state-dir": str(state),
            "sites": len(SITES),
            "num-rounds": rounds,
            "deadline": 0.0,
            "evaluate-every": EVALUATE_EVERY,
        }
        reviewed = review(app)
        for site in SITES:  # all other rules are the safe ones that hold without a file
            deployment.set_policy(site, {"apps": [reviewed.hash]})
        say(f"each site has reviewed the app, {reviewed.hash[:16]}..., and runs no other")
        run = deployment.operator.start_run(app, config)
        say("each site has its own digits, shares a fifth of them (sealed), and trains")
        try:
            _Watch(deployment, run, state, say, on_round).until_the_end(rounds)
            ended = deployment.operator.finish_run(run, 60)
        except FederationError as error:
            error.add_note(f"logs: {_keep_logs(deployment, out)}")
            raise
        folder = next(state.glob("*/run.json"), None)
        if not ended.is_completed or folder is None:
            kept = _keep_logs(deployment, out)
            failed = FederationError(f"the run is {ended.status}, logs: {kept}")
            raise failed.showing(ended.log[-2000:])
        notes = _notes(state)
        found = bought(app, folder.parent, notes, config)
        (folder.parent / MARK).touch()
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder.parent, out)
        return found


def check_out(out: Path) -> None:
    """The results folder must be writable, and new, empty or that of an earlier demo."""
    try:
        if out.exists() and not (out / MARK).exists() and any(out.iterdir()):
            raise ResultsError(f"out must be new, empty or an earlier demo's folder, got {out}")
        exists = next(path for path in (out, *out.absolute().parents) if path.exists())
        with tempfile.TemporaryDirectory(dir=exists):
            pass
    except OSError as error:
        raise ResultsError(f"out cannot be written: {error}") from None


def history(state: Path) -> list[dict[str, Any]]:
    """The rounds of training so far, from the checkpoint, which is whole at every moment."""
    return [note.to_json() for note in _notes(state)]


def _notes(state: Path) -> tuple[RoundNote, ...]:
    path = next(state.glob("*/checkpoint.npz"), None)
    checkpoint = None if path is None else read_checkpoint(path)
    return () if checkpoint is None else checkpoint.history


class _Watch:
    """Follows a run round by round, and lets sites come and go."""

    def __init__(
        self, deployment: Deployment, run: Process, state: Path, say: Say, on_round: OnRound
    ) -> None:
        self.deployment, self.run, self.state = deployment, run, state
        self.say, self.on_round = say, on_round
        self.killed: dict[str, tuple[float, int]] = {}  # when, and how often it had been started

    def until_the_end(self, rounds: int) -> None:
        seen, deadline = -1, time.monotonic() + SETUP_SECONDS
        while True:
            is_over = self.run.exit_code() is not None
            for note in history(self.state)[seen + 1 :]:
                seen, deadline = note["round"], time.monotonic() + ROUND_SECONDS
                self.on_round(note)
                if seen < rounds:
                    self._let_happen(seen)
            self._see_who_is_back()
            if is_over:
                break
            if time.monotonic() > deadline:
                raise FederationError(f"nothing has happened for a long time after round {seen}")
            time.sleep(POLL)
        for site, (_, starts) in self.killed.items():
            refused = self.deployment.nodes[site].supernode.starts - starts
            self.say(f"{site} is not back yet, after {refused} attempts of its supervisor")

    def _let_happen(self, round_number: int) -> None:
        for what, site in EVENTS.get(round_number, []):
            supernode = self.deployment.nodes[site].supernode
            if what == "stop":
                supernode.stop()
                self.say(f"{site} is stopped (SIGTERM)")
            elif what == "restart":
                supernode.start()
                self.say(f"{site} is started again, under the same id")
            else:
                self.killed[site] = (time.monotonic(), supernode.starts)
                supernode.kill()
                self.say(f"{site} is killed (SIGKILL); its supervisor tries to bring it back")

    def _see_who_is_back(self) -> None:
        for site, (when, starts) in list(self.killed.items()):
            supernode = self.deployment.nodes[site].supernode
            if supernode.starts > starts and supernode.is_up:
                refused = supernode.starts - starts - 1
                seconds = time.monotonic() - when
                self.say(
                    f"{site} is back after {seconds:.0f} s, having been refused {refused} times"
                )
                del self.killed[site]


def _keep_logs(deployment: Deployment, out: Path) -> Path:
    """Copy the processes' logs to a folder that stays."""
    names = (f"{out.name}-logs-{k}" for k in itertools.count(1))
    kept = next(path for path in map(out.with_name, names) if not path.exists())
    shutil.copytree(deployment.logs, kept)
    return kept
