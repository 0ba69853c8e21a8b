"""Finding a part by its name: one that comes with the package, or somebody else's.

A name such as "memory" is a member of the registry. A name such as "my_lab.methods:halved" is an
import path: `module:attribute`, of an installed package or of a module in the working folder. An
installed package can also announce its parts under the entry point group `fedcommons.estimators`
(or `.codes`, `.schemes`, ...); its entry points' names then work like the package's own.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, TypeVar

from fedcommons.errors import ArgumentError

Part = TypeVar("Part")
IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class Registry(Mapping[str, Part], Generic[Part]):
    """The parts of one kind, by name. Looking one up finds other people's, too.

    Iterating goes over the package's own parts and those that `register` added.
    """

    def __init__(self, kind: str, of: type, parts: Iterable[Part] = ()) -> None:
        """`kind` is the word for one part, "estimator"; `of` is the class that each must have."""
        self.kind, self._of = kind, of
        self._parts: dict[str, Part] = {}
        for part in parts:
            self.register(part)

    def register(self, part: Part) -> Part:
        """Add a part under its name, for this process; refuse a name that is taken."""
        name = self._checked(part, repr(part)).name
        if name in self._parts:
            raise ArgumentError(f"{self.kind} must have a name that is not taken, got {name!r}")
        self._parts[name] = part
        return part

    def unregister(self, name: str) -> None:
        """Take a part out again."""
        del self._parts[name]

    def __getitem__(self, name: str) -> Part:
        return self.named(self.kind.replace(" ", "_"), name)

    def named(self, argument: str, name: object) -> Part:
        """The part of this name; an error speaks of the argument that has it."""
        if isinstance(name, str):
            if name in self._parts:
                return self._parts[name]
            if name in self._announced:
                return self._loaded(name, self._announced[name].value)
            if IMPORT_PATH.fullmatch(name):
                return self._loaded(name, name)
        known = ", ".join([*self._parts, *self._announced])
        raise ArgumentError(
            f"{argument} must be one of {known}, or an import path such as 'package.module:name', "
            f"got {name!r}"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, name: object) -> bool:
        """Whether it is a part of the package's own or a registered one: nothing is imported."""
        return isinstance(name, str) and name in self._parts

    def source(self, name: str) -> str:
        """The text of the file that defines somebody else's part; empty for the package's own.

        It is what results depend on beside the name.
        """
        if name in self._parts:
            return ""
        self[name]
        path = self._announced[name].value if name in self._announced else name
        return source_of(path)

    @cached_property
    def _announced(self) -> dict[str, metadata.EntryPoint]:
        plural = self.kind.replace(" ", "_") + ("es" if self.kind.endswith("s") else "s")
        found = metadata.entry_points(group=f"fedcommons.{plural}")
        return {point.name: point for point in found}

    def _loaded(self, name: str, path: str) -> Part:
        return self._checked(imported(path, self.kind), name)

    def _checked(self, part: Any, name: str) -> Any:
        if not isinstance(part, self._of):
            raise ArgumentError(
                f"{self.kind} {name} must be of the class {self._of.__name__}, got {part!r}"
            )
        return part


def imported(path: str, kind: str) -> Any:
    """What an import path names; modules in the working folder are found as well."""
    module, attribute = path.split(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # whatever that module does
        raise ArgumentError(
            f"{kind} {path} cannot be imported: {type(error).__name__}: {error}"
        ) from None


def source_of(path: str, *, defined_in: object = None) -> str:
    """The text of the module in an import path, and of the one that defines the object, if given.

    It is part of what a study's results depend on.
    """
    modules = [path.split(":")[0]]
    if callable(defined_in):
        modules.insert(0, getattr(inspect.unwrap(defined_in), "__module__", ""))
    files = [getattr(sys.modules.get(module), "__file__", None) for module in modules]
    try:  # a file that is no text was refused when it was imported
        return "\0".join(
            Path(file).read_text(encoding="utf-8", errors="replace")
            for file in dict.fromkeys(files)
            if file
        )
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error}") from None


__all__ = ["IMPORT_PATH", "Registry", "imported", "source_of"]


def __dir__() -> list[str]:
    return __all__
