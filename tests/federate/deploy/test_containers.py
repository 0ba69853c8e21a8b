"""The image file and the compose file: what their containers run is run here, without any."""

import os
import re
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from fedcommons.federate.deploy.leftovers import end_processes_of
from fedcommons.federate.deploy.superlink import free_port
from fedcommons.federate.deploy.supervisor import Process, wait_until
from tests.federate.deploy.leftovers import processes_that_know
from tests.federate.deploy.proxied import PATH, need_nginx
from tests.federate.deploy.test_deploy_page import make_pip_find_us

ROOT = Path(__file__).parents[3]
CONTAINERS = ROOT / "containers"
COMPOSE = yaml.safe_load((CONTAINERS / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
IMAGE = (CONTAINERS / "Dockerfile").read_text().replace("\\\n", " ")
SCRIPT = CONTAINERS / "federation.sh"
FEW = ["site-0", "site-1", "site-2"]  # of the five, for the machine's sake
VENV = Path(sys.executable).parent


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, by its name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in IMAGE.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            base, name = rest.split(" AS ")
            found[name] = [*found.get(base, []), ("FROM", base)]
        elif word and not word.startswith("#"):
            found[name].append((word, rest))
    return found


def test_images_run_as_an_account_without_rights_from_a_pinned_base_and_hold_no_secret():
    for name, lines in stages().items():
        for base in (rest for word, rest in lines if word == "FROM"):
            assert base in stages() or re.fullmatch(r"python:3\.\d+-slim-[a-z]+", base)
        for rest in (rest for word, rest in lines if word == "COPY" and "--from" not in rest):
            for source in [one for one in rest.split() if not one.startswith("--")][:-1]:
                assert (ROOT / source).exists()
                top = f"!{Path(source).parts[0]}"
                assert top in (ROOT / ".dockerignore").read_text().splitlines()
        if name != "built":
            assert [rest for word, rest in lines if word == "USER"][-1] == "10001:10001"
            assert [word for word, _ in lines].count("HEALTHCHECK") >= 1
    assert not re.search(r"key|pem|secret|password", re.sub(r"#.*", "", IMAGE), re.I)


def test_services_have_no_rights_start_in_order_and_are_looked_at():
    words = re.findall(r"^([a-z-]+)\)", SCRIPT.read_text(), re.M)
    default = re.search(r"^SITES=\$\{SITES:-(.*)\}$", SCRIPT.read_text(), re.M)[1].split()
    assert [name for name in SERVICES if name.startswith("site-")] == default
    for name, service in SERVICES.items():
        assert service["read_only"] is service["init"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "ports" not in service  # nothing but the fleet's network reaches the server
        assert service["build"]["target"] in stages()
        assert set(service["depends_on"] if name != "prepare" else ()) <= set(SERVICES)
        assert service["command"][0] in words
        assert {volume.split(":")[0] for volume in service["volumes"]} <= set(COMPOSE["volumes"])
        mode = service.get("network_mode", "")
        assert mode in ("", "none", "service:server")
        assert bool(mode) != bool(service.get("networks"))
        if name.startswith("site-"):
            assert service["environment"] == {"SITE": name}
            assert service["volumes"] == [f"{name}:/srv/site", "post:/srv/post"]


@pytest.mark.parametrize(
    ("program", "files"), [("hadolint", ["Dockerfile"]), ("shellcheck", ["*.sh"])]
)
def test_linters_find_nothing(program, files):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    paths = [path for one in files for path in CONTAINERS.glob(one)]
    done = subprocess.run([program, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@dataclass
class Host:
    """Runs services as a container engine would, with folders in place of volumes."""

    root: Path
    fleet: int = field(default_factory=free_port)
    link: int = field(default_factory=free_port)
    running: dict[str, Process] = field(default_factory=dict)

    def environment(self, name: str) -> dict[str, str]:
        for folder in ("federation", "state", "post", name):
            (self.root / folder).mkdir(exist_ok=True, mode=0o700)
        return {
            **{key: os.environ[key] for key in ("HOME", "OPENBLAS_NUM_THREADS")},
            "PATH": f"{VENV}:{PATH}",
            "SERVER_FOLDER": str(self.root / "federation"),
            "STATE_FOLDER": str(self.root / "state"),
            "SITE_FOLDER": str(self.root / name),
            "POST": str(self.root / "post"),
            "SITES": " ".join(FEW),
            "HOST": "localhost",
            "FLEET_ADDRESS": "127.0.0.1",
            "FLEET_PORT": str(self.fleet),
            "LINK_PORT": str(self.link),
            "NODE_PORT": str(free_port()),
            "DIGITS": str(CONTAINERS / "digits.py"),
            **SERVICES[name].get("environment", {}),
        }

    def start(self, name: str, *more: str) -> Process:
        command = [str(SCRIPT), *SERVICES[name]["command"], *more]
        log = self.root / f"{name}.log"
        process = self.running[name] = Process(command, log, self.environment(name))
        return process

    def finish(self, name: str, *more: str) -> str:
        process = self.start(name, *more)
        code = process.wait(300)
        assert code == 0, process.output()
        return process.output()

    def wait(self, name: str) -> None:
        """Until the service's health check, or its image's, finds it healthy."""
        target = SERVICES[name]["build"]["target"]
        of_image = [rest for word, rest in stages()[target] if word == "HEALTHCHECK"][-1]
        check = SERVICES[name].get("healthcheck", {}).get("test", ["CMD", *words_of(of_image)])
        assert check[:2] == ["CMD", "federation"]

        def is_healthy() -> bool:
            assert self.running[name].exit_code() is None, self.running[name].output()
            done = subprocess.run(
                [SCRIPT, *check[2:]], env=self.environment(name), capture_output=True, check=False
            )
            return done.returncode == 0

        wait_until(name, is_healthy, 180, poll=1)


def words_of(healthcheck: str) -> list[str]:
    return re.findall(r'"([^"]+)"', healthcheck.partition("CMD ")[2])


@pytest.fixture
def host(tmp_path):
    need_nginx()
    found = Host(tmp_path)
    yield found
    for process in reversed(found.running.values()):
        process.stop(3)
    end_processes_of(tmp_path)
    assert processes_that_know(tmp_path) == []


def test_the_services_share_and_train(host):
    """In the order of `depends_on`: what is to be done once, the server, the sites, a run."""
    assert "site-2.tar.gz" in host.finish("prepare")
    for name in ("server", "proxy"):
        host.start(name)
        host.wait(name)
    for site in FEW:
        host.start(site)
    host.finish("register")
    for site in FEW:
        process = host.running[site]
        wait_until(site, lambda: "SuperNode ID:" in process.output(), 180)  # noqa: B023
    host.wait(FEW[0])
    said = host.finish("run", "copies=1", "num-rounds=1", "fraction-evaluate=0.0")
    assert re.search(r"round 1/1: .*3 of 3 answered", said)
    for path in (host.root / "post").iterdir():
        assert b"PRIVATE KEY" not in path.read_bytes()
    host.finish("register")  # as when the machine starts again
    host.running["site-0"].stop()
    process = host.start("site-0")
    wait_until("site-0", lambda: "SuperNode ID:" in process.output(), 180)


def test_what_the_image_installs_runs_elsewhere(tmp_path):
    """install.sh in another root folder, with this environment's packages instead of an index."""
    env = {**os.environ, "ROOT": str(tmp_path), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    (tmp_path / "opt").mkdir()
    venv.create(tmp_path / "opt" / "fedcommons")  # whose pip is ours
    make_pip_find_us(tmp_path)
    done = subprocess.run(
        ["sh", CONTAINERS / "install.sh", "packages", "fedcommons[flower]"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1].startswith("fedcommons ")
    if os.getuid() == 0:
        (tmp_path / "etc").mkdir()
        subprocess.run(["sh", CONTAINERS / "install.sh", "account"], env=env, check=True)
        assert "federation" in (tmp_path / "etc" / "passwd").read_text()
        for folder in ("federation", "site", "post", "state"):
            status = (tmp_path / "srv" / folder).stat()
            assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (10001, 10001, 0o700)
    done = subprocess.run(["sh", CONTAINERS / "install.sh", "all"], env=env, check=False)
    assert done.returncode == 2
