"""Writes a Flower app that is ready to run, from the template."""

from __future__ import annotations

import keyword
import re
import sys
from importlib import resources
from pathlib import Path
from string import Template

from fedcommons.errors import FederationError

FILES = ("pyproject.toml", "README.md", "SITES.md")
IMPORTED = (
    "fedcommons",
    "flwr",
    "numpy",
    "torch",
)  # by every app, whose own name must not hide them
MODULES = ("__init__", "server_app", "client_app", "data")


def write_app(folder: Path, *, torch: bool = False) -> list[Path]:
    """Write an app into a folder that is new or empty; the paths of its files."""
    folder = folder.resolve()
    package = re.sub(r"\W", "_", folder.name).lower()
    if not re.fullmatch(r"[a-z][a-z0-9_]*", package):
        raise FederationError(
            f"the folder's name must begin with a letter and be in ASCII, got {folder.name!r}"
        )
    if keyword.iskeyword(package) or package in {*sys.stdlib_module_names, *IMPORTED}:
        raise FederationError(
            f"the folder's name must not be a keyword or a module of Python, got {folder.name!r}"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FederationError(f"{folder} must be new or an empty folder")
    values = {
        "name": package.strip("_").replace("_", "-"),
        "package": package,
        "state_dir": str(folder.with_name(f"{folder.name}-state")).replace("\\", "/"),
        "dependencies": '"fedcommons[flower,torch]"' if torch else '"fedcommons[flower]"',
    }
    template = resources.files("fedcommons.federate.apps") / "template"
    sources = {folder / name: template / f"{name}.tmpl" for name in FILES}
    for module in MODULES:
        sources[folder / package / f"{module}.py"] = template / "app" / f"{module}.py.tmpl"
    task = "task_torch.py.tmpl" if torch else "task.py.tmpl"
    sources[folder / package / "task.py"] = template / "app" / task
    try:
        (folder / package).mkdir(parents=True)
        for path, source in sources.items():
            path.write_text(Template(source.read_text()).substitute(values), encoding="utf-8")
    except OSError as error:
        raise FederationError(f"{folder} cannot be written: {error}") from None
    return list(sources)
