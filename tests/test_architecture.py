"""Imports point one way, the concepts need NumPy and SciPy only, and importing is fast."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedcommons

ROOT = Path(fedcommons.__file__).parent
CONCEPTS = ""
ROOMS = {  # each room, and the rooms that it may import beside itself and the concepts
    CONCEPTS: (),
    "tracking": (),
    "simulate": ("tracking",),
    "plan": (),
    "federate.protocol": (),
    "federate.site": ("federate.protocol",),
    "federate.server": ("federate.protocol", "tracking"),
    "federate.backup": ("federate.protocol", "federate.site", "federate.server"),
    "federate.transport": ("federate.protocol", "federate.site", "federate.server", "tracking"),
    "flower": ("federate", "tracking"),
    "federate.apps": ("flower", "federate"),
    "federate.deploy": ("flower", "federate"),
    "claims": ("simulate",),
    "figures": ("simulate", "plan", "federate", "claims"),
    "desk": ("federate", "figures"),
    "cli": ("simulate", "plan", "federate", "flower", "claims", "figures", "tracking", "desk"),
}
FLOWER = ("federate.transport", "federate.apps", "flower")  # who may import flwr
FRONTS = ("fedcommons", "fedcommons.federate")  # they name, for type checkers, what they show
HEAVY = ("torch", "flwr", "matplotlib", "pyarrow", "typer", "rich", "pandas")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(name: str, *, for_types: bool = True) -> set[str]:
    """What a module imports at any depth of its code, submodules named in full.

    Without `for_types` what only a type checker imports is left out.
    """
    found = set()
    tree = ast.parse(MODULES[name].read_text())
    if not for_types:
        tree.body = [node for node in tree.body if not _is_for_types(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else str(node.module))
    return found


def _is_for_types(node: ast.stmt) -> bool:
    test = getattr(node, "test", None)
    return isinstance(node, ast.If) and isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def room(name: str) -> str:
    """The longest of `ROOMS` that a module lies in."""
    inside = name.removeprefix("fedcommons").removeprefix(".")
    if inside == "__main__":
        return "cli"
    return max((r for r in ROOMS if f"{inside}.".startswith(f"{r}.")), key=len, default=CONCEPTS)


@pytest.mark.parametrize("name", [name for name in MODULES if name not in FRONTS])
def test_imports_never_point_back(name):
    ours = {m for m in imports(name) if m.split(".")[0] == "fedcommons"}
    mine = room(name)
    allowed = {mine, CONCEPTS, *ROOMS[mine]}
    elsewhere = {m for m in ours if not any(f"{room(m)}.".startswith(f"{r}.") for r in allowed)}
    assert not {m for m in elsewhere if room(m) != CONCEPTS}


@pytest.mark.parametrize("name", MODULES)
def test_flower_is_imported_where_messages_cross_and_nowhere_else(name):
    if room(name) not in FLOWER:
        assert not any(m.split(".")[0] == "flwr" for m in imports(name))


@pytest.mark.parametrize("name", [m for m in MODULES if room(m) == CONCEPTS])
def test_concepts_import_numpy_and_scipy_only(name):
    allowed = {"numpy", "scipy", "fedcommons", *sys.stdlib_module_names}
    if name in ("fedcommons.datasets.parquet_table", "fedcommons.parquet"):
        allowed.add("pyarrow")  # inside the functions that read Parquet
    assert {m.split(".")[0] for m in imports(name)} <= allowed


PRINTERS = {  # what prints, logs or escapes, and the modules in which it may stand
    r"typer\.echo\(": {"fedcommons.cli.screen"},
    r"(?<![\w.])(?<!def )print\(": {"fedcommons.cli.app"},
    r"logging\.getLogger\((?!\")": {"fedcommons.shown"},
    r"html\.escape\(": {"fedcommons.shown"},
}


@pytest.mark.parametrize("call", PRINTERS)
def test_what_is_shown_passes_one_place(call):
    """What is printed passes `screen`, what is logged `shown.logger`, what is in pages `markup`."""
    found = {name for name, path in MODULES.items() if re.search(call, path.read_text())}
    assert found <= PRINTERS[call]


def test_there_are_no_import_cycles():
    graph = {name: {m for m in imports(name, for_types=False) if m in MODULES} for name in MODULES}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path, name])
        if name not in done:
            for other in graph[name]:
                visit(other, (*path, name))
            done.add(name)

    for name in MODULES:
        visit(name, ())


def test_module_names_say_something():
    vague = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
    assert not vague & {part for name in MODULES for part in name.split(".")}


def test_importing_is_light():
    """All concepts need NumPy and SciPy alone, and the package by itself not even these."""
    shown = [m for m in fedcommons.__all__ if room(f"fedcommons.{m}") == CONCEPTS]
    code = (
        "import sys; import fedcommons as fc; "
        "print(*[m for m in ('numpy', 'scipy') if m in sys.modules]); "
        f"[getattr(fc, m) for m in {shown}]; "
        f"print(*[m for m in {HEAVY!r} if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "\n\n"


def test_a_deployed_site_imports_neither_scipy_nor_the_servers_side():
    """It is a new process for every message; SciPy alone would cost a tenth of that again."""
    code = "import sys, fedcommons.flower, fedcommons.tasks.softmax; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(run.stdout.split())
    unwanted = {"scipy", "torch", "pyarrow", "fedcommons.federate.server", "fedcommons.theory"}
    assert "fedcommons.federate.transport.client_app" in found
    assert not unwanted & found


def test_results_are_shown_where_no_extra_is_installed():
    code = """
import sys
extras = ("flwr", "cryptography", "torch", "distributed")
class Extras:
    def find_spec(self, name, path=None, target=None):
        if name in extras:
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Extras())
import fedcommons.cli.commands, fedcommons.figures.report, fedcommons.figures.federation
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
