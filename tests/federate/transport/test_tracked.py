"""What is tracked of a training is what its history says, whether or not anybody takes it."""

import json
import logging

import pytest

from fedcommons.errors import ArgumentError
from fedcommons.flower import settings_from
from tests.federate.tiny import train

pytestmark = pytest.mark.usefixtures("impatient")


def test_a_training_is_tracked_and_does_not_wait_for_a_tracker(tiny, tmp_path, caplog, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    path, notes = tmp_path / "events.jsonl", []
    track = [f"jsonl:{path}", "mlflow:http://127.0.0.1:9"]
    with caplog.at_level(logging.WARNING):
        for rounds in (2, 3):  # it goes on
            grid = tiny.grid()
            with tiny.shared(grid) as federation:
                notes += train(federation, grid, rounds, track=track)[1]
            tiny.close()
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({event["key"] for event in found}) == 1
    assert [event["step"] for event in found if not event["of"]] == [0, 1, 2, 3]
    for note in notes:
        of_all, *of_sites = [event for event in found if event["step"] == note["round"]]
        assert of_all["values"]["answered"] == sum(site["answered"] for site in note["sites"])
        assert of_all["values"]["bytes_received"] == note["bytes_received"] > 0
        assert [event["of"] for event in of_sites] == [site["site"] for site in note["sites"]]
    said = [r.getMessage() for r in caplog.records if "does not work" in r.getMessage()]
    assert len(said) == 2  # once in each run
    assert all("tracking to mlflow:http://127.0.0.1:9" in line for line in said)


def test_a_run_config_names_targets_with_commas_between():
    found = settings_from({"track": "jsonl:/tmp/a.jsonl, jsonl:/tmp/b.jsonl"})
    assert found["track"] == ["jsonl:/tmp/a.jsonl", "jsonl:/tmp/b.jsonl"]
    assert "track" not in settings_from({"track": ""})
    with pytest.raises(ArgumentError, match="track must have an absolute path"):
        settings_from({"track": "jsonl:a.jsonl"})
