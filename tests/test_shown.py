"""Whatever text holds, nothing but what can be seen is shown of it, on its own line."""

import html
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcommons import shown
from fedcommons.errors import ArgumentError, FedcommonsError, FederationError
from tests.hostile import FORGED, HOSTILE, assert_lines_are_safe, hidden

ANY = st.text(st.characters(exclude_categories=()))


@given(ANY)
def test_only_what_can_be_seen_is_left_on_one_line(text):
    found = shown.plain(text)
    assert not hidden(found)
    assert len(found.splitlines()) <= 1
    assert shown.plain(found) == found


@given(st.text(st.characters(categories=("L", "M", "N", "P", "S", "Zs"))))
def test_what_can_be_seen_stays_as_it_is(text):
    assert shown.plain(text) == text


@given(ANY)
def test_text_in_a_page_is_text(text):
    found = shown.html(text)
    assert not set(found) & set("<>\"'")
    assert html.unescape(found) == shown.plain(text)


@pytest.mark.parametrize("kind", [FedcommonsError, ArgumentError, FederationError])
def test_an_error_is_safe_to_print(kind):
    assert str(kind("straggler_prob must be <= 1")) == "straggler_prob must be <= 1"
    assert_lines_are_safe(str(kind(f"site {HOSTILE}")))


def test_what_another_program_printed_stays_apart():
    error = FederationError("it failed").showing(f"starting\n{HOSTILE}\n")
    assert str(error) == "it failed"
    (note,) = error.__notes__
    assert not hidden(note)
    assert all(line.startswith("  | ") for line in note.splitlines())
    assert f"  | {FORGED}" in note


def test_a_log_has_one_safe_line_for_each_message(caplog):
    logger = shown.logger("fedcommons.tests.shown")
    assert shown.logger("fedcommons.tests.shown") is logger
    logger.warning("%s: refused %d", HOSTILE, 3)
    logger.warning(HOSTILE.replace("%", "%%"))
    assert len(logger.filters) == 1
    for record in caplog.records:
        assert len(logging.Formatter("%(message)s").format(record).splitlines()) == 1
        assert_lines_are_safe(record.getMessage())
    assert caplog.records[0].getMessage().endswith(": refused 3")
