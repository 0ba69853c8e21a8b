"""The results folder of a training: what was run, every round, and the final model."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord

from fedcommons.federate import durable
from fedcommons.simulate import provenance

FORMAT = "fedcommons.federation"
VERSION = 1


def write(
    folder: Path, about: dict[str, Any], history: list[dict[str, Any]], model: ArrayRecord
) -> None:
    """Write rounds.parquet, answers.parquet, model.npz and run.json; each whole or not at all."""
    import pyarrow  # slow to import, and needed once, at the end
    import pyarrow.parquet

    durable.make_folder(folder)
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
    for name, rows in (("rounds", rounds), ("answers", answers)):
        sink = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
        durable.write_file(folder / f"{name}.parquet", sink.getvalue(), "server.results")
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{n: a.numpy() for n, a in model.items()})
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
