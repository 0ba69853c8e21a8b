"""The results folder of a training: what was run, every round, and the final model."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcommons import provenance
from fedcommons.errors import ResultsError
from fedcommons.federate.protocol import durable
from fedcommons.npz import read_npz, write_npz

if TYPE_CHECKING:
    from flwr.app import ArrayRecord, ConfigRecord

    from fedcommons.federate.protocol.commits import Commit
    from fedcommons.federate.server.settings import Settings

FORMAT = "fedcommons.federation"
VERSION = 1


def describe(commit: Commit, settings: Settings, config: ConfigRecord) -> dict[str, Any]:
    """What a training is, and among whom."""
    return {
        "federation": commit.federation,
        "settings": {name: str(getattr(settings, name)) for name in settings.__slots__},
        "train_config": {name: str(value) for name, value in config.items()},
        "sites": [
            {
                "site": member.site,
                "identity": member.identity,
                "examples": member.n_examples,
                "shareable": member.n_shareable,
                "present": commit.present[i],
            }
            for i, member in enumerate(commit.members)
        ],
        "copies": commit.copies,
        "epoch": commit.number,
        "serial": commit.serial,
        "deliveries": len(commit.pairs),
        "examples": commit.n_examples,
    }


def write(
    folder: Path, about: dict[str, Any], history: list[dict[str, Any]], model: ArrayRecord
) -> None:
    """Write rounds.parquet, answers.parquet, model.npz and run.json; each whole or not at all."""
    import pyarrow  # slow to import, and needed once, at the end
    import pyarrow.parquet

    durable.make_folder(folder)
    rounds, answers = tables(history)
    for name, rows in (("rounds", rounds), ("answers", answers)):
        sink = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
        durable.write_file(folder / f"{name}.parquet", sink.getvalue(), "server.results")
    buffer = io.BytesIO()
    write_npz(buffer, {name: array.numpy() for name, array in model.items()})
    durable.write_file(folder / "model.npz", buffer.getvalue(), "server.model")
    record = {
        "format": FORMAT,
        "version": VERSION,
        **about,
        "rounds": history[-1]["round"],
        **provenance.about(provenance.command_line()),
    }
    text = json.dumps(record, indent=2, allow_nan=False) + "\n"
    durable.write_file(folder / "run.json", text.encode(), "server.run")


def tables(history: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of rounds.parquet and answers.parquet, of what a training notes of its rounds."""
    metrics = sorted({name for note in history for name in note["metrics"]})
    rounds = [
        {
            "round": note["round"],
            "seconds": note.get("seconds"),
            "answered": sum(site["answered"] for site in note["sites"]),
            "sites": len(note["sites"]),
            **{name: note["metrics"].get(name) for name in metrics},
        }
        for note in history
    ]
    answers = [{"round": note["round"], **site} for note in history for site in note["sites"]]
    return rounds, answers


def unfinished(folder: Path) -> dict[str, Any] | None:
    """The notes of a folder's checkpoint, if a run was interrupted that went on since run.json."""
    checkpoint = folder / "checkpoint.npz"
    if not checkpoint.exists():
        return None
    notes = json.loads(read_npz(checkpoint, ["notes"], ResultsError)["notes"].tobytes())
    try:
        written = json.loads((folder / "run.json").read_text(encoding="utf-8"))["rounds"]
    except FileNotFoundError:
        written = -1
    return dict(notes) if notes["round"] > written else None
