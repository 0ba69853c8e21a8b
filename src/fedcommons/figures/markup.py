"""HTML in which all text is escaped, unless it is markup that was made here."""

from __future__ import annotations

import string
from collections.abc import Iterable
from importlib import resources

from fedcommons import shown


class Markup(str):
    """HTML; any other string is text."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Whatever it is, as text; markup stays as it is."""
    return value if isinstance(value, Markup) else Markup(shown.html(value))


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Parts one after the other, each as `text` has it."""
    return Markup(between.join(map(text, parts)))


def markup(template: str, **values: object) -> Markup:
    """HTML with $names in it, for which the values are put as `text` has them."""
    found = {name: text(value) for name, value in values.items()}
    return Markup(string.Template(template).substitute(found))


def packaged(name: str) -> Markup:
    """A file of this package: CSS, JavaScript, or the template of a page."""
    return Markup((resources.files("fedcommons.figures") / name).read_text(encoding="utf-8"))
