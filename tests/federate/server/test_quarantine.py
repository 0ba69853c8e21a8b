"""The operator's list of sites that are left out."""

import json
import re

import pytest
from typer.testing import CliRunner

from fedcommons.cli.commands import app
from fedcommons.errors import FederationError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.refusals import MalformedRecord
from fedcommons.federate.server.quarantine import NAME, Offence, Quarantine
from fedcommons.figures.federation import write_page
from tests.federate.tiny import train

pytestmark = pytest.mark.usefixtures("impatient")


def command(*arguments):
    return CliRunner().invoke(app, ["federate", "quarantine", *map(str, arguments)])


def test_the_operator_lists_and_lifts(tiny):
    with tiny.shared(grid := tiny.grid()) as federation:
        b = federation.commit.members[1]
        federation.quarantine.put(b.identity, "b", Offence("it was\x1b[31m odd"))
        assert "state-dir" in str(command(tiny.state_dir, "--lift", "b").exception)  # it is held
    tiny.close()
    with tiny.shared(grid := tiny.grid()) as federation:  # what is listed is in the commit
        assert federation.commit.quarantined == (1,)
        train(federation, grid, 1)
    tiny.close()
    listed = command(tiny.state_dir)
    assert re.search(rf"b +{b.identity[:8]}  since .*Z: it was", listed.output)
    assert "\x1b" not in listed.output
    (entry,) = json.loads(command(tiny.state_dir, "--json").output)["quarantined"]
    assert entry["site"] == "b"
    (run,) = tiny.state_dir.glob("training-*/run.json")
    record = json.loads(run.read_text())
    assert record["quarantine"] == [entry]
    assert [site["quarantined"] for site in record["sites"]] == [False, True, False, False]
    assert "<td>quarantined: it was" in write_page(run.parent).read_text()
    assert "takes part again" in command(tiny.state_dir, "--lift", "b").output
    assert "no site is in quarantine" in command(tiny.state_dir).output
    with tiny.shared() as federation:
        assert federation.commit.quarantined == ()


def test_a_folder_that_is_no_servers_is_said(tmp_path):
    assert "must be a server's folder" in str(command(tmp_path).exception)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"quarantined": [1], "approved": {}}'])
def test_a_damaged_list_is_named(tmp_path, content):
    (tmp_path / NAME).write_text(content)
    with pytest.raises(FederationError, match=f"{NAME} (is damaged|cannot be read)"):
        Quarantine(tmp_path)


def test_a_quarantine_begins_and_ends_and_nothing_else_comes_back(tiny):
    with tiny.shared() as federation:
        first = federation.commit
    out = first.with_quarantine([1])
    assert out.may_follow(first)
    assert out.lifted(1).may_follow(out)
    assert (
        not out.lifted(1)
        .anew(present=(True, False, True, True))
        .lifted(0)
        .may_follow(out.without(2))
    )
    assert Commit.decode(out.record) == out
    assert out.without(1).quarantined == ()
    assert (first.anew().record.count(b"quarantined"), out.record.count(b"quarantined")) == (0, 1)


@pytest.mark.parametrize(
    "changes",
    [{"quarantined": (9,)}, {"quarantined": (1, 0)}, {"quarantined": (0,), "set_aside": (1,)}],
    ids=str,
)
def test_a_quarantine_that_cannot_be_is_refused(tiny, changes):
    with tiny.shared() as federation:
        commit = federation.commit.anew()
    for name, value in changes.items():
        object.__setattr__(commit, name, value)
    with pytest.raises(MalformedRecord, match="commit: "):
        Commit.decode(commit.encode())
