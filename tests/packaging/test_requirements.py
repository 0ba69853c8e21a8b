"""What is imported is declared, what is declared is imported, and the pins keep to both."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fedcommons"
PYPROJECT = (ROOT / "pyproject.toml").read_text()
PROJECT = tomllib.loads(PYPROJECT)
OURS = {"fedcommons", "tests"}
DISTRIBUTIONS = packages_distributions()
EXTRAS = {  # what may import which extra; all else has to do with the dependencies
    "flower": ("federate/", "flower.py"),
    "torch": ("simulate/models/torch_module.py", "federate/transport/torch_loader.py"),
    "cluster": ("simulate/cluster.py",),
    "tracking": ("tracking/",),
    "monitoring": ("desk/prometheus.py",),
}


def imported(path: Path) -> set[str]:
    """The distributions of the third-party modules that a file imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
            found |= {a.value for a in node.args if isinstance(a, ast.Constant)}
    modules = {name.split(".")[0] for name in found} - set(sys.stdlib_module_names) - OURS
    return {canonicalize_name(DISTRIBUTIONS.get(m, [m])[0]) for m in modules}


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(r).name) for r in requirements}


DEPENDENCIES = names(PROJECT["project"]["dependencies"])
BY_EXTRA = {
    extra: names(found) for extra, found in PROJECT["project"]["optional-dependencies"].items()
}
REQUIREMENTS = [
    *PROJECT["project"]["dependencies"],
    *(r for found in PROJECT["project"]["optional-dependencies"].values() for r in found),
]
FILES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}


@pytest.mark.parametrize("name", FILES)
def test_every_import_of_the_package_is_declared(name):
    extras = [e for e, places in EXTRAS.items() if any(name.startswith(p) for p in places)]
    assert imported(FILES[name]) <= DEPENDENCIES.union(*(BY_EXTRA[e] for e in extras))


def test_every_declared_requirement_is_imported():
    needed = set().union(*(imported(path) for path in FILES.values()))
    adapted = BY_EXTRA["datasets"]  # their objects are taken, by whoever imports them
    adapted |= {"sqlalchemy", "alembic"}  # MLflow imports them if it writes to a database
    assert DEPENDENCIES.union(*BY_EXTRA.values()) - adapted == needed


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_message_names_the_extra_that_is_missing(extra):
    said = re.compile(rf"pip install 'fedcommons\[{extra}\]'")
    assert any(said.search(path.read_text()) for path in FILES.values())


def test_every_import_of_the_tests_is_declared():
    development = PROJECT["dependency-groups"]["dev"]
    declared = names(development).union(DEPENDENCIES, *BY_EXTRA.values())
    files = sorted((ROOT / "tests").rglob("*.py"))
    # found on sys.path: scripts of this repository
    beside = {"experiments", "late", "reproduction", "robust"}
    missing = {p.name: imported(p) - declared - beside for p in files}
    assert {name: found for name, found in missing.items() if found} == {}


def test_bounds_are_lower_bounds_or_have_a_reason_beside_them():
    for requirement in REQUIREMENTS:
        operators = {specifier.operator for specifier in Requirement(requirement).specifier}
        assert ">=" in operators, requirement
        if operators != {">="}:
            [line] = [line for line in PYPROJECT.splitlines() if requirement in line]
            assert "#" in line, f"{requirement} has an upper bound without a reason"


def test_the_pins_of_the_development_environment_keep_to_the_bounds():
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    )
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    for requirement in [*REQUIREMENTS, *PROJECT["dependency-groups"]["dev"]]:
        parsed = Requirement(requirement)
        assert parsed.specifier.contains(pinned[canonicalize_name(parsed.name)]), requirement
