"""Everything that is used of Flower and is not documented there, in one place.

Flower documents `flwr.app`, `flwr.serverapp` and `flwr.clientapp`; what is below them may change
with any of its releases, one every three weeks. All of it that the project touches is imported and
checked here, so that a version that does not fit ends in one message.
"""

from __future__ import annotations

import contextlib
import io
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.clientapp import ClientApp

from fedcommons.errors import FederationError
from fedcommons.federate.transport.flower_versions import does_not_fit

if TYPE_CHECKING:
    from flwr.app import Message

__all__ = [
    "FLOWER_LOGGER",
    "Run",
    "app_mods",
    "as_task",
    "carried",
    "function_mods",
    "number",
    "packed_files",
    "update_console_handler",
    "without_app_mods",
]


try:
    from flwr.common.logger import FLOWER_LOGGER, update_console_handler
    from flwr.common.serde import message_from_proto, message_to_proto
    from flwr.proto.message_pb2 import Message as ProtoMessage
    from flwr.supercore.run import Run
    from flwr.supercore.task_identity import TaskIdentity

    _IDENTITY = (TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id)
    _EMPTY = Run.create_empty
    _APP = (ClientApp()._mods, ClientApp()._registered_funcs)
except (ImportError, AttributeError) as error:
    raise does_not_fit(str(error)) from error


@contextlib.contextmanager
def as_task(run_id: int, node_id: int) -> Iterator[None]:
    """Be this node for Flower, which keeps who runs here in one place for the whole process."""
    before = (TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id)
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 0, run_id, node_id
    try:
        yield
    finally:
        TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id = before


def number(message: Message, message_id: str) -> None:
    """Give a message its id, as the SuperLink does; Flower offers no way to set it."""
    message.metadata.__dict__["_message_id"] = message_id
    if message.metadata.message_id != message_id:
        raise does_not_fit("a message's id cannot be set")


def carried(message: Message) -> tuple[Message, int]:
    """A message as it arrives when it crossed the wire, and its size there in bytes."""
    wire = message_to_proto(message).SerializeToString()
    return message_from_proto(ProtoMessage.FromString(wire)), len(wire)


def packed_files(folder: Path) -> dict[str, bytes]:
    """The files of an app as they arrive at the sites, by path: what `flwr run` would send."""
    try:
        from flwr.cli.build import build_fab_from_disk  # slow, and needed for reviews alone
    except ImportError as error:
        raise does_not_fit(str(error)) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what Flower itself uses
            packed = build_fab_from_disk(folder)
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            names = [name for name in archive.namelist() if not name.startswith(".info/")]
            return {name: archive.read(name) for name in names}
    except Exception as error:  # of what others wrote Flower raises anything
        raise FederationError(f"{folder} cannot be packed as a Flower app: {error}") from None


def app_mods(app: ClientApp) -> list[Callable[..., Any]]:
    """The mods of the app itself, which are around all of its functions."""
    return list(app._mods)


@contextlib.contextmanager
def without_app_mods(app: ClientApp) -> Iterator[None]:
    """Functions that are registered meanwhile have no mods but their own."""
    before = app._mods
    app._mods = []
    try:
        yield
    finally:
        app._mods = before


def function_mods(app: ClientApp, category: str) -> list[Callable[..., Any]] | None:
    """The mods around the app's function of this category, from the outside; None if it has none.

    Those of the app itself come first. Flower wraps each mod around the next in a closure; where it
    does so in another way, fewer are found.
    """
    call: Any = app._registered_funcs.get(f"{category}.default")
    if call is None:
        return None
    mods = []
    while getattr(getattr(call, "__code__", None), "co_freevars", ()) == ("_ffn", "_mod"):
        call, mod = (cell.cell_contents for cell in call.__closure__)
        mods.append(mod)
    return mods
