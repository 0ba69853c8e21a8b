"""The project's docstrings as reStructuredText.

They are plain text: names in single backticks, formulas and examples indented, lists with dashes,
and Google's `Args:`. All that reStructuredText would read into the rest (|x|, a*b, x_) is escaped.
"""

import inspect
import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature

SECTIONS = ("Args:", "Attributes:", "Returns:", "Raises:", "Yields:")


def inline(text: str) -> str:
    """A paragraph's text: what is in backticks literally, everything else as it stands."""
    parts = re.split(r"(`[^`]+`)", text)
    made = ""
    for k, part in enumerate(parts):
        if k % 2:
            made += f"`{part}`"
        else:
            touches = "\\ " if k and re.match(r"\w", part) else ""  # as in `Dataset`s
            made += touches + re.sub(r"([\\*|`]|(?<=\w)_(?!\w))", r"\\\1", part)
    return made


def paragraphs(lines: list[str]) -> list[list[str]]:
    """Lines between blank ones."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [p for p in found if p]


def restructured(lines: list[str]) -> list[str]:
    """A docstring's lines in reStructuredText."""
    made: list[str] = []
    in_section = False
    for paragraph in paragraphs(lines):
        indent = len(paragraph[0]) - len(paragraph[0].lstrip())
        if paragraph[0].strip() in SECTIONS:
            in_section = True
            if paragraph[0].strip() == "Attributes:":  # of records: what they are made of
                paragraph[0] = "Args:"
        elif indent == 0:
            in_section = False
        if indent >= 2 and not in_section:
            made += ["::", "", *(f"    {line}" for line in paragraph), ""]
            continue
        # A formula or an example may follow its sentence without a blank line.
        text: list[str] = []
        k = 0
        while k < len(paragraph):
            line = paragraph[k]
            starts_list = re.match(r"\s*(-|\d+\.) ", line)
            listed = starts_list or (text and re.match(r"\s*(-|\d+\.) ", text[-1] or ""))
            if not in_section and not listed and line.startswith("    "):
                made += [*inline("\n".join(text)).split("\n"), "", "::", ""]
                while k < len(paragraph) and paragraph[k].startswith("    "):
                    made.append(f"    {paragraph[k]}")
                    k += 1
                made.append("")
                text = []
                continue
            if starts_list and text and not re.match(r"\s*(-|\d+\.) ", text[0]) and not in_section:
                made += [*inline("\n".join(text)).split("\n"), ""]
                text = []
            text.append(line)
            k += 1
        made += [*inline("\n".join(text)).split("\n"), ""]
    return made


def process(*event: Any) -> None:
    """Sphinx's event: its last argument is the docstring's lines, to be changed in place."""
    lines: list[str] = event[-1]
    lines[:] = restructured(lines)


def signature(*event: Any) -> tuple[str, str | None] | None:
    """Sphinx's event: a signature with its types as they are written, not what they stand for."""
    _, what, _, obj, _, found, _ = event
    if not found:
        return None
    whole = inspect.signature(obj)
    names = list(whole.parameters)
    if what == "method" and names[:1] in (["self"], ["cls"]):
        whole = whole.replace(parameters=list(whole.parameters.values())[1:])
    text = re.sub(r"\b(npt|np)\.", "", stringify_signature(whole))
    arguments, _, returned = text.partition(" -> ")
    return arguments, None if what == "class" else returned or None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", process, priority=400)  # before napoleon's 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}
