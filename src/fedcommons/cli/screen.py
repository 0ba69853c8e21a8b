"""What the command line prints: every line and every cell passes through here."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.text import Text

from fedcommons import shown


def say(*lines: object, err: bool = False) -> None:
    """Print lines; what others put into one of them cannot make another, or do anything else."""
    for line in lines:
        typer.echo(shown.plain(line), err=err)


def say_json(content: Any) -> None:
    """Print JSON; all but visible ASCII is escaped in it."""
    text = json.dumps(content, indent=2, allow_nan=False)
    typer.echo(text.replace("\x7f", "\\u007f"))


def words(text: object, style: str = "") -> Text:
    """Text for a table, a title or a caption, in which brackets are brackets and not styles."""
    return Text(shown.plain(text), style=style)
