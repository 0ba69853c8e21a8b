"""The real server and client apps in one process, without Ray, ports or processes."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedcommons.federate.transport import scrubbed_errors
from fedcommons.federate.transport.flower_internals import Run, as_task, carried, number
from fedcommons.federate.transport.simulation import simulating

SERVER_NODE = 1
FAILED = 2
_run_ids = itertools.count(int(time.time() * 1e6))


class EmbeddedGrid(Grid):
    """Delivers messages by calling the client app, serialised both ways as on the wire.

    A message is handled when replies are next pulled, in the order in which they were pushed, and
    each reply is handed out before the next message is handled: large models are not all in memory
    at once.

    `handler_seconds` adds up the clients' processor time, `n_bytes` the sizes of all messages. In
    `development` errors of the clients are logged with their text and line.
    """

    def __init__(
        self,
        app: ClientApp,
        node_configs: Sequence[Mapping[str, Any]],
        run_config: Mapping[str, Any],
        *,
        development: bool = False,
    ) -> None:
        self.app = app
        self.errors_shown: set[str] | None = set() if development else None
        self.run_config = dict(run_config)
        self.run_id = next(_run_ids)
        self.contexts = {
            node: Context(self.run_id, node, dict(config), RecordDict(), dict(run_config))
            for node, config in enumerate(node_configs, start=SERVER_NODE + 1)
        }
        self.handler_seconds = 0.0
        self.n_bytes = 0
        self._pushed: deque[Message] = deque()
        self._replies: dict[str, Message] = {}
        self._message_ids = itertools.count(1)
        self._run = Run.create_empty(self.run_id)

    @property
    def simulates(self) -> bool:
        """Whether the nodes are no more than partitions: their stores are where the server's is."""
        return all("store" not in context.node_config for context in self.contexts.values())

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            ids.append(str(next(self._message_ids)))
            number(message, ids[-1])
            self._pushed.append(message)
        return ids

    def _deliver_next(self) -> tuple[str, Message | None]:
        """Deliver the message that waits longest: its id, and the reply, if there is one."""
        message = self._pushed.popleft()
        sent = message.metadata.message_id
        arrived = self._carried(message)
        del message
        reply = self._handle(arrived)
        return sent, None if reply is None else self._carried(reply)

    def deliver_all(self) -> None:
        """Deliver what nobody has pulled a reply to."""
        while self._pushed:
            self._deliver_next()

    def _handle(self, message: Message) -> Message | None:
        """The node's reply; None if it gives none."""
        context = self.contexts.get(message.metadata.dst_node_id)
        if context is None:
            return Message(Error(5), reply_to=message)
        start = time.process_time()
        try:
            with as_task(self.run_id, context.node_id), simulating(), self._errors_as_wanted():
                return self._replied(message, context)
        except Exception as error:
            return Message(Error(FAILED, type(error).__name__), reply_to=message)
        finally:
            self.handler_seconds += time.process_time() - start

    def _replied(self, message: Message, context: Context) -> Message:
        try:
            return self.app(message, context)
        except Exception as error:  # an app that does not use `coded`
            scrubbed_errors.log(error, context)
            raise

    def _errors_as_wanted(self) -> contextlib.AbstractContextManager[None]:
        if self.errors_shown is None:
            return contextlib.nullcontext()
        return scrubbed_errors.development(self.errors_shown)

    def _carried(self, message: Message) -> Message:
        arrived, n_bytes = carried(message)
        self.n_bytes += n_bytes
        return arrived

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        wanted = list(message_ids)
        for sent in wanted:
            if sent in self._replies:
                yield self._replies.pop(sent)
        missing = {message.metadata.message_id for message in self._pushed} & set(wanted)
        while missing:
            sent, reply = self._deliver_next()
            if sent in missing:
                missing.discard(sent)
                if reply is not None:
                    yield reply
            elif reply is not None:
                self._replies[sent] = reply
            del reply

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        del timeout
        return self.pull_messages(self.push_messages(messages))


def run_embedded(
    server_app: ServerApp,
    client_app: ClientApp,
    node_configs: Sequence[Mapping[str, Any]],
    run_config: Mapping[str, Any],
    *,
    development: bool = True,
) -> EmbeddedGrid:
    """Run a server app against one client app at several nodes, in this process.

    All data are taken to be the developer's own: in `development` errors are logged with their text
    and line, which a deployed site never does.
    """
    grid = EmbeddedGrid(client_app, node_configs, run_config, development=development)
    serve(server_app, grid, run_config)
    return grid


def serve(server_app: ServerApp, grid: EmbeddedGrid, run_config: Mapping[str, Any]) -> None:
    """Run a server app on a grid that exists."""
    context = Context(grid.run_id, SERVER_NODE, {}, RecordDict(), dict(run_config))
    with as_task(grid.run_id, SERVER_NODE):
        server_app(grid, context)
    grid.deliver_all()
