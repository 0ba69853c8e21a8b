"""Licences are listed as packages state them; what CI installs by hash is what is pinned."""

from __future__ import annotations

import re
import runpy
import tomllib
from importlib.metadata import distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.environments import ROOT

LICENCES = runpy.run_path(str(ROOT / ".ci" / "licences.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGE = (ROOT / "docs" / "licences.md").read_text()


def test_the_page_lists_what_is_declared_as_it_is_installed():
    declared = LICENCES["declared"]()
    assert len(declared) > 8
    rows = dict(re.findall(r"^\| (\S+) \| (.*) \| \S* \|$", PAGE.replace(" |  |", " | - |"), re.M))
    assert rows.keys() - {"package"} == declared.keys(), "make licences"
    pinned = pins((ROOT / "constraints.txt").read_text())
    for name in declared:
        if distribution(name).version.partition("+")[0] == pinned[name]:  # others may say it else
            assert rows[name] == LICENCES["licence"](distribution(name)), "make licences"


def test_no_licence_is_unknown():
    assert "not stated" not in PAGE
    assert "UNKNOWN" not in PAGE


def pins(text: str) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def test_the_lock_has_the_pins_with_their_hashes():
    """PyTorch is not among them: there are several builds of one version."""
    text = (ROOT / "requirements.lock").read_text()
    locked, pinned = pins(text), pins((ROOT / "constraints.txt").read_text())
    assert {name: locked[name] for name in locked.keys() & pinned.keys()} == {
        name: pinned[name] for name in locked.keys() & pinned.keys()
    }
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(locked)
    assert all("--hash=sha256:" in entry for entry in entries)
    extras = PROJECT["project"]["optional-dependencies"]
    declared = [
        *PROJECT["project"]["dependencies"],
        *(r for extra, found in extras.items() if extra != "torch" for r in found),
        *PROJECT["dependency-groups"]["dev"],
    ]
    names = {canonicalize_name(Requirement(requirement).name) for requirement in declared}
    assert names <= locked.keys(), "make lock"
