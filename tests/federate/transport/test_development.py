"""An app's own mistakes: shown to its developer, scrubbed in a deployment."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from fedcommons.errors import FederationError
from fedcommons.federate.transport.embedded_grid import EmbeddedGrid, run_embedded
from fedcommons.federate.transport.messages import content
from tests.federate.tiny import train

pytestmark = pytest.mark.usefixtures("impatient")


class Recording(EmbeddedGrid):
    """Notes the errors that cross the wire."""

    errors: set[str]

    def _handle(self, message: Message) -> Message | None:
        reply = super()._handle(message)
        if reply is not None and reply.has_error():
            self.__dict__.setdefault("errors", set()).add(reply.error.reason)
        return reply


def mistaken(_site: object, _message: Message, _context: Context) -> Message:
    raise ValueError("two and two are five")


def in_numpy(_site: object, _message: Message, _context: Context) -> Message:
    return np.linalg.inv(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("function", "name", "text"),
    [(mistaken, "ValueError", "two and two are five"), (in_numpy, "LinAlgError", "must be square")],
)
@pytest.mark.parametrize("development", [True, False])
def test_only_a_developer_reads_the_text_of_an_error(
    tiny, caplog, function, name, text, development
):
    grid = tiny.grid(functools.partial(Recording, development=development), train=function)
    with tiny.shared(grid) as federation, pytest.raises(FederationError, match="nobody answered"):
        train(federation, grid, 1)
    assert grid.errors == {name}  # either way
    assert (text in caplog.text) == development
    assert (f"in {function.__name__}" in caplog.text) == development
    if development:
        assert f"a: {name}: " in caplog.text or "a: numpy.linalg.LinAlgError: " in caplog.text
        assert 'test_development.py", line' in caplog.text
        assert caplog.text.count(text) == (2 if function is mistaken else 1)  # text, source line
        assert f"b: {name}, as before" in caplog.text
    else:
        assert f"{name} at test_development.py:" in caplog.text


@pytest.mark.parametrize("development", [True, False])
def test_apps_that_are_not_coded_are_shown_too(caplog, development):
    server, client = ServerApp(), ClientApp()

    @client.train()
    def fail(_message: Message, _context: Context) -> Message:
        raise ValueError("two and two are five")

    @server.main()
    def main(grid: EmbeddedGrid, _context: Context) -> None:
        (reply,) = grid.send_and_receive([Message(content({}), 2, "train")])
        assert reply.error.reason == "ValueError"

    run_embedded(server, client, [{"site": "a"}], {}, development=development)
    assert ("a: ValueError: two and two are five" in caplog.text) == development
