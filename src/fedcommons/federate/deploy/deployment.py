"""A real Flower deployment on this machine: SuperLink, TLS, authenticated SuperNodes.

For the demo, the tests and the benchmarks. Everything lives in a temporary folder with an
FLWR_HOME of its own, and everything that was started is ended, whatever happens.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from fedcommons.errors import FederationError
from fedcommons.federate.deploy import certificates, programs
from fedcommons.federate.deploy.supervisor import Process, Supervisor, wait_until
from fedcommons.federate.site.store import Store

CONNECTION = "local"
HOST = "127.0.0.1"
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """A run that ended: its number, Flower's word for how, and its log."""

    run_id: int
    status: str
    log: str

    @property
    def is_completed(self) -> bool:
        return self.status == "finished:completed"


@dataclass(slots=True)
class Node:
    """A site of the deployment: its folder, its store's public key, and its SuperNode."""

    name: str
    folder: Path
    identity: str
    supernode: Supervisor

    @property
    def store(self) -> Path:
        return self.folder / "store"


class Deployment:
    """A SuperLink and SuperNodes as separate processes, from `with` to its end.

    Sites get their SuperNode keys, identities and files of pinned keys when they are added, so add
    all of them before the first run.
    """

    def __init__(
        self, *, database: bool = False, environment: Mapping[str, str] | None = None
    ) -> None:
        self.database = database
        self.environment = dict(environment or {})
        self.nodes: dict[str, Node] = {}
        self.superlink: Process | None = None
        self._others: list[Process] = []
        self._connections: dict[str, str] = {}
        self._n_commands = 0

    # From beginning to end

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="fedcommons-"))
        try:
            self.logs = self.folder / "logs"
            self.logs.mkdir()
            self.tls = certificates.write_tls(self.folder / "tls")
            self.start_superlink()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process and remove the folder; being asked to hurry does not stop it."""
        with _undisturbed():
            with ThreadPoolExecutor(max_workers=16) as pool:
                for node in self.nodes.values():
                    pool.submit(node.supernode.stop, 3.0)
                for process in self._others:
                    pool.submit(process.stop, 3.0)
            if self.superlink is not None:
                self.superlink.stop(3.0)
            end_processes_of(self.folder)
            shutil.rmtree(self.folder, ignore_errors=True)

    # The SuperLink

    def start_superlink(self, environment: Mapping[str, str] | None = None) -> None:
        """Start the SuperLink, on the port that it had if it had one, and wait until it answers."""
        if self.superlink is not None:
            self._launch_superlink(environment)
        else:
            for attempts_left in (2, 1, 0):  # somebody else may take the port meanwhile
                self.port = free_port()
                try:
                    self._launch_superlink(environment)
                    break
                except FederationError:
                    if not attempts_left:
                        raise
        self.add_connection(CONNECTION, self.address)

    def _launch_superlink(self, environment: Mapping[str, str] | None) -> None:
        database = self.folder / "superlink.db" if self.database else None
        command = programs.superlink(HOST, self.port, self.tls, database)
        env = self._environment("superlink") | dict(environment or {})
        process = self.superlink = Process(command, self.logs / "superlink.log", env)
        wait_until(
            "SuperLink",
            lambda: is_healthy(self.port, self.tls.ca) or process.exit_code() is not None,
            START_SECONDS,
        )
        if process.exit_code() is not None:
            raise FederationError(f"the SuperLink did not start:\n{process.output()[-2000:]}")

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def add_connection(self, name: str, address: str) -> None:
        """Let `flwr` know an address by a name."""
        self._connections[name] = programs.connection(name, address, self.tls.ca)
        home = self.folder / "operator"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text("".join(self._connections.values()), encoding="utf-8")

    def _environment(self, home: str) -> dict[str, str]:
        """Of a process that has this folder of the deployment for a home."""
        folder = self.folder / home
        folder.mkdir(exist_ok=True)
        return programs.environment(folder, self.environment)

    # Sites

    def add_sites(
        self,
        names: Sequence[str],
        *,
        data: Mapping[str, Path] | None = None,
        superlink: str | None = None,
        environment: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Make sites with pinned keys, register their SuperNodes, start them, wait for them.

        Without `data` they share the embedded digits out among them. `superlink` is an address
        other than the SuperLink's own; `environment` adds variables to a site's SuperNode.
        """
        identities = {name: self._make_site(name) for name in names}
        for place, name in enumerate(names):
            folder = self.folder / name
            write_peers(folder / "peers.toml", {n: i for n, i in identities.items() if n != name})
            config = {
                "site": name,
                "store": str(folder / "store"),
                "peers": str(folder / "peers.toml"),
                "partition-id": place,
                "num-partitions": len(names),
            }
            if data:
                config["data"] = str(data[name])
            env = self._environment(name) | dict((environment or {}).get(name, {}))
            supernode = Supervisor(
                partial(self._supernode_command, superlink or self.address, folder, config),
                self.logs / f"{name}.log",
                env,
                programs.NODE_IS_UP,
            )
            self.nodes[name] = Node(name, folder, identities[name], supernode)
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(self.register, names))
        for name in names:
            self.nodes[name].supernode.start()
        for name in names:
            self.wait_for(name)

    def _make_site(self, name: str) -> str:
        folder = self.folder / name
        folder.mkdir()
        certificates.write_node_key(folder / "node.key")
        store = Store(folder / "store", create=True)
        identity = store.identity.name
        store.close()
        return identity

    def register(self, name: str) -> None:
        """Let the SuperLink know a site's SuperNode by its public key."""
        key = self.folder / name / "node.pub"
        self.flwr("supernode", "register", str(key), CONNECTION, "--format", "json")

    def _supernode_command(
        self, superlink: str, folder: Path, config: Mapping[str, Any]
    ) -> Sequence[str]:
        """Made anew at each start: another process may have taken the port."""
        key = folder / "node.key"
        return programs.supernode(superlink, free_port(), ca=self.tls.ca, key=key, config=config)

    def wait_for(self, name: str, seconds: float = 120.0) -> float:
        """Wait until a site's SuperNode is in: the seconds that it took."""
        supernode = self.nodes[name].supernode
        try:
            return wait_until(f"SuperNode {name}", lambda: supernode.is_up, seconds)
        except FederationError as error:
            output = supernode.process.output()[-2000:] if supernode.process else ""
            raise FederationError(f"{error}\n{output}") from None

    # Commands

    def flwr(self, *arguments: str, seconds: float = 60.0) -> dict[str, Any]:
        """A command of Flower's own whose answer is JSON."""
        process = self.start_flwr(*arguments)
        if process.wait(seconds) != 0:
            process.kill()
            raise FederationError(f"flwr {' '.join(arguments)} failed:\n{process.output()[-2000:]}")
        return programs.last_json(process.output())

    def start_flwr(self, *arguments: str) -> Process:
        """A command of Flower's own, as the operator gives it."""
        return self.start_process(programs.flwr(*arguments), "flwr")

    def start_process(self, command: Sequence[str], name: str) -> Process:
        """Any other program that should end with the deployment."""
        self._n_commands += 1
        log = self.logs / f"{name}-{self._n_commands:03d}.log"
        process = Process(command, log, self._environment("operator"))
        self._others.append(process)
        return process

    def start_run(self, app: Path, run_config: Mapping[str, Any]) -> Process:
        """`flwr run --stream`; it ends when the run does."""
        given = ["--run-config", programs.pairs(run_config)] if run_config else []
        return self.start_flwr("run", str(app), CONNECTION, "--stream", *given)

    def finish_run(self, process: Process, seconds: float) -> Run:
        """Wait for a run, and ask the SuperLink how it ended."""
        code = process.wait(seconds)
        output = process.output()
        if code is None:
            process.kill()
            raise FederationError(f"the run did not end within {seconds:g} s:\n{output[-4000:]}")
        started = output.partition("Successfully started run ")[2].split()
        if not started:
            raise FederationError(f"the run was not started:\n{output[-4000:]}")
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
            raise FederationError(f"run {run.run_id} is {run.status}:\n{run.log[-4000:]}")
        return run


def processes_of(home: Path) -> list[int]:
    """All processes whose FLWR_HOME is below this folder, also orphans; none without /proc."""
    mark = f"FLWR_HOME={home}/".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found


def end_processes_of(home: Path) -> None:
    """End what is left: the SuperLink's helpers have process groups of their own.

    Where there is no /proc they end by themselves, when they notice that their parent did.
    """
    end = time.monotonic() + 5
    while (left := processes_of(home)) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def is_healthy(port: int, ca: Path) -> bool:
    """Whether a server on this machine answers by a certificate of this authority."""
    context = ssl.create_default_context(cafile=str(ca))
    link = http.client.HTTPSConnection(HOST, port, timeout=5, context=context)
    try:
        link.request("GET", "/health")
        return link.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        link.close()


def write_peers(path: Path, identities: Mapping[str, str]) -> None:
    """A file of pinned keys."""
    lines = [f"{json.dumps(name)} = {json.dumps(key)}\n" for name, key in identities.items()]
    path.write_text("[peers]\n" + "".join(lines), encoding="utf-8")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM are noted, and take effect afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if noted:
            signal.raise_signal(noted[0])
