"""Which tests start processes: found by following the functions that they name, not by running."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType

import pytest

STARTERS = {"subprocess", "multiprocessing"}


def starts_processes(item: pytest.Item) -> bool:
    """Whether a test, one of its fixtures, or a function of the tests that these use does."""
    fixtures = getattr(item, "_fixtureinfo", None)
    waiting = [found[-1].func for found in fixtures.name2fixturedefs.values()] if fixtures else []
    waiting.append(getattr(item, "function", None))
    seen: set[object] = set()
    while waiting:
        function = plain(waiting.pop())
        if function is None or function in seen or not function.__module__.startswith("tests"):
            continue
        seen.add(function)
        names = set(names_in(function.__code__))
        if names & STARTERS:
            return True
        for name in names & function.__globals__.keys():
            value = function.__globals__[name]
            waiting += vars(value).values() if inspect.isclass(value) else [value]
    return False


def plain(value: object) -> FunctionType | None:
    """The function behind decorators; None for what is none."""
    if hasattr(value, "hypothesis"):
        value = value.hypothesis.inner_test
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, FunctionType) else None


def names_in(code: CodeType) -> Iterator[str]:
    """The names that code uses, also in the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)
