"""Prints docs/licences.md: what fedcommons installs with it, under which licences.

    .venv/bin/python .ci/licences.py > docs/licences.md

Licences are what the packages of this environment say of themselves.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
TEXT = """\
# Licences of what fedcommons needs

`make licences` writes this page from what the packages say of themselves, in the versions of
`constraints.txt` and with all extras. *Needed for* is the extra that brings a package, empty where
fedcommons always needs it. What is not declared but comes with others is listed below.

## Declared

{declared}
## What these bring

On Linux.

{others}"""


def licence(found: Distribution) -> str:
    """The licence in a few words, from the best of the fields that packages use."""
    about = found.metadata
    if expression := about.get("License-Expression"):
        return str(expression)
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier") or []
        if line.startswith("License :: ") and line != "License :: OSI Approved"
    ]
    if classifiers:
        return " or ".join(classifiers)
    first = (about.get("License") or "").strip().splitlines()
    return first[0][:60] if first else "not stated"


def declared() -> dict[str, str]:
    """The declared packages, and the extra that brings each."""
    extras = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
    found: dict[str, str] = {}
    for extra, requirements in extras.items():
        for requirement in requirements:
            found.setdefault(canonicalize_name(Requirement(requirement).name), extra)
    return found


def needed(package: str, extras: set[str]) -> Iterator[tuple[str, set[str]]]:
    """What an installed package needs here: (name, extras) of each."""
    for text in distribution(package).requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": e}) for e in (extras or {""}) | {""}):
            yield canonicalize_name(requirement.name), set(requirement.extras)


def brought() -> list[str]:
    """All that the declared packages bring with them, but not themselves."""
    seen: dict[str, set[str]] = {}
    waiting = list(needed("fedcommons", set(PROJECT["optional-dependencies"])))
    while waiting:
        name, extras = waiting.pop()
        if name in seen and extras <= seen[name]:
            continue
        seen[name] = seen.get(name, set()) | extras
        try:
            waiting += needed(name, seen[name])
        except PackageNotFoundError:  # needed elsewhere
            del seen[name]
    return sorted(set(seen) - set(declared()) - {"fedcommons"})


def page() -> str:
    rows = "| package | licence | needed for |\n|---|---|---|\n"
    for name, extra in sorted(declared().items()):
        rows += f"| {name} | {licence(distribution(name))} | {extra} |\n"
    others = "| package | licence |\n|---|---|\n"
    for name in brought():
        others += f"| {name} | {licence(distribution(name))} |\n"
    return TEXT.format(declared=rows, others=others)


if __name__ == "__main__":
    print(page(), end="")
