"""Every command of docs/deploy.md, then of docs/maintenance.md, in order, on one machine."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from fedcommons.federate.deploy.deployment import write_peers
from fedcommons.federate.deploy.leftovers import end_processes_of
from fedcommons.federate.deploy.superlink import free_port, is_healthy
from fedcommons.federate.deploy.supervisor import Process, wait_until
from tests.federate.deploy.leftovers import is_listening, processes_that_know
from tests.federate.deploy.proxied import need_nginx

DOCS = Path(__file__).parents[3] / "docs"
SITES = ["hospital-a", "hospital-b", "hospital-c"]
BACKGROUND = "# keeps running\n"
ONCE = {  # sections for each site, of which one tells enough
    "At each site: have it started with the machine",
    "At each site: make a backup",
    "At each site: install a newer fedcommons",
}


def blocks(language: str) -> list[tuple[str, str]]:
    """(heading, code) of every block in this language, in the order of the pages."""
    found, heading = [], ""
    text = "".join((DOCS / page).read_text() for page in ("deploy.md", "maintenance.md"))
    for match in re.finditer(r"^## ([^\n]*)$|^```(\w+)\n(.*?)^```$", text, re.M | re.S):
        if match[1]:
            heading = match[1]
        elif match[2] == language:
            found.append((heading, match[3]))
    return found


@dataclass
class Machines:
    """Shells on the server and at the sites, all on this machine, below one folder."""

    root: Path
    fleet_port: int = field(default_factory=free_port)
    link_port: int = field(default_factory=free_port)
    running: dict[str, Process] = field(default_factory=dict)

    def here(self, code: str, site: str) -> str:
        """The page's names, folders and ports as they are in this test."""
        for page, ours in {
            "federation.example.org:9092": f"localhost:{self.fleet_port}",
            "0.0.0.0:9092": f"127.0.0.1:{self.fleet_port}",
            "127.0.0.1:8000": f"127.0.0.1:{self.link_port}",
            "--port 8000": f"--port {self.link_port}",
            "/srv/": f"{self.root}/srv/",
            "/opt/": f"{self.root}/opt/",
            "useradd ": self.useradd(site),
            "--owner=federation": f"--owner={os.getuid()}",
            "chown -R federation: ": ": ",  # whom this machine does not have
        }.items():
            code = code.replace(page, ours)
        return code.replace("hospital-a", site) if site else code

    def useradd(self, who: str) -> str:
        """The command that makes an account, in a folder instead of on this machine.

        Even so only root may do it: for others it does nothing.
        """
        folder = self.root / f"{who or 'server'}.accounts"
        (folder / "etc").mkdir(parents=True, exist_ok=True)
        return f"useradd --prefix {folder} " if os.getuid() == 0 else ": "

    def session(self, who: str) -> tuple[Path, dict[str, str]]:
        """A file with a shell's variables and folder, and the environment that it starts from."""
        file = self.root / f"{who or 'server'}.session"
        file.touch()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"  # useradd
        home = {"HOME": str(self.root), "FLWR_HOME": str(self.root / "none")}
        calm = {"OPENBLAS_NUM_THREADS": "1"}
        return file, {**os.environ, **home, **calm, "PATH": path}

    def run(self, code: str, site: str = "") -> str:
        """Run a block to its end, in the shell that ran the earlier ones: what it printed."""
        file, env = self.session(site)
        script = f". {file}\n{self.here(code, site)}\n{{ export -p; echo cd $PWD; }} > {file}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            env=env,
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, code: str, site: str = "") -> None:
        """Start a block that keeps running, and wait until it is of use."""
        file, env = self.session(site)
        name = site or code.removeprefix(BACKGROUND).split()[0]
        script = f". {file}\n{self.here(code, site)}"
        process = Process(["bash", "-euc", script], self.root / f"{name}.log", env)
        self.running[name] = process
        ca = self.root / "srv" / "federation" / "tls" / "ca.pem"
        is_ready = {
            "flower-superlink": lambda: is_healthy(self.link_port, ca),
            "nginx": lambda: is_listening(self.fleet_port),
        }.get(name, lambda: process.has_printed("SuperNode ID:"))
        wait_until(name, lambda: is_ready() or process.exit_code() is not None, 60)
        assert process.exit_code() is None, process.output()


@pytest.fixture
def machines(tmp_path):
    need_nginx()
    there = Machines(tmp_path)
    (tmp_path / "srv").mkdir()
    (tmp_path / "opt").mkdir()
    yield there
    for process in reversed(there.running.values()):
        process.stop(3)
    end_processes_of(tmp_path)
    assert processes_that_know(tmp_path) == []


def what_people_do(machines: Machines, heading: str, printed: dict[str, str]) -> None:
    """What the page has people do by hand before the commands of a section."""
    srv = machines.root / "srv"
    if heading == "At each site: unpack the kit, and make keys":
        for kit in (srv / "federation" / "kits").iterdir():
            shutil.copy(kit, srv / kit.name)
    elif heading == "On the server: let the sites in":
        (srv / "federation" / "nodes").mkdir()
        for site in SITES:
            public = srv / site / "node.pub"
            shutil.copy(public, srv / "federation" / "nodes" / f"{site}.pub")
    elif heading == "At each site: check, and start":
        rng = np.random.default_rng(0)
        keys = {site: re.search(r"^[0-9a-f]{64}$", printed[site], re.M)[0] for site in SITES}
        for label, site in enumerate(SITES):
            x = rng.integers(0, 256, (64, 784), np.uint8)
            marks = np.arange(64) % 2 == 0
            np.savez(srv / site / "data.npz", x=x, y=np.full(64, label), shareable=marks)
            np.savez(srv / site / "held-out.npz", x=x[:40], y=np.full(40, label))
            others = {name: key for name, key in keys.items() if name != site}
            write_peers(srv / site / "peers.toml", others)
            path = srv / site / "site.toml"
            text = path.read_text().replace("# held-out = ", "held-out = ")
            path.write_text(text.replace("# port = 9094", f"port = {free_port()}"))


def make_pip_find_us(root: Path) -> None:
    """The new environment sees this one's packages, so that nothing needs to be fetched."""
    (packages,) = (root / "opt" / "fedcommons" / "lib").glob("python*/site-packages")
    ours = Path(np.__file__).parents[1]
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({str(ours)!r})\n")


def test_the_page_takes_an_operator_from_nothing_to_a_federation(machines):
    seen, printed = set(), dict.fromkeys(["", *SITES], "")
    for heading, code in blocks("sh"):
        if heading not in seen:
            what_people_do(machines, heading, printed)
            seen.add(heading)
        for site in sites_of(heading):
            if code.startswith(BACKGROUND):
                machines.start(code, site)
            elif "-m venv" in code:
                first, rest = code.split("\n", 1)
                if not site:  # they all share the server's
                    machines.run(first)
                    make_pip_find_us(machines.root)
                printed[site] += machines.run(rest, site)
            else:
                printed[site] += machines.run(code, site)
    check_what_happened(printed)


def sites_of(heading: str) -> list[str]:
    """Where a section's commands are given; "" is the server."""
    if heading.startswith("At each site") and heading not in ONCE:
        return SITES
    return ["hospital-a"] if heading.startswith(("At one site", "At each site")) else [""]


def check_what_happened(printed: dict[str, str]) -> None:
    server = printed[""]
    assert "6 deliveries, 192 examples" in server
    assert "round 1/1" in server
    assert "going on after round 1" in server
    assert "round 2/2" in server
    assert "hospital-c left the federation" in server
    assert "nothing is renewed: more than 60 days are left" in server
    assert "hospital-a is pinned" in server
    assert server.count("server.pem is valid until") == 3
    assert "round 3/3" in server
    assert "died, as asked" in server
    assert "report.html" in server
    assert "fingerprint of ca.pem" in server
    assert "state-restored is restored" in server
    for said in (
        "2 examples are withdrawn",
        "units/supernode.service",
        "is whole: the store of hospital-a",
        "the newest, and whole",
    ):
        assert said in printed["hospital-a"]
    for site in SITES:
        others = [other for other in SITES if other != site]
        assert all(f"held from {other}" in printed[site] for other in others)
        assert "what leaves: the coded answer alone" in printed[site]
        assert re.search(r"policy: apps +[0-9a-f]{64}$", printed[site], re.M)
        assert re.search(r"^ok +link .* answers by TLS; clocks are", printed[site], re.M)
        assert "the next exchange is approved" in printed[site]
