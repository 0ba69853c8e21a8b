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
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from fedcommons.errors import FederationError
from fedcommons.federate import certificates
from fedcommons.federate.store import Store
from fedcommons.federate.supervisor import Process, Supervisor, wait_until

CONNECTION = "local"
HOST = "127.0.0.1"
START_SECONDS = 60.0
NODE_IS_UP = "SuperNode ID:"  # printed once the SuperLink has taken the node in
OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


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
        command = [
            _program("flower-superlink"),
            *("--host", HOST, "--port", str(self.port)),
            *("--ssl-ca-certfile", str(self.tls.ca)),
            *("--ssl-certfile", str(self.tls.certificate), "--ssl-keyfile", str(self.tls.key)),
            "--enable-supernode-auth",
        ]
        if self.database:
            command += ["--database", str(self.folder / "superlink.db")]
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
        self._connections[name] = connection(name, address, self.tls.ca)
        home = self.folder / "operator"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text("".join(self._connections.values()), encoding="utf-8")

    def _environment(self, home: str) -> dict[str, str]:
        """Flower offline, with a home of its own and this Python's programs found first."""
        folder = self.folder / home
        folder.mkdir(exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # many processes share it
        own = {"FLWR_HOME": str(folder), "PATH": path}
        return {**os.environ, **OFFLINE, **threads, **self.environment, **own}

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
                lambda config=config, key=folder / "node.key": self._supernode_command(  # type: ignore[misc]
                    config, key, superlink or self.address
                ),
                self.logs / f"{name}.log",
                env,
                NODE_IS_UP,
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
        self, config: Mapping[str, Any], key: Path, superlink: str
    ) -> Sequence[str]:
        return [
            _program("flower-supernode"),
            *("--superlink", superlink, "--port", str(free_port())),
            *("--root-certificates", str(self.tls.ca)),
            *("--auth-supernode-private-key", str(key)),
            *("--node-config", node_config(config)),
        ]

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
        return _last_json(process.output())

    def start_flwr(self, *arguments: str) -> Process:
        """A command of Flower's own, as the operator gives it."""
        return self.start_process([_program("flwr"), *arguments], "flwr")

    def start_process(self, command: Sequence[str], name: str) -> Process:
        """Any other program that should end with the deployment."""
        self._n_commands += 1
        log = self.logs / f"{name}-{self._n_commands:03d}.log"
        process = Process(command, log, self._environment("operator"))
        self._others.append(process)
        return process

    def start_run(self, app: Path, run_config: Mapping[str, Any]) -> Process:
        """`flwr run --stream`; it ends when the run does."""
        given = ["--run-config", node_config(run_config)] if run_config else []
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


def _program(name: str) -> str:
    """A program of this Python's own environment."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise FederationError(f"{path} is missing: pip install 'fedcommons[flower]'")
    return str(path)


def _last_json(output: str) -> dict[str, Any]:
    """The JSON object at the end of what a command printed."""
    start = output.rfind("\n{")
    try:
        return json.loads(output[start + 1 :] if start >= 0 else output)
    except ValueError:
        raise FederationError(f"Flower's answer is not JSON:\n{output[-2000:]}") from None


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


def connection(name: str, address: str, ca: Path) -> str:
    """An entry of Flower's config.toml."""
    return (
        f"[superlink.{name}]\naddress = {json.dumps(address)}\n"
        f"root-certificates = {json.dumps(str(ca))}\n\n"
    )


def node_config(values: Mapping[str, Any]) -> str:
    """key=value pairs as Flower's command line wants them."""
    return " ".join(f"{key}={json.dumps(value)}" for key, value in values.items())


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
