"""Undocumented Flower is touched in one file, which says what to do when a version does not fit."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import fedcommons
from fedcommons.errors import FederationError
from fedcommons.federate.transport import flower_versions

SOURCE = Path(fedcommons.__file__).parent
ROOT = Path(__file__).parents[3]
DOCUMENTED = {"flwr.app", "flwr.serverapp", "flwr.clientapp", "flwr.serverapp.strategy"}
ALLOWED = "federate/transport/flower_internals.py"
HOW_TO_GET_ONE = (
    "Versions 1.40 to 1.42 are known to work; to get one: pip install 'flwr>=1.40,<1.43'"
)


def flower_modules(path: Path) -> set[str]:
    """What a file imports of Flower."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text().replace("$package", "package"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
    return {name for name in found if name.split(".")[0] == "flwr"}


def test_undocumented_flower_is_imported_in_one_file():
    files = {p.relative_to(SOURCE).as_posix(): p for p in SOURCE.rglob("*.py")}
    files |= {p.relative_to(SOURCE).as_posix(): p for p in SOURCE.rglob("*.py.tmpl")}
    undocumented = {name for name, path in files.items() if flower_modules(path) - DOCUMENTED}
    assert undocumented == {ALLOWED}


def command(version: str | None, change: str, *arguments: str) -> subprocess.CompletedProcess:
    """`fedcommons` where this version of Flower says it is installed, with a change to it."""
    code = f"""
import sys
from importlib import metadata
real = metadata.version
def version(name):
    if name != "flwr":
        return real(name)
    found = {version!r}
    if not found:
        raise metadata.PackageNotFoundError(name)
    return found
metadata.version = version
{change}
sys.argv = ["fedcommons", *{arguments!r}]
from fedcommons.cli.app import main
main()
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_a_flower_without_what_is_needed_is_named_with_those_that_work(tmp_path):
    change = "from flwr.supercore.run import Run; del Run.create_empty"
    run = command("1.43.0", change, "federate", "run", str(tmp_path))
    assert run.returncode == 8
    assert run.stderr.startswith("fedcommons: Flower 1.43.0 does not work with fedcommons: ")
    assert "create_empty" in run.stderr
    assert run.stderr.endswith(f"{HOW_TO_GET_ONE}\n")


def test_a_flower_that_is_too_old_is_named_with_those_that_work(tmp_path):
    run = command("1.7.0", "sys.modules['flwr.app'] = None", "federate", "run", str(tmp_path))
    assert run.returncode == 8
    assert run.stderr == (
        f"fedcommons: Flower 1.7.0 does not work with fedcommons: it is too old. {HOW_TO_GET_ONE}\n"
    )


def test_without_flower_the_extra_is_named(tmp_path):
    run = command(None, "sys.modules['flwr'] = None", "federate", "run", str(tmp_path))
    assert (run.returncode, run.stderr) == (
        8,
        "fedcommons: federate needs Flower: pip install 'fedcommons[flower]'\n",
    )


@pytest.mark.parametrize("version", ["1.40.0", "1.42.0", "1.43.0.dev20261201", "2.0"])
def test_a_newer_flower_is_tried(version, monkeypatch):
    monkeypatch.setattr(flower_versions, "installed", lambda: version)
    flower_versions.check_installed()


@pytest.mark.parametrize("version", ["0.19.0", "1.9", "1.39.1"])
def test_an_older_flower_is_refused(version, monkeypatch):
    monkeypatch.setattr(flower_versions, "installed", lambda: version)
    with pytest.raises(FederationError, match=version):
        flower_versions.check_installed()


def test_the_extra_allows_the_versions_that_are_said_to_work():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [flower] = [r for r in project["optional-dependencies"]["flower"] if r.startswith("flwr")]
    assert Requirement(flower).specifier == SpecifierSet(flower_versions.BOUNDS)
