"""The operator of a deployment: Flower's own commands, as they are typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcommons.errors import FederationError
from fedcommons.federate.deploy import programs
from fedcommons.federate.deploy.supervisor import Process

CONNECTION = "local"  # the name of the SuperLink's address in Flower's configuration


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has ended: its number, how it ended in Flower's words, and its log."""

    run_id: int
    status: str
    log: str

    @property
    def is_completed(self) -> bool:
        return self.status == "finished:completed"


class Operator:
    """Gives commands to a SuperLink from a home folder of its own."""

    def __init__(self, home: Path, logs: Path, environment: Mapping[str, str]) -> None:
        self.home, self.logs, self.environment = home, logs, dict(environment)
        self.processes: list[Process] = []
        self._connections: dict[str, str] = {}

    def add_connection(self, name: str, address: str, ca: Path) -> None:
        """Give the address of a SuperLink, with certificates of this authority, a name."""
        self._connections[name] = programs.connection(name, address, ca)
        text = "".join(self._connections.values())
        (self.home / "config.toml").write_text(text, encoding="utf-8")

    def flwr(self, *arguments: str, seconds: float = 60.0) -> dict[str, Any]:
        """Run a `flwr` command whose answer is JSON."""
        process = self.start_flwr(*arguments)
        if process.wait(seconds) != 0:
            process.kill()
            error = FederationError(f"flwr {' '.join(arguments)} failed")
            raise error.showing(process.output()[-2000:])
        return programs.last_json(process.output())

    def start_flwr(self, *arguments: str) -> Process:
        """Start a `flwr` command."""
        return self.start_process(programs.flwr(*arguments), "flwr")

    def start_process(self, command: Sequence[str], name: str) -> Process:
        """Start any other program; it ends with the deployment."""
        log = self.logs / f"{name}-{len(self.processes) + 1:03d}.log"
        process = Process(command, log, self.environment)
        self.processes.append(process)
        return process

    def start_run(self, app: Path, run_config: Mapping[str, Any]) -> Process:
        """Start `flwr run --stream`, which ends when the run does."""
        given = ["--run-config", programs.pairs(run_config)] if run_config else []
        return self.start_flwr("run", str(app), CONNECTION, "--stream", *given)

    def finish_run(self, process: Process, seconds: float) -> Run:
        """Wait for a run, and ask the SuperLink how it ended."""
        code = process.wait(seconds)
        output = process.output()
        if code is None:
            process.kill()
            error = FederationError(f"the run did not end within {seconds:g} s")
            raise error.showing(output[-4000:])
        started = output.partition("Successfully started run ")[2].split()
        if not started:
            raise FederationError("the run was not started").showing(output[-4000:])
        run_id = int(started[0])
        listed = self.flwr("list", CONNECTION, "--run-id", str(run_id), "--format", "json")
        return Run(run_id, listed["runs"][0]["status"], output)

    def run(self, app: Path, run_config: Mapping[str, Any], seconds: float = 300.0) -> Run:
        """Run an app to its end."""
        return self.finish_run(self.start_run(app, run_config), seconds)

    def run_to_completion(
        self, app: Path, run_config: Mapping[str, Any], seconds: float = 300.0
    ) -> Run:
        """Run an app, and raise unless it completes."""
        run = self.run(app, run_config, seconds)
        if not run.is_completed:
            raise FederationError(f"run {run.run_id} is {run.status}").showing(run.log[-4000:])
        return run
