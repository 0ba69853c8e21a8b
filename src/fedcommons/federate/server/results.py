"""The results folder of a training: what was run, every round, and the final model."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcommons import provenance
from fedcommons.errors import FederationError, ResultsError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.model_schema import NamedArrays
from fedcommons.federate.server.checkpoints import Checkpoint, read_checkpoint
from fedcommons.federate.server.round_notes import RoundNote
from fedcommons.federate.server.site_metrics import EXAMPLES, SiteMetrics
from fedcommons.json_file import read_json
from fedcommons.npz import write_npz

if TYPE_CHECKING:  # results can be read without what a federation needs
    from fedcommons.federate.protocol.commits import Commit
    from fedcommons.federate.server.settings import Settings

FORMAT = "fedcommons.federation"
VERSION = 1
MOST_COLUMNS = 256  # of rounds.parquet, for metrics of the sites
TABLES = ("rounds", "answers", "site_metrics")


def describe(commit: Commit, settings: Settings, config: Mapping[str, Any]) -> dict[str, Any]:
    """What a training is, and among whom."""
    return {
        "federation": commit.federation,
        "settings": {name: str(value) for name, value in settings.listed.items()},
        "train_config": {name: str(value) for name, value in config.items()},
        "sites": [
            {
                "site": member.site,
                "identity": member.identity,
                "examples": member.n_examples,
                "shareable": member.n_shareable,
                "present": commit.present[i],
                "quarantined": i in commit.quarantined,
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
    folder: Path, about: Mapping[str, Any], history: Sequence[RoundNote], model: NamedArrays
) -> None:
    """Write the tables, model.npz and run.json; each whole or not at all."""
    import pyarrow  # slow to import, and needed once, at the end
    import pyarrow.parquet

    durable.make_folder(folder)
    schemas = {
        "site_metrics": pyarrow.schema(
            [
                ("round", pyarrow.int64()),
                *((name, pyarrow.string()) for name in ("kind", "site", "metric")),
                ("value", pyarrow.float64()),
                ("examples", pyarrow.float64()),
                ("left_out", pyarrow.string()),
            ]
        ),
        "answers": pyarrow.schema(
            [
                ("round", pyarrow.int64()),
                ("site", pyarrow.string()),
                ("answered", pyarrow.bool_()),
                ("outcome", pyarrow.string()),
                *((name, pyarrow.float64()) for name in ("straggler_prob", "clipped")),
                ("asked", pyarrow.bool_()),
                *((name, pyarrow.float64()) for name in ("ask_prob", "change", "seconds")),
                ("asked_in", pyarrow.int64()),
                ("late_by", pyarrow.float64()),
                ("late_counts", pyarrow.bool_()),
            ]
        ),
    }
    for name, rows in zip(TABLES, tables(history), strict=True):
        sink = io.BytesIO()
        table = pyarrow.Table.from_pylist(rows, schema=schemas.get(name))
        pyarrow.parquet.write_table(table, sink)
        durable.write_file(folder / f"{name}.parquet", sink.getvalue(), "server.results")
    buffer = io.BytesIO()
    write_npz(buffer, model)
    durable.write_file(folder / "model.npz", buffer.getvalue(), "server.model")
    record = {
        "format": FORMAT,
        "version": VERSION,
        **about,
        "rounds": history[-1].round,
        **provenance.about(provenance.command_line()),
    }
    text = json.dumps(record, indent=2, allow_nan=False) + "\n"
    durable.write_file(folder / "run.json", text.encode(), "server.run")


Rows = list[dict[str, Any]]

OF_A_ROUND = ("round", "why", *RoundNote(0).numbers)  # all else was measured


def tables(history: Sequence[RoundNote]) -> tuple[Rows, Rows, Rows]:
    """The rows of rounds.parquet, answers.parquet and site_metrics.parquet."""
    measured = [note.all_metrics for note in history]
    names = _names(history)
    rounds = [
        {
            "round": note.round,
            "why": note.why,
            **note.numbers,
            **{name: metrics.get(name) for name in names},
        }
        for note, metrics in zip(history, measured, strict=True)
    ]
    answers = [{"round": note.round, **asdict(site)} for note in history for site in note.sites]
    return rounds, answers, [row for note in history for row in _of_sites(note)]


def _names(history: Sequence[RoundNote]) -> list[str]:
    """The metrics with a column: the server's, and of the sites' those of the most rounds.

    A site may send other names in every round.
    """
    own = {name for note in history for name in note.metrics}
    rounds = Counter(name for note in history for name in note.all_metrics if name not in own)
    most = sorted(rounds, key=lambda name: (-rounds[name], name))[:MOST_COLUMNS]
    return sorted(own.union(most))


def _of_sites(note: RoundNote) -> Rows:
    """A row for each metric of each site, and one for what of a site was left out."""
    rows: Rows = []
    for kind in ("training", "evaluation"):
        found: SiteMetrics = getattr(note, kind)
        rows += [
            {
                "round": note.round,
                "kind": kind,
                "site": site,
                "metric": name,
                "value": value,
                "examples": numbers[EXAMPLES],
                "left_out": None,
            }
            for site, numbers in found.by_site.items()
            for name, value in numbers.items()
            if name != EXAMPLES
        ]
        rows += [
            {
                "round": note.round,
                "kind": kind,
                "site": site,
                "metric": None,
                "value": None,
                "examples": None,
                "left_out": why,
            }
            for site, why in found.left_out.items()
        ]
    return rows


def unfinished(folder: Path) -> Checkpoint | None:
    """A folder's checkpoint, if a run was interrupted that went on since run.json was written."""
    try:
        checkpoint = read_checkpoint(folder / "checkpoint.npz")
    except FederationError as error:
        raise ResultsError(str(error)) from None
    if checkpoint is None:
        return None
    try:
        record = read_json(folder / "run.json", ResultsError)
        written = record.get("rounds") if isinstance(record, dict) else None
    except FileNotFoundError:
        written = -1
    if not isinstance(written, int):
        raise ResultsError(f"{folder / 'run.json'} must say how many rounds there were")
    return checkpoint if checkpoint.round > written else None
