"""`dir()` of every public module shows its public names, which exist and are documented."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import fedcommons as fc

README = (Path(__file__).parent.parent / "README.md").read_text()


def public_modules(module: ModuleType = fc) -> Iterator[str]:
    """The package, the modules that it shows, and those that they show."""
    yield module.__name__
    for name in module.__all__:
        shown = getattr(module, name)
        if inspect.ismodule(shown):
            yield from public_modules(shown)


MODULES = list(public_modules())


def test_the_modules_of_the_readme_are_shown():
    table = re.search(r"\| module \| .*?\n\n", README, flags=re.DOTALL)
    listed = re.findall(r"`([a-z]+)`", "\n".join(re.findall(r"^\| (`.*?) \|", table[0], re.M)))
    shown = {name for name in dir(fc) if inspect.ismodule(getattr(fc, name))}
    assert shown == set(listed)


@pytest.mark.parametrize("name", MODULES)
def test_dir_shows_the_public_names_and_nothing_else(name):
    module = importlib.import_module(name)
    assert dir(module) == sorted(set(module.__all__))
    assert not [shown for shown in dir(module) if shown.startswith("_")]


@pytest.mark.parametrize("name", MODULES)
def test_public_names_exist_and_are_documented(name):
    module = importlib.import_module(name)
    assert module.__doc__
    undocumented = []
    for shown in module.__all__:
        value = getattr(module, shown)
        if inspect.ismodule(value) or inspect.isclass(value) or inspect.isfunction(value):
            doc = value.__doc__ or ""
            if not doc.strip() or doc.startswith(f"{shown}("):  # what a dataclass makes up
                undocumented.append(shown)
    assert undocumented == []


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_defines_for_others_is_shown(name):
    """A public function or class that is defined in a module is not forgotten in `__all__`."""
    module = importlib.import_module(name)
    defined = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and getattr(value, "__module__", None) == name
    }
    assert defined <= set(module.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_a_name_that_does_not_exist_is_an_attribute_error(name):
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = importlib.import_module(name).no_such_name


def test_errors_are_shown_at_the_top():
    errors = importlib.import_module("fedcommons.errors")
    defined = {n for n, v in vars(errors).items() if inspect.isclass(v)}
    assert defined <= set(dir(fc))


def python(code: str) -> list[str]:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_modules_are_imported_when_they_are_used():
    code = "import sys, fedcommons as fc; dir(fc); {} print(*sys.modules)"
    before = python(code.format(""))
    assert "fedcommons.simulate" not in before
    assert "numpy" not in before
    after = python(code.format("fc.simulate; fc.figures; fc.federate;"))
    assert {"fedcommons.simulate", "fedcommons.figures"} <= set(after)
    assert not {"flwr", "torch", "matplotlib", "pyarrow"} & set(after)


def test_without_flower_the_module_says_how_to_get_it():
    code = "import sys; sys.modules['flwr'] = None; import fedcommons as fc; fc.flower"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr.endswith(
        "ModuleNotFoundError: fedcommons.flower needs Flower: pip install 'fedcommons[flower]'\n"
    )
