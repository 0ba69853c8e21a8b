"""What a package shows: its public names, each imported from its module when it is first used.

A public module ends in `__all__` and a `__dir__` that returns it, so that `dir()` and a shell's
completion list the public names and none of the imports.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__`: `homes` says in which of its modules each name is defined.

    A name whose home is empty is itself a module of the package.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{homes[name] or name}")
        return getattr(module, name) if homes[name] else module

    return get


__all__ = ["lazily"]


def __dir__() -> list[str]:
    return __all__
