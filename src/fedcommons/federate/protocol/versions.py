"""Versions of the messages between a server and its sites, and what happens if they differ.

The server names the version that it speaks in every question. To change the messages, append the
new version to `SPOKEN`, and take those out that this code does not understand any more. A site
refuses a version that it does not speak, by the name of a class that says which side is behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcommons.federate.protocol.refusals import Refusal

FIELD = "protocol"
SPOKEN = {
    6: "owners sign what they withdraw, and sites that withdrew everything a farewell, which "
    "commits carry; a reply names the number of the question that it answers",
}
CURRENT = max(SPOKEN)


class WrongVersion(Refusal):
    """The other side speaks a version of the messages that this side does not."""


class SiteIsOlder(WrongVersion):
    """The site must be updated: it does not know the server's version yet."""


class ServerIsOlder(WrongVersion):
    """The server must be updated: the site does not speak its version any more."""


ADVICE = {
    SiteIsOlder.__name__: "its fedcommons is older than the server's: update the site",
    ServerIsOlder.__name__: "its fedcommons is newer than the server's: update the server",
}


def check_request(request: Mapping[str, Any]) -> None:
    """At a site: whether it speaks the version of a question."""
    version = _version_of(request)
    if version > CURRENT:
        raise SiteIsOlder(f"the server speaks version {version}, this site up to {CURRENT}")
    if version not in SPOKEN:
        raise ServerIsOlder(
            f"the server speaks version {version}, this site {min(SPOKEN)} to {CURRENT}"
        )


def check_offer(reply: Mapping[str, Any]) -> None:
    """At the server: whether it speaks the version of a site's offer.

    A site from before there were versions answers whatever it is asked.
    """
    version = _version_of(reply)
    if version > CURRENT:
        raise ServerIsOlder(f"the site speaks version {version}, this server up to {CURRENT}")
    if version not in SPOKEN:
        raise SiteIsOlder(
            f"the site speaks version {version}, this server {min(SPOKEN)} to {CURRENT}"
        )


def _version_of(fields: Mapping[str, Any]) -> int:
    version = fields.get(FIELD, 0)
    if type(version) is not int:
        raise WrongVersion("the version of a message must be an integer")
    return version
