"""What an app may do at a site, read from its code: for an operator who decides whether it runs.

It reads what is written, and runs nothing. Code that is written to deceive can do more than it
shows here: who lets an app run trusts its author.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedcommons.errors import FederationError
from fedcommons.federate.site.reviewed_apps import PROJECT, hash_of
from fedcommons.federate.transport.flower_internals import packed_files

KINDS = ("train", "evaluate", "query", "lifespan")
LOOK_AT = {  # modules and functions that reach beyond the examples that a site hands out
    "os", "sys", "subprocess", "socket", "shutil", "ctypes", "http", "urllib", "requests", "httpx",
    "ftplib", "smtplib", "pickle", "marshal", "importlib", "runpy", "multiprocessing", "threading",
    "asyncio", "tempfile", "pathlib", "glob", "io", "sqlite3", "signal", "pty", "code", "builtins",
}  # fmt: skip
CALLS = {"open", "exec", "eval", "compile", "__import__", "getattr", "globals", "vars"}


@dataclass(frozen=True, slots=True)
class Handler:
    """A function of the app that answers messages.

    Attributes:
        name: the function's, with its file and line.
        kind: train, evaluate or query.
        is_coded: whether its answer passes `coded`: then nothing leaves but the coded answer.
    """

    name: str
    kind: str
    is_coded: bool

    @property
    def leaves(self) -> str:
        if self.is_coded:
            return "the coded answer alone"
        return "whatever it returns"


@dataclass(frozen=True, slots=True)
class Review:
    """What was found in an app.

    Attributes:
        hash: of its files, for `apps` in a policy.
        files: sizes in bytes, by path.
        handlers: what answers messages.
        imports: the modules that it imports, by their first names.
        look_at: places at which it reaches beyond its examples, as file:line what.
        dependencies: what it wants installed.
        attaches: whether it takes part in exchanges, and so checks its hash at all.
    """

    hash: str
    files: dict[str, int]
    handlers: tuple[Handler, ...]
    imports: tuple[str, ...]
    look_at: tuple[str, ...]
    dependencies: tuple[str, ...]
    attaches: bool


def review(folder: Path) -> Review:
    """Read an app's folder, as Flower would send it to the sites."""
    if not (folder / PROJECT).is_file():
        raise FederationError(f"{folder} must be the folder of a Flower app, with a {PROJECT}")
    files = packed_files(folder)
    trees = {name: _parsed(name, text) for name, text in files.items() if name.endswith(".py")}
    return Review(
        hash_of(files),
        {name: len(content) for name, content in files.items()},
        tuple(h for name, tree in trees.items() for h in _handlers(name, tree)),
        tuple(sorted({one for tree in trees.values() for one, _ in _imports(tree)})),
        tuple(place for name, tree in trees.items() for place in _to_look_at(name, tree)),
        _dependencies(files[PROJECT]),
        any(_calls(node) == "attach" for tree in trees.values() for node in ast.walk(tree)),
    )


def _parsed(name: str, content: bytes) -> ast.Module:
    try:
        return ast.parse(content, name)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise FederationError(f"{name} of the app cannot be read as Python: {error}") from None


def _dependencies(project: bytes) -> tuple[str, ...]:
    try:
        found = tomllib.loads(project.decode()).get("project", {}).get("dependencies", [])
        return tuple(map(str, found))
    except (ValueError, AttributeError, TypeError) as error:
        raise FederationError(f"{PROJECT} of the app cannot be read: {error}") from None


def _handlers(file: str, tree: ast.Module) -> Iterator[Handler]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                call = decorator.func if isinstance(decorator, ast.Call) else decorator
                if isinstance(call, ast.Attribute) and call.attr in KINDS:
                    coded = any(_calls(part) == "coded" for part in ast.walk(decorator))
                    yield Handler(f"{file}:{node.lineno} {node.name}", call.attr, coded)


def _imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or ".").split(".")[0], node.lineno


def _to_look_at(file: str, tree: ast.Module) -> Iterator[str]:
    found = [(line, f"import {name}") for name, line in _imports(tree) if name in LOOK_AT]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := _calls(node)) in CALLS:
            found.append((node.lineno, f"{name}(...)"))
        if isinstance(node, ast.Attribute) and node.attr == "node_config":
            found.append((node.lineno, "reads the node config, which has paths at the site"))
    yield from (f"{file}:{line} {what}" for line, what in sorted(set(found)))


def _calls(node: ast.AST) -> str:
    """The name of what is called; empty if it is no call of a name."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
