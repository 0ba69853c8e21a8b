"""What an operator sees of a training, on a terminal and in Prometheus, is what happened in it."""

import io
import json

import httpx
import numpy as np
import pytest
from rich.console import Console

from fedcommons.cli.federation_table import picture
from fedcommons.desk import prometheus, serving
from fedcommons.errors import ArgumentError
from fedcommons.federate.server.happenings import happenings
from fedcommons.federate.server.overview import Watcher
from fedcommons.federate.server.overview_words import as_json, doing
from fedcommons.federate.server.quarantine import Offence, enforced
from fedcommons.federate.server.round_notes import RoundNote, SiteNote
from tests.cli.command import run
from tests.federate.tiny import ByTick, train_by_tick

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def ran(tiny):
    """b's answer to round 1 comes in round 3, c is away in rounds 2 and 3, d withdraws after
    round 3, and a is quarantined after round 4; five rounds in all, seen before and after.
    """
    grid, seen = tiny.grid(ByTick), []
    grid.due = lambda site, tick: 3 if site == "b" and tick == 1 else tick

    def before(tick):
        grid.away = "c" if tick in (2, 3) else ""
        if tick == 4:
            tiny.withdraw("d", 0, 1)
        if tick == 5:
            a = federation.commit.members[0]
            federation.quarantine.put(a.identity, "a", Offence("it was odd"))
            federation.record(enforced(federation.quarantine, federation.commit))
        if tick > 1:
            seen.append(watcher.look())

    with tiny.shared(grid) as federation:
        watcher = Watcher.of(tiny.state_dir)
        assert "no round of training yet" in as_json(watcher.look())["state"]
        train_by_tick(federation, grid, 5, before=before)
    return tiny, seen, watcher


def test_what_happened_to_sites_is_listed_with_its_round(ran):
    tiny, _, watcher = ran
    found = [(one.round, one.site, one.what) for one in watcher.look().happenings]
    lates = [one for one in found if "answered the question" in one[2]]
    assert len(lates) == 1
    assert lates[0][:2] == (3, "b")
    assert lates[0][2].startswith("answered the question of round 1 ")
    assert lates[0][2].endswith("s late, which counts")
    assert [one for one in found if one not in lates] == [
        (2, "c", "is not connected"),
        (4, "d", "withdrew 2 examples"),
        (4, "c", "is back"),
        (5, "a", "is quarantined"),
    ]
    assert list(watcher.look().happenings) == list(Watcher.of(tiny.state_dir).look().happenings)


def test_a_site_that_was_away_is_back_once():
    outcomes = [
        "answered",
        "no answer",
        "not connected",
        "not connected",
        "answered",
        "client crashed",
    ]
    late = SiteNote("a", False, "not connected", 0.1, asked_in=2, late_by=9.0, late_counts=True)
    notes = [
        RoundNote(
            t, sites=(late if t == 4 else SiteNote("a", outcome == "answered", outcome, 0.1),)
        )
        for t, outcome in enumerate(outcomes, start=1)
    ]
    found = [(one.round, one.what) for one in happenings([], notes)]
    assert found == [
        (3, "is not connected"),
        (4, "is back"),
        (4, "answered the question of round 2 9.0 s late, which counts"),
        (6, "has lost its app, which was killed or crashed"),
    ]


def test_the_history_is_read_on_where_it_was(ran):
    tiny, seen, watcher = ran
    assert [view.round for view in seen] == [1, 2, 3, 4, 5]
    assert watcher.look().is_over
    assert not seen[2].is_over
    path = next(tiny.state_dir.glob("training-*/history.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4]) + lines[4][:-5])  # it is being written
    assert watcher.look().round == 3
    other = json.dumps({**json.loads(lines[3]), "seconds": 77.0}).encode() + b"\n"
    path.write_bytes(b"".join(lines[:3]) + other)  # by a run that went on after one that died
    assert watcher.look().notes[-1].seconds == 77.0


def test_what_sites_do_is_said_while_a_round_goes_on(ran):
    _, seen, _ = ran
    view = seen[0]
    site = {one.site: one for one in view.sites}
    live = {
        "round": 2, "began": 100.0, "deadline": 5.0, "ended": None,
        "sites": {
            "a": {"outcome": "asked"},
            "b": {"outcome": "owes an answer", "asked_in": 1, "asked_at": 90.0, "deadline": 4.0},
            "c": {"outcome": "not connected"},
            "d": {"outcome": "answered", "seconds": 2.25},
        },
    }  # fmt: skip
    said = {name: doing(site[name], live, 103.0) for name in "abcd"}
    assert said == {
        "a": "has not answered, asked 3 s ago",
        "b": "owes the answer to round 1, 9 s late",
        "c": "not connected",
        "d": "answered in 2.2 s",
    }
    assert doing(site["a"], live, 107.5) == "has not answered, 2 s late"


def test_a_terminal_shows_who_was_asked_and_who_was_late_in_80_columns(ran):
    tiny, _, watcher = ran
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(picture(watcher.look()))
    text = console.export_text()
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if line.startswith("│")}
    assert rows["b"].split("│")[3].strip() == "○…↩●●"
    assert rows["b"].split("│")[5].strip().startswith("1 (+")
    assert rows["c"].split("│")[3].strip() == "●××●●"
    assert "quarantined: it was" in rows["a"]
    assert "round 4: d withdrew 2 examples" in text
    assert max(map(len, text.splitlines())) <= 80
    assert run("federate", "status", tiny.state_dir).returncode == 0
    found = json.loads(run("federate", "status", tiny.state_dir, "--json").stdout)
    assert [site["on_time"] for site in found["sites"]] == [4, 2, 3, 5]
    assert (
        "hospitals: ended after round 5"
        in run("federate", "watch", tiny.state_dir, "--once").stdout
    )


def samples(text):
    """(name, labels) -> value, as Prometheus reads them."""
    parser = pytest.importorskip("prometheus_client.parser")
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(folder):
    """What Prometheus gets of a folder that is served."""

    def respond(_path):
        return serving.Answer(200, prometheus.text_of(folder), prometheus.KIND)

    with serving.serving(respond) as address:
        reply = httpx.get(f"{address}/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return samples(reply.text)


def test_prometheus_reads_the_servers_numbers_and_the_sites(ran):
    tiny, _, _ = ran
    found = scraped(tiny.state_dir)
    assert found["fedcommons_rounds_total",] == 5
    n_bytes = 8 * 15  # of a model
    assert found["fedcommons_bytes_received_total",] == 15 * n_bytes  # 3 2 3 4 3
    assert found["fedcommons_quarantined_sites",] == 1
    for site, on_time, late in (("b", 2, 1), ("c", 3, 0)):
        for outcome, n in (("on time", on_time), ("late", late)):
            assert found["fedcommons_answers_total", ("outcome", outcome), ("site", site)] == n
    assert found["fedcommons_run_over",] == 1

    text = run("federate", "metrics", tiny.folder / "b").stdout
    of_site = samples(text)
    key = ("fedcommons_site_messages_total", ("kind", "train"), ("outcome", "ok"))
    assert of_site[key] >= 4
    assert of_site["fedcommons_site_bytes_sent_total", ("kind", "train")] > 4 * n_bytes
    assert of_site["fedcommons_site_last_round",] == 5
    assert np.isfinite(list(of_site.values())).all()
    assert run("federate", "metrics", tiny.folder).returncode == 2


def test_a_folder_that_is_no_servers_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="state-dir must be a server's folder"):
        Watcher.of(tmp_path)
