"""The live page: behind a token, in a browser, whatever sites call themselves."""

import contextlib
import http.client
import json

import pytest

from fedcommons.desk import page, serving
from fedcommons.errors import FederationError
from tests.figures.test_page import browser
from tests.hostile import HOSTILE, hidden

__all__ = ["browser"]

SITE = {
    "site": "site-0", "examples": 60, "present": True, "asked": 3, "on_time": 1, "late": 1,
    "last_late_by": 2.5, "straggler_prob": 0.25, "quarantined": "", "measured": {"accuracy": 0.75},
    "doing": "has not answered, 4 s late",
    "strip": [["●", "good", "", "answered"], ["↩", "good", "+2.5", "no answer"],
              ["×", "bad", "", "not connected"]],
}  # fmt: skip
VIEW = {
    "federation": "clinics", "training": "t", "state": "round 4, 3 s of at most 9 s",
    "is_over": False, "metric": "accuracy", "round": 3,
    "curve": [[0, None], [1, 0.5], [2, 0.7], [3, 0.75]],
    "rounds": [{"round": 3, "seconds": 6.5, "deadline": 9.0, "asked": 1, "sites": 1, "answered": 0,
                "late": 1, "bytes_sent": 31400, "bytes_received": 2_500_000}],
    "sites": [SITE],
    "happenings": [{"round": 2, "site": "site-0", "what": "withdrew 3 examples"}],
}  # fmt: skip
HOSTILE_VIEW = {
    **VIEW,
    "federation": HOSTILE, "state": HOSTILE, "metric": HOSTILE,
    "sites": [{**SITE, "site": HOSTILE, "doing": HOSTILE, "measured": {HOSTILE: 0.5},
               "strip": [[HOSTILE, HOSTILE, HOSTILE, HOSTILE]]}],
    "happenings": [{"round": 1, "site": HOSTILE, "what": HOSTILE}],
}  # fmt: skip


def asked(address, method="GET"):
    """The status, the headers and the content of what is answered; a path goes as it is."""
    host, _, path = address.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host)
    with contextlib.closing(connection):
        connection.request(method, f"/{path}")
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def test_nothing_is_shown_without_the_token():
    token = page.new_token()
    with serving.serving(page.respond_with(token, lambda: VIEW)) as address:
        assert address.startswith("http://127.0.0.1:")
        for path in ("", "/", "/now.json", f"/{token[:-1]}/", f"/{token}x/now.json", "/%00/",
                     f"/x/{token}/", f"/?{token}"):  # fmt: skip
            status, _, content = asked(address + path)
            assert (status, content) == (403, b"403 Forbidden\n"), path
        for path in ("x", "now.json/", "../now.json"):
            assert asked(f"{address}/{token}/{path}")[0] == 404
        for method in ("POST", "PUT", "DELETE"):
            assert asked(f"{address}/{token}/", method)[0] == 501
        status, headers, content = asked(f"{address}/{token}/now.json?x=1")
        assert (status, json.loads(content)) == (200, VIEW)
        status, headers, content = asked(f"{address}/{token}/")
        assert status == 200
        assert token.encode() not in content
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'sha")
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert asked(f"{address}/{token}/", "HEAD")[2] == b""


def test_a_folder_that_cannot_be_read_is_said_and_the_server_goes_on(caplog):
    def look():
        raise FederationError("history.jsonl is damaged")

    with serving.serving(page.respond_with("t", look)) as address:
        assert asked(f"{address}/t/now.json")[0] == 503
        assert asked(f"{address}/t/")[0] == 200
    assert "history.jsonl is damaged" in caplog.text


@pytest.fixture
def opened(browser):
    """Open the page of a view in a browser, which may not complain."""
    complaints, contexts = [], []

    def open_page(width=1280):
        context = browser.new_context(viewport={"width": width, "height": 900})
        contexts.append(context)
        found = context.new_page()
        found.set_default_timeout(30000)
        found.on("console", lambda message: complaints.append(message.text))
        found.on("pageerror", lambda error: complaints.append(str(error)))
        found.on("dialog", lambda dialog: complaints.append(dialog.message))
        return found

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def test_it_shows_sites_and_what_happened_and_goes_on_showing(opened):
    views = [VIEW]
    with serving.serving(page.respond_with("t", lambda: views[-1])) as address:
        for width in (1280, 390):
            found = opened(width)
            found.goto(f"{address}/t/")
            row = found.locator("#sites tbody tr")
            row.wait_for()
            words = row.inner_text()
            for text in (
                "site-0",
                "4 s late",
                "●↩×",
                "1 of 3",
                "1 (last +2.5 s)",
                "0.25",
                "0.7500",
            ):
                assert text in words
            assert "withdrew 3 examples" in found.locator("#happened").inner_text()
            assert "2.5 MB" in found.locator("#rounds").inner_text()
            assert found.locator("#curve polyline").count() == 1
            wide = found.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, "it does not need to be moved sideways"
            if width > 390:
                found.close()
        views.append({**VIEW, "state": "ended after round 4"})
        found.get_by_text("Ended after round 4.").wait_for()
        found.close()  # before the server, which it would miss


def test_names_of_sites_are_text(opened):
    with serving.serving(page.respond_with("t", lambda: HOSTILE_VIEW)) as address:
        found = opened()
        found.goto(f"{address}/t/")
        row = found.locator("#sites tbody tr")
        row.wait_for()
        assert row.locator("img, script, iframe, b").count() == 0
        assert "<script>alert(1)</script>" in row.inner_text()
        assert not hidden(row.inner_text().replace("\t", ""))
        found.close()
