"""A picture on a terminal that follows what it shows; in a pipe it is printed once."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, RenderableType
from rich.live import Live

PAUSE = 1.0  # seconds between two looks


def follow(
    picture: Callable[[], RenderableType], is_over: Callable[[], bool], *, once: bool = False
) -> None:
    """Show the picture anew until it is over."""
    console = Console()
    if once or not console.is_terminal:
        console.print(picture())
        return
    with Live(picture(), console=console) as live:
        while not is_over():
            time.sleep(PAUSE)
            live.update(picture())
