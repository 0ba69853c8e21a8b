"""Errors at a site cross the wire by the name of their class alone: their texts may quote data.

A site's own log names the class and the line. While an app is developed, all sites in one process
or in Flower's simulation, everything is the developer's own, and the log has the text as well.
"""

from __future__ import annotations

import contextlib
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

from flwr.app import Context, Error, Message

from fedcommons import shown
from fedcommons.errors import FedcommonsError
from fedcommons.federate.transport.simulation import is_simulated

logger = shown.logger(__name__)

Handler = Callable[[Message, Context], Message]
FAILED = 2  # Flower's code for a client that raised an exception
NOT_OF_APPS = Path(__file__).parents[2], Path(sysconfig.get_path("stdlib"))
PACKAGES = {"site-packages", "dist-packages"}

# No setting of a deployed site sets this: it is for who starts the sites in a process of their own.
_development: ContextVar[set[str] | None] = ContextVar("development", default=None)


@contextlib.contextmanager
def development(shown: set[str]) -> Iterator[None]:
    """What raises meanwhile is logged with its text; what is in `shown` already, in one line."""
    token = _development.set(shown)
    try:
        yield
    finally:
        _development.reset(token)


def scrubbed(message: Message, context: Context, handle: Handler) -> Message:
    """What the handler replies, or an error that says no more than its class."""
    try:
        return handle(message, context)
    except Exception as error:
        log(error, context)
        return Message(Error(FAILED, type(error).__name__), reply_to=message)


def log(error: Exception, context: Context) -> None:
    """Say in this process's log what went wrong."""
    shown = _development.get()
    if shown is None and not is_simulated(context):
        logger.error("%s", _described(error))
        return
    text = _shown(error)
    if shown is not None and text in shown:
        text = f"{type(error).__name__}, as before"
    elif shown is not None:
        shown.add(text)
    site = context.node_config.get("site", context.node_config.get("partition-id", "a site"))
    for line in f"{site}: {text}".splitlines():  # a logged line break would be escaped
        logger.error("%s", line)


def _described(error: Exception) -> str:
    """An error for the site's own log, which stays there.

    Our own say what is wrong. Texts of others may quote data: only where they come from is said,
    and which line of the app that was.
    """
    name, frames = type(error).__name__, traceback.extract_tb(error.__traceback__)
    if _is_ours(error):
        return f"{name}: {error}"
    places = dict.fromkeys(
        f"{Path(frame.filename).name}:{frame.lineno}"
        for frame in [*_of_the_app(frames)[-1:], frames[-1]]
    )
    return f"{name} at {', in '.join(places)}"


def _shown(error: Exception) -> str:
    """An error for the developer: its text, and the lines of the app that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    of_app = _of_the_app(frames) or ([] if _is_ours(error) else frames[-1:])
    lines = "".join(traceback.format_list(of_app)).rstrip()
    text = "".join(traceback.format_exception_only(error)).strip()
    return f"{text}\n{lines}" if lines else text


def _of_the_app(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    return [frame for frame in frames if _is_of_an_app(Path(frame.filename))]


def _is_of_an_app(file: Path) -> bool:
    installed = PACKAGES & set(file.parts) or any(map(file.is_relative_to, NOT_OF_APPS))
    return not installed and not file.name.startswith("<")  # <frozen importlib>


def _is_ours(error: Exception) -> bool:
    return isinstance(error, FedcommonsError) and type(error).__module__.startswith("fedcommons.")
