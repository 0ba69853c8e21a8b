"""The operator's list of sites that are left out."""

import contextlib
import json
import re
import signal

import numpy as np
import pytest
from typer.testing import CliRunner

from fedcommons.cli.commands import app
from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.refusals import MalformedRecord
from fedcommons.federate.server import lifting
from fedcommons.federate.server.quarantine import NAME, Offence, Quarantine, enforced
from fedcommons.figures.federation import write_page
from tests.federate.server.agreement import check_agreement
from tests.federate.tiny import die_at, in_child, outcomes, train
from tests.fuzz import mutations

pytestmark = pytest.mark.usefixtures("impatient")


def command(*arguments):
    return CliRunner().invoke(app, ["federate", "quarantine", *map(str, arguments)])


def test_the_operator_lists_and_lifts(tiny):
    with tiny.shared(grid := tiny.grid()) as federation:
        b = federation.commit.members[1]
        federation.quarantine.put(b.identity, "b", Offence("it was\x1b[31m odd"))
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


def lift_after(round_number, tiny, said):
    """Something to evaluate with, which lifts b's quarantine after a round, as the operator may."""

    def evaluate(number, _arrays):
        if number == round_number:
            said.append(command(tiny.state_dir, "--lift", "b").output)
        return {}

    return evaluate


def test_a_quarantine_is_lifted_while_training_goes_on(tiny):
    """The same exchange, a commit more; its private examples are back, and so is its answer."""
    said = []
    with tiny.shared(grid := tiny.grid()) as federation:
        first = federation.commit
        b = first.members[1]
        federation.quarantine.put(b.identity, "b", Offence("it was odd"))
        federation.record(enforced(federation.quarantine, first))
        _, notes = train(federation, grid, 4, evaluate_fn=lift_after(2, tiny, said))
        assert [outcomes(note)["b"] for note in notes] == [*["quarantined"] * 2, *["answered"] * 2]
        assert [note["commit"] for note in notes] == [*[[1, 1]] * 2, *[[1, 2]] * 2]
        assert federation.commit.n_examples == first.n_examples
        check_agreement(tiny, federation, grid, {})
    assert said == ["b takes part again from the next round on\n"]
    assert "no site is in quarantine" in command(tiny.state_dir).output
    assert not list((tiny.state_dir / lifting.REQUESTS).iterdir())


def test_a_request_does_not_lift_a_later_quarantine(tiny):
    with tiny.shared() as federation:
        b = federation.commit.members[1]
        federation.quarantine.put(b.identity, "b", Offence("it was odd"))
        lifting.lift(tiny.state_dir, "b")
        federation.quarantine.lift(federation.quarantine.find("b"))
        federation.quarantine.put(b.identity, "b", Offence("it was odd again"))
        assert lifting.lift_what_was_asked(federation) == []
        assert b.identity in federation.quarantine
        lifting.lift(tiny.state_dir, "b")
        (path,) = (tiny.state_dir / lifting.REQUESTS).iterdir()
        good, rng = path.read_bytes(), np.random.default_rng(0)
        for k in range(60):  # whatever became of a request, it lifts what it says or nothing
            damaged = mutations.BYTES[k % len(mutations.BYTES)](good, rng)
            path.write_bytes(b" " if damaged == good else damaged)
            with contextlib.suppress(FederationError):
                lifting.lift_what_was_asked(federation)
            if b.identity not in federation.quarantine:
                assert json.loads(damaged)["identity"] == b.identity
                federation.quarantine.put(b.identity, "b", Offence("it was odd again"))
        assert not list((tiny.state_dir / lifting.REQUESTS).iterdir())


@pytest.mark.parametrize("point", ["lift", "commit", "quarantine", "lifted"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_whoever_dies_while_it_is_lifted_has_lifted_it_or_does_it_again(tiny, point, side):
    with tiny.shared() as federation:
        b = federation.commit.members[1]
        federation.quarantine.put(b.identity, "b", Offence("it was odd"))
        federation.record(enforced(federation.quarantine, federation.commit))

    def main() -> None:
        durable.reached = die_at(f"server.{point}:{side}")
        lifting.lift(tiny.state_dir, "b")

    assert in_child(main) == -signal.SIGKILL
    with tiny.shared() as federation:
        was_asked = (point, side) != ("lift", "before")
        assert federation.commit.quarantined == (() if was_asked else (1,))
        assert (b.identity in federation.quarantine) == (not was_asked)


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
