"""Random kills in a real federation: nothing is lost, and the model is that of one without any.

    python benchmarks/chaos.py [--kills 20] [--sites 4] [--rounds 20] [--seed 0] [--json FILE]

A SuperLink with a database, TLS and authenticated SuperNodes on this machine. At moments drawn from
the seed, in the exchange, in training and after a site withdrew examples, one of these gets
SIGKILL: a SuperNode with its children, a ClientApp, the ServerApp, the SuperLink. Supervisors start
SuperNodes and the SuperLink again, and a run that failed is given again by the same command.

At the end the model is compared with one of the embedded engine, without any kill, from an exchange
of its own: in each round those answer who answered here, and examples are withdrawn between the
same rounds. Both must agree to the rounding of 32-bit answers (relative 1e-5, absolute 1e-7).
Batches are full, and p is given. Besides: the copies that exist are those that d_j counts,
coverages add up to M, the server's receipts are those of both sides, nobody holds what was
withdrawn, and no example was in the SuperLink's database at any time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import chaos_checks as checks
from fedcommons import datasets
from fedcommons.errors import FederationError
from fedcommons.federate.apps.new_app import write_app
from fedcommons.federate.deploy.deployment import Deployment
from fedcommons.federate.deploy.leftovers import processes_of
from fedcommons.federate.deploy.supervisor import Process
from fedcommons.federate.protocol.commits import Commit

KINDS = ("supernode", "clientapp", "serverapp", "superlink")
N_OWN = 60  # examples of a site, half of them shareable
PATIENCE = 900.0  # seconds without a new round or commit after which something is wrong
# Printed by Flower's SuperNode when it has begun to take in a message of a run that is over, as the
# SuperLink may hand out when it is up again. It counts that message as one to be answered, so that
# from then on it hands in each reply when it gets the next message: too late, for ever, until it is
# started again.
IS_BEHIND = "Ignoring message"
CONFIG = {
    "estimator": "memory",
    "warm": False,
    "straggler-prob": 0.3,
    "fraction-evaluate": 0.0,
    "timeout": 420.0,
    "deadline": 20.0,
    "late": "discard",  # the run without a kill knows who answered in time, and no more
}


@dataclass(frozen=True, slots=True)
class Kill:
    """What was killed, when, and in the midst of what."""

    what: str
    during: str
    after_round: int
    seconds: float


def write_data(folder: Path, sites: list[str]) -> dict[str, Path]:
    """Digits of few classes for each site; a row of pixels of each is its mark."""
    mnist, rng, paths = datasets.mnist(), np.random.default_rng(0), {}
    for k, site in enumerate(sites):
        rows = rng.permutation(np.flatnonzero(mnist.y_train % len(sites) == k))[:N_OWN]
        x = np.array(mnist.x_train[rows], np.uint8).reshape(N_OWN, 28, 28)
        x[:, 0] = [np.frombuffer(checks.mark(row, site), np.uint8) for row in range(N_OWN)]
        paths[site] = folder / f"{site}.npz"
        shareable = np.arange(N_OWN) % 2 == 0
        np.savez(paths[site], x=x, y=mnist.y_train[rows], shareable=shareable)
    return paths


class Chaos:
    """A federation's life among kills, driven until all have happened and it is calm again.

    A run is given `leg` rounds at a time.
    """

    def __init__(
        self,
        deployment: Deployment,
        app: Path,
        config: dict[str, Any],
        leg: int,
        rng: np.random.Generator,
    ) -> None:
        self.deployment, self.app, self.config, self.rng = deployment, app, config, rng
        self.leg = leg
        self.state = Path(config["state-dir"])
        self.start = time.monotonic()
        self.kills: list[Kill] = []
        self.requests: list[checks.Request] = []
        self.runs: Counter[str] = (
            Counter()
        )  # how those ended that were not killed with their server
        self._seen = self.start, -1
        self._run: Process | None = None
        self._scanned = 0.0
        self.n_behind = 0  # SuperNodes that had to be restarted, see IS_BEHIND

    # What is there

    @property
    def commit(self) -> Commit | None:
        newest = max((self.state / "commits").glob("*.json"), default=None)
        return None if newest is None else Commit.decode(newest.read_bytes())

    @property
    def n_rounds(self) -> int:
        return len(checks.rounds_of(self.state))

    @property
    def during(self) -> str:
        if (commit := self.commit) is None:
            return "exchange"
        is_heard = len(checks.heard(commit, self.requests)) == len(self.requests)
        return "training" if is_heard else "withdrawal"

    def pids(self, program: str) -> list[int]:
        """The processes of this deployment that run one of Flower's programs."""
        found = []
        for pid in processes_of(self.deployment.folder):
            with contextlib.suppress(OSError):
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if any(Path(a.decode(errors="replace")).name == program for a in arguments[:2]):
                    found.append(pid)
        return found

    # Living

    def live_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for a condition; meanwhile runs that ended are given again."""
        while not is_so():
            self._look()
            time.sleep(0.2)

    def live_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.live_until(lambda: time.monotonic() >= end)

    def _look(self) -> None:
        if self._run is not None and self._run.exit_code() is not None:
            done = "has completed" if "finished:completed" in self._status() else "has failed"
            self.runs[done] += 1
            self._run = None
            time.sleep(1)
        if self._run is None:
            run = {**self.config, "num-rounds": self.n_rounds + self.leg}
            if self.commit is not None:
                run["wait"] = 15  # who is not back by then comes in later
            self._run = self.deployment.operator.start_run(self.app, run)
        now = time.monotonic()
        if now - self._scanned > 1:
            self._scanned = now
            seen = checks.marks_in(list(self.deployment.folder.glob("superlink.db*")))
            assert not seen, f"examples in the SuperLink's database: {seen}"
            self._restart_who_is_behind()
            progress = self.n_rounds
            if progress > self._seen[1]:
                self._seen = now, progress
            if now - self._seen[0] > PATIENCE:
                log = self._run.output()[-4000:]
                raise FederationError(f"no new round in {PATIENCE:g} s").showing(log)

    def _restart_who_is_behind(self) -> None:
        for node in self.deployment.nodes.values():
            process = node.supernode.process
            if process is not None and process.has_printed(IS_BEHIND):
                node.supernode.stop()
                node.supernode.start()
                self.n_behind += 1

    def _status(self) -> str:
        """How the run ended, in Flower's words."""
        assert self._run is not None
        try:
            return self.deployment.operator.finish_run(self._run, 60).status
        except FederationError:  # it could not even be started
            return "failed"

    # Killing

    def strike(self, what: str) -> None:
        """Kill one of a kind as soon as there is one, and start again what nobody else does."""
        while True:
            self.live_until(lambda: bool(self._there(what)))
            there = self._there(what)
            if not there:
                continue
            victim = there[self.rng.integers(len(there))]
            kill = Kill(what, self.during, self.n_rounds, round(time.monotonic() - self.start, 1))
            if not isinstance(victim, int):
                victim.kill()
                break
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(victim, signal.SIGKILL)
                break
        self.kills.append(kill)
        if what in ("serverapp", "superlink") and self._run is not None:
            self._run.kill()  # the operator's command: it may not notice for a minute
            self._run = None
            self.runs["was killed with its server"] += 1
        if what == "superlink":
            time.sleep(self.rng.uniform(0, 3))
            self.deployment.start_superlink()

    def _there(self, what: str) -> list[Any]:
        """What of a kind can be killed now."""
        if what == "superlink":
            return [self.deployment.superlink]
        if what == "supernode":
            nodes = [node.supernode for node in self.deployment.nodes.values()]
            return [supernode for supernode in nodes if supernode.is_up]
        return self.pids(f"flwr-{what}")

    def ask_to_withdraw(self) -> None:
        """A site's operator withdraws a shared and a private example."""
        sites = sorted(self.deployment.nodes)
        site = sites[self.rng.integers(len(sites))]
        gone = {row for request in self.requests if request.site == site for row in request.rows}
        rows = [
            int(self.rng.choice([r for r in range(N_OWN) if r % 2 == odd and r not in gone]))
            for odd in (0, 1)
        ]
        request = checks.Request(site, tuple(rows))
        checks.withdraw(self.deployment.nodes[site].store, request)
        self.requests.append(request)

    # All of it

    def happen(self, phases: list[str], kinds: list[str], rounds: int) -> None:
        for k, (phase, kind) in enumerate(zip(phases, kinds, strict=True)):
            before = self.n_rounds
            if phase != "exchange":  # life goes on between two kills
                self.live_until(lambda before=before: self.n_rounds > before)
            if phase == "withdrawal":
                self.ask_to_withdraw()
            self.live_for(self.rng.uniform(0, 12 if phase == "exchange" else 8))
            self.strike(kind)
            last, n_left = self.kills[-1], len(phases) - k - 1
            minutes = last.seconds / (k + 1) * n_left / 60
            print(
                f"{last.seconds:6.0f} s  kill {k + 1}/{len(phases)}: {kind} in {last.during}, "
                f"after round {last.after_round}; about {minutes:.0f} min left",
                flush=True,
            )
        self.live_until(lambda: self._is_calm(rounds))
        if self._run is not None:  # its last rounds, and the results
            self.deployment.operator.finish_run(self._run, PATIENCE)
            self.runs["has completed"] += 1

    def _is_calm(self, rounds: int) -> bool:
        """Whether a run has completed in whose last round all answered, under all withdrawals."""
        if self._run is None or self._run.exit_code() is None or self.during != "training":
            return False
        notes = checks.rounds_of(self.state)
        all_answered = bool(notes) and all(site.answered for site in notes[-1].sites)
        return len(notes) >= rounds and all_answered and "completed" in self._status()


@contextlib.contextmanager
def kept_if_it_fails(folder: Path, where: Path | None) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if where is not None:
            shutil.copytree(folder, where)
        raise


def measure(arguments: argparse.Namespace, outside: Path) -> dict[str, Any]:
    rng = np.random.default_rng(arguments.seed)
    sites = [f"site-{k}" for k in range(arguments.sites)]
    data = write_data(outside, sites)
    n_exchange, n_withdrawal = -(-arguments.kills // 5), -(-arguments.kills // 4)
    phases = ["withdrawal"] * n_withdrawal
    phases += ["training"] * (arguments.kills - n_exchange - n_withdrawal)
    phases = ["exchange"] * n_exchange + rng.permutation(phases).tolist()
    kinds = rng.permutation(np.resize(arguments.what, arguments.kills)).tolist()
    with Deployment(database=True) as deployment:
        deployment.add_sites(sites, data=data)
        for site in sites:  # a draw that was cut off is begun anew, which sites allow three times
            deployment.set_policy(site, {"draws": 3 + arguments.kills})
        app, state = deployment.folder / "digits", deployment.folder / "state"
        write_app(app)
        config = {**CONFIG, "sites": len(sites), "seed": arguments.seed}
        config["copies"] = min(2, len(sites) - 2)  # sites refuse to share with all others
        leg = max(2, arguments.rounds // 4)
        chaos = Chaos(deployment, app, {**config, "state-dir": str(state)}, leg, rng)
        with kept_if_it_fails(deployment.folder, arguments.keep):
            chaos.happen(phases, kinds, arguments.rounds)
            print("calm again; what everybody holds, then the same without a kill", flush=True)
            notes, model = checks.rounds_of(state), checks.model_of(state)
            for node in deployment.nodes.values():
                node.supernode.stop()
            stores = {site: deployment.nodes[site].store for site in sites}
            held = checks.check_stores(stores, state)
            n_marks = checks.check_marks(deployment.folder, chaos.requests)
            replayed = app, data, config, state, chaos.requests
            same = checks.replay(outside / "same", *replayed)
            other = checks.replay(outside / "other", *replayed, all_answer=True)
    return {
        "kills": [asdict(kill) for kill in chaos.kills],
        "runs": dict(chaos.runs),
        "SuperNodes restarted": chaos.n_behind,
        "rounds": len(notes),
        "absences": sum(not site.answered for note in notes for site in note.sites),
        "withdrawals": [asdict(request) for request in chaos.requests],
        "held": held,
        "marks at recipients": n_marks,
        "seconds": round(time.monotonic() - chaos.start, 1),
        "difference": checks.largest_difference(model, same),
        "had all answered": checks.largest_difference(model, other),
        "same": all(
            np.allclose(model[name], same[name], rtol=checks.RTOL, atol=checks.ATOL)
            for name in model
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20, help="at least so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--what", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="a new folder for what is there if it fails")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends what was started
    with tempfile.TemporaryDirectory() as outside:
        found = measure(arguments, Path(outside))
    for title, values in (
        ("killed", Counter(kill["what"] for kill in found["kills"])),
        ("in the midst of", Counter(kill["during"] for kill in found["kills"])),
        ("runs", found["runs"]),
    ):
        print(f"{title:16} {', '.join(f'{name} {n}' for name, n in values.items())}")
    print(f"{found['SuperNodes restarted']} times a SuperNode was behind and had to be restarted")
    print(
        f"{found['rounds']} rounds, {found['absences']} answers missing, "
        f"{len(found['withdrawals'])} withdrawals, {found['seconds']:.0f} s"
    )
    print(
        f"largest difference of a parameter from the run without a kill: "
        f"{found['difference']:.2g} (had all sites answered: {found['had all answered']:.2g})"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    if not found["same"]:
        sys.exit("the models differ")


if __name__ == "__main__":
    main()
