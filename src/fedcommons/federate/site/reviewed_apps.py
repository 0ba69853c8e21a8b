"""Which app runs at a site: the hash of its files, which the operator's policy may name.

It is checked where the app calls `attach`, by code that the app itself could leave out. So it tells
the operator that a run's app is not the one that was reviewed; it does not stop an app that was
written to get round it (docs/privacy.md).
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.refusals import AppNotReviewed
from fedcommons.federate.site.policy import Policy

PROJECT = "pyproject.toml"


def check_app(policy: Policy, module: str) -> None:
    """Refuse an app that the policy does not name; `module` is the file of its client app."""
    if not policy.apps:
        return
    folder = next((one for one in Path(module).parents if (one / PROJECT).is_file()), None)
    if folder is None:
        raise AppNotReviewed(f"{module} is in no folder with a {PROJECT}")
    found = hash_of(files_in(folder))
    if found not in policy.apps:
        raise AppNotReviewed(f"the app in {folder} has the hash {found}, which apps does not name")


def files_in(folder: Path) -> dict[str, bytes]:
    """The content of every file of an installed app, by its path; not what Python made of them."""
    found = {}
    try:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and not _is_of_python(name):
                found[name.as_posix()] = path.read_bytes()
    except OSError as error:
        raise FederationError(f"{folder} cannot be read: {error}") from None
    return found


def hash_of(files: dict[str, bytes]) -> str:
    """One hash of all files, names included."""
    whole = hashlib.sha256()
    for name in sorted(files):
        whole.update(f"{len(name.encode())} {name} {len(files[name])} ".encode())
        whole.update(files[name])
    return whole.hexdigest()


def _is_of_python(name: Path) -> bool:
    """What this Python compiled itself; a module that is compiled by others is a file like any."""
    tag = sys.implementation.cache_tag
    return name.parent.name == "__pycache__" and name.name.endswith(f".{tag}.pyc")
