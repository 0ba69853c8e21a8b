"""Events reach every kind of target, and a target that does not work holds up nobody."""

import json
import logging
import math
import struct
import threading

import pytest

from fedcommons.errors import ArgumentError
from fedcommons.tracking import About, Event, Tracker, targets
from fedcommons.tracking.tensorboard import slug

HOSTILE = "<img src=x onerror=alert(1)>/../../'b'"
ABOUT = About("mine", "mine-1", {"copies": "3"})
EVENTS = [
    Event("round", 1, {"accuracy": 0.5, "lost": math.nan, "name": "no number"}, at=100.5),
    Event("round", 2, {"accuracy": 0.75}, at=101.5),
    Event("round", 2, {"accuracy": 0.25}, HOSTILE, at=101.5),
]


def sent(target, *batches, about=ABOUT):
    tracker = Tracker(targets([target]), about)
    for events in batches:
        tracker.send(events)
    tracker.close(120)


def test_only_finite_numbers_are_in_an_event():
    assert EVENTS[0].values == {"accuracy": 0.5}


def test_lines_of_json_are_appended(tmp_path):
    path = tmp_path / "new" / "events.jsonl"
    sent(f"jsonl:{path}", EVENTS[:1])
    sent(f"jsonl:{path}", EVENTS[1:2], EVENTS[2:])
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(e["step"], e["of"], e["values"], e["at"]) for e in found] == [
        (e.step, e.of, dict(e.values), e.at) for e in EVENTS
    ]
    assert {(e["name"], e["key"], e["kind"]) for e in found} == {("mine", "mine-1", "round")}


def scalars(folder):
    """(tag, step) -> value of TensorBoard's files in a folder; the format is TFRecord's."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    found = {}
    for path in folder.glob("events.out.tfevents.*"):
        content = path.read_bytes()
        while content:
            (size,) = struct.unpack("<Q", content[:8])
            event = event_pb2.Event.FromString(content[12 : 12 + size])
            content = content[16 + size :]
            for value in event.summary.value:
                found[value.tag, event.step] = value.simple_value
    return found


def test_tensorboard_has_a_folder_for_all_and_one_for_each(tmp_path):
    pytest.importorskip("tensorboardX")
    sent(f"tensorboard:{tmp_path}", EVENTS)
    (folder,) = tmp_path.iterdir()
    names = {path.name: scalars(path) for path in folder.iterdir()}
    of_all = names.pop("all")
    assert of_all == {("round/accuracy", 1): 0.5, ("round/accuracy", 2): 0.75}
    ((name, of_one),) = names.items()
    assert of_one == {("round/accuracy", 2): 0.25}
    assert name.startswith("img_src_x_onerror_alert_1_")


def test_mlflow_has_a_run_for_all_one_in_it_for_each_and_goes_on_in_them(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database takes seconds to make
    uri = tmp_path.as_uri()
    sent(f"mlflow:{uri}", EVENTS[:1])
    sent(f"mlflow:{uri}", EVENTS[1:])
    sent(f"mlflow:{uri}", EVENTS[:1], about=About("mine", "mine-2"))
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("mine")
    runs = {
        run.data.tags["fedcommons.key"]: run
        for run in client.search_runs([experiment.experiment_id])
    }
    assert len(runs) == 3
    whole, part = runs["mine-1"], runs[ABOUT.key_of(HOSTILE)]
    history = client.get_metric_history(whole.info.run_id, "round/accuracy")
    assert [(m.step, m.value, m.timestamp) for m in history] == [
        (1, 0.5, 100500),
        (2, 0.75, 101500),
    ]
    assert part.data.metrics == {"round/accuracy": 0.25}
    assert part.data.tags["mlflow.parentRunId"] == whole.info.run_id
    assert part.info.run_name == HOSTILE
    assert whole.data.params == {"copies": "3"}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}


class Broken:
    """A sink that fails, or hangs, at each write."""

    tried = 0

    def __init__(self, hangs=None):
        self.hangs = hangs

    def write(self, _events):
        Broken.tried += 1
        if self.hangs is not None:
            self.hangs.wait()
        raise OSError("no route to\nhost")

    def close(self):
        pass


def test_a_target_that_fails_is_warned_of_once_and_the_others_go_on(tmp_path, monkeypatch, caplog):
    path, hangs = tmp_path / "events.jsonl", threading.Event()
    found = targets([f"jsonl:{path}", f"jsonl:{tmp_path / 'fails'}", f"jsonl:{tmp_path / 'hangs'}"])
    kind = type(found[0])
    real = kind.open
    broken = {"fails": Broken(), "hangs": Broken(hangs)}
    monkeypatch.setattr(
        kind, "open", lambda self, about: broken.get(self.where.split("/")[-1]) or real(self, about)
    )
    with caplog.at_level(logging.WARNING):
        tracker = Tracker(found, ABOUT)
        for event in EVENTS * 3:
            tracker.send([event])
        tracker.close(1)
    hangs.set()
    assert len(path.read_text().splitlines()) == 9
    said = [record.getMessage() for record in caplog.records]
    assert sum("fails does not work" in line for line in said) == 1, said
    assert any("OSError: no route to" in line for line in said)
    assert any("hangs: what was not written within 1 s is lost" in line for line in said)
    assert Broken.tried >= 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wandb:x", "track must be jsonl:FILE, mlflow:URI or tensorboard:DIR, got 'wandb:x'"),
        ("jsonl:", "track must be jsonl:FILE"),
        (7, "track must be jsonl:FILE, mlflow:URI or tensorboard:DIR, got 7"),
        ("jsonl:/dev/null/x", "track cannot be written: /dev/null"),
        ("jsonl:relative", "track must have an absolute path, got 'relative'"),
        ("jsonl:/tmp", "track jsonl must be a file, got /tmp"),
    ],
)
def test_targets_that_cannot_be_are_refused(text, said):
    with pytest.raises(ArgumentError, match=said):
        targets([text], absolute=True)


def test_one_target_needs_no_list():
    assert targets("jsonl:/tmp/x") == targets(["jsonl:/tmp/x", "jsonl:/tmp/x"])


def test_names_stay_in_their_folder():
    assert [slug(name) for name in ("../..", "", "a b", "site-0")] == ["_", "_", "a_b", "site-0"]
