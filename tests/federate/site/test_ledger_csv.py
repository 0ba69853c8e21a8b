"""The ledger as CSV names exactly the examples that the draw says, on the ground they had then."""

import csv
import hashlib
import io
import stat
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedcommons.cli.federate import app as cli
from fedcommons.federate.protocol import chunks
from fedcommons.federate.protocol.refusals import GroundMissing
from fedcommons.federate.site.ledger_csv import COLUMNS, write_csv
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.policy import SIMULATED
from fedcommons.federate.site.rotation import read_statement, rotate_identity, trust_in_store
from fedcommons.federate.site.store import Store
from tests.federate import server
from tests.federate.conftest import FEDERATION, epoch_of, exchange
from tests.federate.site.stores import SENDERS, fill
from tests.federate.tiny import Tiny, train

POLICY = """
min-examples = 1
min-sites = 2
max-copies = 3
share-with-all = true
unconfirmed-answers = 1000
require-ground = true
"""


def lines_of(store: Store, *, rows: bool = True) -> list[dict[str, str]]:
    out = io.BytesIO()
    write_csv(store, out, rows=rows)
    content = out.getvalue().decode("utf-8")
    assert content.count("\r\n") == content.count("\n")
    return list(csv.DictReader(io.StringIO(content, newline=""), strict=True))


def fill_as_of_old(store: Store) -> None:
    """Something of every kind, and no record of its epoch."""
    fill(store)
    number, digest = store.epochs.highest()
    with store.database.writing("test"):
        store.database.put("epochs", number, digest, b"")


def of_event(lines, event, *columns):
    return sorted(tuple(line[c] for c in columns) for line in lines if line["event"] == event)


def say_grounds(tiny: Tiny, name: str, when: str) -> None:
    data = tiny.data[name]
    ground = [f"consent {name}{row} {when}" for row in range(data.n_examples)]
    tiny.data[name] = SiteData.from_arrays(
        data.x.take(np.arange(data.n_examples)), data.y, data.shareable, ground=ground
    )


def drawn(tiny, commit, sender, gone):
    """One after another: (recipient, row, number) of all that a site gives by a commit's draw."""
    place = next(i for i, m in enumerate(commit.members) if m.site == sender)
    marks = tiny.data[sender].shareable
    shared = [row for row in np.flatnonzero(marks).tolist() if row not in gone]
    for number, row in enumerate(shared):
        for recipient in commit.draw.recipients(place, number, number + 1)[0].tolist():
            yield commit.members[recipient], row, number


@pytest.fixture
def three_exchanges(tiny):
    """Site a withdraws row 2 after the first exchange; site b has another key in the third.

    The commits, whether of each exchange, and the keys of b.
    """
    (tiny.folder / "a").mkdir()
    (tiny.folder / "a" / "policy.toml").write_text(POLICY)
    commits = []
    for turn, when in enumerate(["first", "second", "third"]):
        say_grounds(tiny, "a", when)
        grid = tiny.grid()
        with tiny.shared(grid, reshare=bool(turn)) as federation:
            commits.append(federation.commit)
            train(federation, grid, 2 + 4 * turn)
        tiny.close()
        if turn == 0:
            tiny.withdraw("a", 2)
            grid = tiny.grid()
            with tiny.shared(grid) as federation:
                train(federation, grid, 4)
        if turn == 1:
            statement = tiny.folder / "statement"
            with tiny.store("b") as store:
                rotate_identity(store, statement)
            for other in "acd":
                with tiny.store(other) as store:
                    assert trust_in_store(store, read_statement(statement)) == "b"
        with tiny.store("a") as store:
            store.given.approve()
    return tiny, commits


@pytest.mark.usefixtures("impatient")
def test_every_transfer_is_named_as_it_was_drawn(three_exchanges):
    tiny, commits = three_exchanges
    assert [commit.number for commit in commits] == [1, 2, 3]
    assert len({m.identity for c in commits for m in c.members if m.site == "b"}) == 2
    with tiny.store("a") as store:
        lines = lines_of(store)
        receipts = {
            (e.epoch, e.peer): hashlib.sha256(e.evidence).hexdigest()
            for e in store.ledger.entries()
            if e.event == "receipt"
        }
        counts = {e.entry: e.examples for e in store.ledger.entries()}
        under_csv = lines_of(store, rows=False)
    expected = []
    for commit, when in zip(commits, ["first", "second", "third"], strict=True):
        gone = set() if commit.number == 1 else {2}
        for member, row, number in drawn(tiny, commit, "a", gone):
            about = (member.site, member.identity, str(row), str(number), f"consent a{row} {when}")
            receipt = receipts[commit.number, member.identity]
            expected.append((str(commit.number), *about, "1", receipt))
    wanted = ("epoch", "peer", "peer_key", "row", "number", "ground", "examples", "receipt")
    assert of_event(lines, "sent", *wanted) == sorted(expected)

    came = [
        (str(commit.number), sender, str(number))
        for commit in commits
        for sender in "bcd"
        for member, _, number in drawn(tiny, commit, sender, set())
        if member.site == "a"
    ]
    assert of_event(lines, "received", "epoch", "peer", "number") == sorted(came)
    assert {line["ground"] for line in lines if line["event"] == "received"} == {""}
    gone_again = [one for one in came if one[0] != "3"]  # each exchange replaces the one before
    assert of_event(lines, "deleted", "epoch", "peer", "number") == sorted(gone_again)
    assert of_event(lines, "withdrawn", "epoch", "row", "number", "ground") == [
        ("1", "2", "1", "consent a2 first")
    ]
    # What the lines of an entry count is what the entry says, with rows and without.
    for found in (lines, under_csv):
        totals = dict.fromkeys(counts, 0)
        for line in found:
            totals[int(line["entry"])] += int(line["examples"])
        assert totals == counts
    assert len(under_csv) == len(counts)


@pytest.mark.usefixtures("impatient")
def test_who_holds_a_withdrawn_example_names_it_when_it_is_deleted(three_exchanges):
    tiny, commits = three_exchanges
    place = next(i for i, m in enumerate(commits[0].members) if m.site == "a")
    (number,) = [n for m, row, n in drawn(tiny, commits[0], "a", set()) if row == 2][:1]
    holders = commits[0].draw.recipients(place, number, number + 1)[0].tolist()
    for holder in holders:
        with tiny.store(commits[0].members[holder].site) as store:
            lines = [x for x in lines_of(store) if x["peer"] == "a" and x["epoch"] == "1"]
        received = of_event(lines, "received", "number")
        deleted = [x for x in lines if x["event"] == "deleted"]
        assert sorted((x["number"],) for x in deleted) == received  # each once
        first = min(int(x["entry"]) for x in deleted)
        assert [x["number"] for x in deleted if int(x["entry"]) == first] == [str(number)]


def test_an_exchange_in_several_chunks(three, monkeypatch):
    """What one sent is what the others received, by the same numbers."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2 * three[0].data.form.row_bytes)
    epoch = epoch_of(three)
    exchange(three, epoch)
    sent, received = set(), set()
    for place, site in enumerate(three):
        lines = lines_of(site.store)
        for line in lines:
            if line["event"] == "sent":
                sent.add((site.name, line["peer"], line["number"]))
                assert int(line["row"]) == 2 * int(line["number"])  # every other may be shared
            elif line["event"] == "received":
                received.add((line["peer"], site.name, line["number"]))
        drawn = epoch.draw.recipients(place, 0, 6)[:, 0].tolist()
        expected = {(site.name, three[r].name, str(n)) for n, r in enumerate(drawn)}
        assert {one for one in sent if one[0] == site.name} == expected
    assert sent == received
    assert len({e.chunk for e in three[0].store.ledger.entries() if e.event == "sent"}) > 1


@pytest.mark.usefixtures("impatient")
def test_a_store_of_an_earlier_version_names_rows_without_ground(tmp_path):
    old = Tiny(tmp_path)
    with zipfile.ZipFile(Path(server.__file__).with_name("unversioned.zip")) as file:
        file.extractall(tmp_path)
    with old.store("b") as store:  # which withdrew row 0 of its rows 0, 2 and 4
        lines = lines_of(store)
        counts = {e.entry: e.examples for e in store.ledger.entries()}
    assert {line["row"] for line in lines if line["event"] == "sent"} == {"0", "2", "4"}
    assert of_event(lines, "withdrawn", "row", "number", "ground") == [("0", "0", "")]
    assert {line["ground"] for line in lines} == {""}
    totals = dict.fromkeys(counts, 0)
    for line in lines:
        totals[int(line["entry"])] += int(line["examples"])
    assert totals == counts


def test_entries_whose_examples_are_not_known_have_one_line(store):
    """As of a store whose epochs are from before any of it was kept."""
    fill_as_of_old(store)
    lines = [line for line in lines_of(store) if line["event"] in ("sent", "received")]
    assert [line["examples"] for line in lines] == ["4"] * 5 + ["2"]
    assert {(line["row"], line["number"]) for line in lines} == {("", "")}
    assert {line["peer_key"] for line in lines} == set(SENDERS)


@pytest.mark.parametrize("ground", ["=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\uff1d1+1"])
def test_a_spreadsheet_takes_no_text_for_a_formula(three, ground):
    three[0].data = replace(
        three[0].data, ground=SiteData.from_arrays(
            np.zeros((12, 1)), np.zeros(12, int), ground=[f'{ground},"a;b"'] * 12
        ).ground,
    )  # fmt: skip
    three[0].rows.data = three[0].data
    exchange(three, epoch_of(three))
    found = {x["ground"] for x in lines_of(three[0].store) if x["event"] == "sent"}
    assert found == {f'\'{ground},"a;b"'}


def test_an_event_or_a_name_from_elsewhere_stays_in_its_cell(store):
    store.ledger.note("=1+1\r\n\x1b[2Jforged", 1, '@peer","x\n', 0, 3, 0)
    (line,) = lines_of(store)
    assert line["event"] == "'=1+1\\r\\n\\x1b[2Jforged"
    assert line["peer_key"] == '\'@peer","x\\n'


def test_rows_without_ground_are_not_offered_where_the_policy_wants_one(make_site):
    strict = replace(SIMULATED, require_ground=True)
    x, y, marks = np.eye(4), np.zeros(4, int), np.array([True, False, True, True])
    data = SiteData.from_arrays(x, y, marks, ground=["a", None, " ", "b"])
    site = make_site("a", data, policy=strict)
    with pytest.raises(GroundMissing, match=r"1 rows may be shared .* row 2; require-ground"):
        site.exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=True)
    stated = SiteData.from_arrays(x, y, marks, ground=["a", None, "c", "b"])
    site = make_site("a", stated, policy=strict)
    offer = site.exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=True)
    plain = make_site("a", SiteData.from_arrays(x, y, marks))
    assert stated.fingerprints(b"k" * 32).tolist() == plain.data.fingerprints(b"k" * 32).tolist()
    assert b"ground" not in offer.content


def test_a_second_exchange_without_anything_to_share(three, make_site):
    """Nothing was given, and nothing is: no reason to refuse it."""
    none = replace(three[0].data, shareable=np.zeros(12, np.bool_))
    site = make_site("a", none, policy=replace(SIMULATED, exchanges=5))
    site.store.given.most_recipients(np.empty((0, 16), np.uint8), [])
    epoch = epoch_of([site, *three[1:]])
    exchange([site, *three[1:]], epoch)
    assert site.store.given.most_recipients(np.empty((0, 16), np.uint8), []) == 0


def test_the_command_writes_a_file_that_its_owner_alone_reads(store, tmp_path):
    fill_as_of_old(store)
    path = tmp_path / "audit.csv"
    run = CliRunner().invoke
    assert run(cli, ["ledger", str(store.folder), "--csv", str(path), "--rows"]).exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    out = run(cli, ["ledger", str(store.folder), "--csv", "-", "--rows"]).stdout_bytes
    assert out == path.read_bytes()
    assert out.splitlines()[0].decode() == ",".join(COLUMNS)
    for wrong in (["--rows"], ["--csv", "-", "--json"]):
        assert run(cli, ["ledger", str(store.folder), *wrong]).exception is not None
