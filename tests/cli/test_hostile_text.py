"""What sites, files and errors say of themselves stays on its own line of the terminal."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from fedcommons.cli import app as entry
from fedcommons.cli import exit_codes, federate_demo, federate_site, screen, terminal
from fedcommons.cli.commands import app
from fedcommons.errors import DataError, FederationError
from fedcommons.federate.site import status
from fedcommons.metrics import METRICS
from tests.hostile import FORGED, HOSTILE, assert_lines_are_safe, hidden


def test_an_error_is_one_line_and_what_a_program_printed_is_marked(monkeypatch, capsys):
    def fail():
        raise FederationError(f"site {HOSTILE}").showing(f"started\n{HOSTILE}")

    monkeypatch.setattr("fedcommons.cli.commands.app", fail)
    with pytest.raises(SystemExit) as ended:
        entry.main()
    said = capsys.readouterr().err
    assert ended.value.code == exit_codes.exit_code(FederationError())
    assert not hidden(said)
    first, *rest = said.splitlines()
    assert first.startswith("fedcommons: site x")
    assert all(line.startswith("  | ") for line in rest)


def test_a_file_with_hostile_names_is_a_safe_message(tmp_path, monkeypatch, capsys):
    path = tmp_path / f"{HOSTILE.replace('/', '').replace(chr(0), '')[:60]}.npz"
    path.write_bytes(b"no archive")
    monkeypatch.setattr("sys.argv", ["fedcommons", "federate", "check", str(path)])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == exit_codes.exit_code(DataError())
    assert_lines_are_safe(capsys.readouterr().err)


def test_lines_of_a_plan(tmp_path):
    """Names of sites and classes in a CSV file; one of each is hostile."""
    name = HOSTILE.replace('"', "").replace("\x00", "")
    path = tmp_path / "sites.csv"
    path.write_text(
        f'site,p,"{name}",y\n"{name}",.1,9,4\nb,.4,12,30\n', encoding="utf-8", newline=""
    )
    for option in ([], ["--json"]):
        ran = CliRunner().invoke(app, ["plan", "--sites", str(path), *option])
        assert ran.exit_code == 0, ran.output
        assert_lines_are_safe(ran.output)
    path.write_text(f'"{name}",x\n1,2\n1\n', encoding="utf-8", newline="")
    with pytest.raises(DataError) as refused:
        CliRunner().invoke(app, ["plan", "--sites", str(path)], catch_exceptions=False)
    assert_lines_are_safe(str(refused.value))


ENTRY = {"time": 0.0, "event": HOSTILE, "epoch": 1, "peer": HOSTILE, "examples": 1, "bytes": 2}
STATUS = {"federation": HOSTILE, "code": HOSTILE, "commit": None, "held_from_others": {HOSTILE: 3}}


def test_status_and_ledger(capsys):
    federate_site.print_status(STATUS)
    federate_site._print_ledger([ENTRY])
    said = capsys.readouterr().out
    assert_lines_are_safe(said)
    assert "held from x" in said


def test_a_stores_own_names_are_shown_safely(monkeypatch, tmp_path):
    """The names of peers come from `peers.toml`, where any name may stand."""
    from fedcommons.federate.site.store import Store

    Store(tmp_path, create=True).close()
    monkeypatch.setattr(status, "names_of", lambda store: {store.identity.name: HOSTILE})
    for command in ("status", "ledger"):
        ran = CliRunner().invoke(app, ["federate", command, str(tmp_path)])
        assert ran.exit_code == 0, ran.output
        assert_lines_are_safe(ran.output)


SITE = {"site": HOSTILE, "answered": False, "outcome": HOSTILE, "straggler_prob": 0.5}
NOTE = {"round": 1, "seconds": 1.0, "sites": [SITE], "metrics": {HOSTILE: 1.0, "accuracy": 0.5}}


def test_the_demo_says_a_line_for_each_round_and_event(capsys):
    watched = federate_demo._Screen(1)
    with watched.shown(as_json=False):
        watched.say(HOSTILE)
        watched.on_round(NOTE)
    assert_lines_are_safe(capsys.readouterr().out)
    from rich.console import Console

    console = Console(width=2000)
    console.print(watched._picture())
    assert not hidden(capsys.readouterr().out)


def test_reports_of_lines_and_claims(capsys):
    line = {
        "figure": HOSTILE, "p": 0.5, "label": HOSTILE, "accuracy": 0.5, "sem": None,
        "diverged": 1, "runs": 2,
    }  # fmt: skip
    claim = {
        "claim": HOSTILE, "where": HOSTILE, "verdict": "holds", "evidence": HOSTILE,
        "statistic": HOSTILE,
    }  # fmt: skip
    terminal.print_report(
        {"claims": [claim], "lines": [line], "runs": 1}, lines_by=METRICS["accuracy"]
    )
    captured = capsys.readouterr()
    assert not hidden(captured.out)
    assert_lines_are_safe(captured.err)


def test_json_is_visible_ascii_that_means_the_same(capsys):
    screen.say_json({HOSTILE: [HOSTILE]})
    said = capsys.readouterr().out
    assert said.isascii()
    assert not hidden(said)
    assert json.loads(said) == {HOSTILE: [HOSTILE]}


def test_lines_stay_lines(capsys):
    screen.say("one", HOSTILE, "three")
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert FORGED in HOSTILE
