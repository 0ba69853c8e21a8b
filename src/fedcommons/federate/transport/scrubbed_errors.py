"""Errors at a site cross the wire by the name of their class alone: their texts may quote data."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Error, Message

from fedcommons import shown
from fedcommons.errors import FedcommonsError

logger = shown.logger(__name__)

Handler = Callable[[Message, Context], Message]
FAILED = 2  # Flower's code for a client that raised an exception
OURS = Path(__file__).parents[2]  # the package's folder


def scrubbed(message: Message, context: Context, handle: Handler) -> Message:
    """What the handler replies, or an error that says no more than its class."""
    try:
        return handle(message, context)
    except Exception as error:
        logger.error("%s", _described(error))
        return Message(Error(FAILED, type(error).__name__), reply_to=message)


def _described(error: Exception) -> str:
    """An error for the site's own log, which stays there.

    Our own say what is wrong. Texts of others may quote data: only where they come from is said,
    and which line of the app that was.
    """
    name, frames = type(error).__name__, traceback.extract_tb(error.__traceback__)
    if isinstance(error, FedcommonsError) and type(error).__module__.startswith("fedcommons."):
        return f"{name}: {error}"
    installed = sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), str(OURS)
    of_app = [frame for frame in frames if not frame.filename.startswith(installed)]
    places = dict.fromkeys(
        f"{Path(frame.filename).name}:{frame.lineno}" for frame in [*of_app[-1:], frames[-1]]
    )
    return f"{name} at {', in '.join(places)}"
