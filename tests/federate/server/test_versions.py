"""Servers and sites of different versions say which of them must be updated."""

import pytest
from flwr.app import ConfigRecord, Message

from fedcommons.errors import FederationError
from fedcommons.federate.protocol import versions
from fedcommons.federate.transport import messages
from tests.federate.tiny import Counting, Tiny

pytestmark = pytest.mark.usefixtures("impatient")

LATER = versions.CURRENT + 1


class OfVersions(Counting):
    """The version that questions or replies name is replaced, or taken away if it is None."""

    question: int | None = versions.CURRENT
    reply: int | None = versions.CURRENT

    def _handle(self, message: Message) -> Message | None:
        reply = super()._handle(_of(message, self.question))
        return reply if reply is None or reply.has_error() else _of(reply, self.reply)


def _of(message: Message, version: int | None) -> Message:
    fields = dict(message.content[messages.FIELDS])
    fields.pop(versions.FIELD, None)
    if version is not None:
        fields[versions.FIELD] = version
    message.content[messages.FIELDS] = ConfigRecord(fields)
    return message


@pytest.mark.parametrize(
    ("side", "named", "advice"),
    [
        ("question", "SiteIsOlder", "its fedcommons is older than the server's: update the site"),
        ("reply", "ServerIsOlder", "its fedcommons is newer than the server's: update the server"),
    ],
)
def test_who_must_be_updated_is_said(tiny: Tiny, caplog, side, named, advice):
    grid = tiny.grid(OfVersions)
    setattr(grid, side, LATER)
    with pytest.raises(FederationError, match=rf"two sites are needed.*{named} \({advice}\)"):
        tiny.share(grid)
    assert f"node 2 is not taken in: {named} ({advice})" in caplog.text


@pytest.mark.parametrize(
    ("side", "named", "advice"),
    [
        (
            "question",
            "ServerIsOlder",
            "its fedcommons is newer than the server's: update the server",
        ),
        ("reply", "SiteIsOlder", "its fedcommons is older than the server's: update the site"),
    ],
)
@pytest.mark.parametrize("version", [None, 2])
def test_versions_without_numbers_of_questions_are_spoken_no_more(
    tiny: Tiny, side, named, advice, version
):
    """Else a server could do without what protects the sites by saying that it is an old one."""
    grid = tiny.grid(OfVersions)
    setattr(grid, side, version)
    with pytest.raises(FederationError, match=rf"two sites are needed.*{named} \({advice}"):
        tiny.share(grid)


def test_a_version_that_is_spoken_no_more_is_refused_by_either_side(monkeypatch):
    monkeypatch.setattr(versions, "SPOKEN", {1: "the present one"})
    with pytest.raises(versions.ServerIsOlder, match="the server speaks version 0, this site 1 to"):
        versions.check_request({})
    with pytest.raises(versions.SiteIsOlder, match="the site speaks version 0, this server 1 to"):
        versions.check_offer({})


def test_a_version_in_words_is_refused():
    with pytest.raises(versions.WrongVersion, match="must be an integer"):
        versions.check_request({versions.FIELD: "new"})
