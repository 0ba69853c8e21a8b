"""The versions of all packages that a federation needs here, for the other machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

FILE = "requirements.txt"
ROOT = "fedcommons[flower]"


def pinned(more: Sequence[str] = ()) -> str:
    """A requirements file with each package that is needed, in the version that is installed here.

    `more` are further requirements, those of an app; what is not installed here is as it was given.
    """
    versions: dict[str, str] = {}
    loose: list[str] = []
    waiting = [Requirement(one) for one in (ROOT, *more)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        name, extras = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            loose.append(str(wanted))
            continue
        versions[name] = found.version.partition("+")[0]  # other builds of it are as good
        waiting += _needed(found.requires or [], extras)
    lines = [f"{name}=={version}" for name, version in sorted(versions.items())]
    head = "# The versions that the server has.\n"
    return head + "".join(f"{line}\n" for line in [*lines, *sorted(loose)])


def _needed(requires: Sequence[str], extras: frozenset[str]) -> Iterator[Requirement]:
    for text in requires:
        one = Requirement(text)
        if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in extras or {""}):
            yield one


def differences(text: str) -> list[str]:
    """What is not installed here as a requirements file says."""
    found = []
    for line in text.splitlines():
        said = line.partition("#")[0].partition(" --")[0].rstrip("\\ ").strip()
        if not said or said.startswith("-") or "://" in said:  # options of pip, and addresses
            continue
        try:
            wanted = Requirement(said)
        except InvalidRequirement:
            found.append(f"{said!r} is no requirement")
            continue
        try:
            here = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            found.append(f"{wanted.name} is missing")
            continue
        if not wanted.specifier.contains(here, prereleases=True):
            found.append(f"{wanted.name} is {here}, must be {wanted.specifier}")
    return found
