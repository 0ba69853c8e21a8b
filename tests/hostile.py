"""Text as nobody should have to show it, and what it must have become where it is shown."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

FORGED = "fedcommons: all well"
HOSTILE = (
    f"x\x1b[2J\x1b]0;title\x07\r\n{FORGED}\n{FORGED}\x08\x9b31m\x7f\x00\u202e\u2066\u2028\ufeff"
    "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;[bold]$\\frac$ = {0} %s"
)
MISCHIEF = {"script", "img", "iframe", "b"}


def hidden(text: str) -> set[str]:
    """The characters that cannot be seen, but line breaks."""
    kinds = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    return {c for c in text if unicodedata.category(c) in kinds} - {"\n"}


def assert_lines_are_safe(text: str) -> None:
    assert not hidden(text)
    assert not [line for line in text.splitlines() if line.lstrip(" |").startswith(FORGED)]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attributes)))


def tags(page: str) -> list[tuple[str, tuple[str, ...]]]:
    """Every element of a page in order, with the names of its attributes."""
    parser = _Tags()
    parser.feed(page)
    parser.close()
    return parser.found


def each_text(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every text and number in nested dicts and lists."""
    if isinstance(content, dict | list):
        entries = content.items() if isinstance(content, dict) else enumerate(content)
        for key, entry in entries:
            yield from each_text(entry, (*path, key))
    elif not isinstance(content, bool):
        yield path


def replaced(content: Any, path: tuple[Any, ...], value: object) -> Any:
    """A copy with another value at the end of a way."""
    if not path:
        return value
    copy = content.copy()
    copy[path[0]] = replaced(content[path[0]], path[1:], value)
    return copy
