"""A real Flower deployment on this machine: SuperLink, TLS, authenticated SuperNodes.

For the demo, the tests and the benchmarks. Everything is in a temporary folder with an FLWR_HOME of
its own, and every process that was started is ended, whatever happens.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedcommons.errors import FederationError
from fedcommons.federate.deploy import certificates, programs
from fedcommons.federate.deploy.leftovers import end_processes_of, undisturbed
from fedcommons.federate.deploy.operator import CONNECTION, Operator
from fedcommons.federate.deploy.superlink import SuperLink, free_port
from fedcommons.federate.deploy.supervisor import Supervisor, wait_until
from fedcommons.federate.site.store import Store


@dataclass(slots=True)
class Node:
    """A site of the deployment: its folder, its public key, and its SuperNode."""

    name: str
    folder: Path
    identity: str
    supernode: Supervisor

    @property
    def store(self) -> Path:
        return self.folder / "store"


class Deployment:
    """A SuperLink, its operator, and SuperNodes as separate processes, from `with` to its end.

    Sites get their SuperNode keys, identities and files of pinned keys when they are added, so add
    all of them before the first run.
    """

    def __init__(
        self, *, database: bool = False, environment: Mapping[str, str] | None = None
    ) -> None:
        self.database = database
        self.environment = dict(environment or {})
        self.nodes: dict[str, Node] = {}

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="fedcommons-"))
        try:
            self.logs = self.folder / "logs"
            self.logs.mkdir()
            home = self.folder / "operator"
            self.operator = Operator(home, self.logs, self._environment(home.name))
            log = self.logs / "superlink.log"
            self.superlink = SuperLink(self.folder, log, database=self.database)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        try:
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
        """End every process and remove the folder; Ctrl-C does not interrupt this."""
        with undisturbed():
            with ThreadPoolExecutor(max_workers=16) as pool:
                for node in self.nodes.values():
                    pool.submit(node.supernode.stop, 3.0)
                for process in self.operator.processes:
                    pool.submit(process.stop, 3.0)
            self.superlink.stop(3.0)
            end_processes_of(self.folder)
            shutil.rmtree(self.folder, ignore_errors=True)

    def start_superlink(self) -> None:
        """Start the SuperLink, or start it again on the same port."""
        self.superlink.start(self._environment("superlink"))
        self.operator.add_connection(CONNECTION, self.superlink.address, self.superlink.tls.ca)

    def _environment(self, home: str) -> dict[str, str]:
        """The environment of a process whose home is this folder of the deployment."""
        folder = self.folder / home
        folder.mkdir(exist_ok=True)
        return programs.environment(folder, {**programs.THREADS, **self.environment})

    # Sites

    def add_sites(
        self,
        names: Sequence[str],
        *,
        data: Mapping[str, Path] | None = None,
        superlink: str | None = None,
        environment: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Make sites with pinned keys, register and start their SuperNodes, and wait for them.

        Without `data` each site gets a part of the built-in digits. `superlink` is the address
        that SuperNodes use instead of the SuperLink's own; `environment` adds variables by site.
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
                partial(
                    self._supernode_command, superlink or self.superlink.address, folder, config
                ),
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

    def set_policy(self, name: str, rules: Mapping[str, Any]) -> None:
        """Write a site's policy; it holds from the next message on."""
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in rules.items()]
        (self.folder / name / "store" / "policy.toml").write_text("".join(lines), encoding="utf-8")

    def register(self, name: str) -> None:
        """Register the public key of a site's SuperNode with the SuperLink."""
        key = self.folder / name / "node.pub"
        self.operator.flwr("supernode", "register", str(key), CONNECTION, "--format", "json")

    def _supernode_command(
        self, superlink: str, folder: Path, config: Mapping[str, Any]
    ) -> Sequence[str]:
        """Made anew at each start, because another process may have taken the port."""
        key = folder / "node.key"
        return programs.supernode(
            superlink, free_port(), ca=self.superlink.tls.ca, key=key, config=config
        )

    def wait_for(self, name: str, seconds: float = 120.0) -> float:
        """Wait until a site's SuperNode is connected; the seconds that it took."""
        supernode = self.nodes[name].supernode
        try:
            return wait_until(f"SuperNode {name}", lambda: supernode.is_up, seconds)
        except FederationError as error:
            error.showing(supernode.process.output()[-2000:] if supernode.process else "")
            raise


def write_peers(path: Path, identities: Mapping[str, str]) -> None:
    """Write a file of pinned keys."""
    lines = [f"{json.dumps(name)} = {json.dumps(key)}\n" for name, key in identities.items()]
    path.write_text("[peers]\n" + "".join(lines), encoding="utf-8")
