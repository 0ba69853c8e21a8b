"""The live page of a federation: one address with a token in it, read again every few seconds."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from http import HTTPStatus
from importlib import resources
from threading import Lock
from typing import Any

from fedcommons import shown
from fedcommons.desk.serving import Answer, Respond, refused
from fedcommons.figures import style
from fedcommons.figures.markup import Markup, markup

DATA = "now.json"


def new_token() -> str:
    return secrets.token_urlsafe(24)


def respond_with(token: str, look: Callable[[], dict[str, Any]]) -> Respond:
    """The page at /TOKEN/ and what it shows beside it; nothing without the token."""
    page = html()
    headers = {"Content-Security-Policy": policy(page)}
    one_at_a_time = Lock()

    def respond(path: str) -> Answer:
        given, _, rest = path.removeprefix("/").partition("/")
        if not hmac.compare_digest(given.encode(), token.encode()):
            return refused(HTTPStatus.FORBIDDEN)
        if path == f"/{token}/":
            return Answer(HTTPStatus.OK, page.encode(), "text/html; charset=utf-8", headers)
        if rest == DATA:
            with one_at_a_time:
                found = look()
            content = json.dumps(_plain(found), allow_nan=False).encode()
            return Answer(HTTPStatus.OK, content, "application/json")
        return refused(HTTPStatus.NOT_FOUND)

    return respond


def _plain(value: Any) -> Any:
    """The same with text in which every character can be seen."""
    if isinstance(value, str):
        return shown.plain(value)
    if isinstance(value, dict):
        return {shown.plain(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def html() -> Markup:
    """The page; all that it shows comes later, and is put in as text."""
    parts = {name: _packaged(f"desk.{name}") for name in ("css", "js")}
    return markup(_packaged("desk.html"), page_css=style.page_css(), **parts)


def _packaged(name: str) -> Markup:
    return Markup((resources.files("fedcommons.desk") / name).read_text(encoding="utf-8"))


def policy(page: str) -> str:
    """Its own script and style alone may run, and it may ask its own server alone."""
    allowed = {}
    for tag in ("script", "style"):
        content = page.split(f"<{tag}>")[1].split(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        allowed[tag] = f"'sha256-{digest}'"
    return (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
