"""The best model of a training so far, by one of its metrics, and when to stop looking for more."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcommons import checks, shown
from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.model_schema import NamedArrays
from fedcommons.federate.server.round_notes import RoundNote
from fedcommons.json_file import read_json
from fedcommons.npz import write_npz

logger = shown.logger(__name__)

MODEL, RECORD = "best.npz", "best.json"
DIRECTIONS = {"max": 1, "min": -1}


@dataclass(frozen=True, slots=True)
class Watch:
    """Which metric says how good a model is.

    Attributes:
        metric: its name as in rounds.parquet, such as sites_accuracy.
        direction: "max" if more of it is better, "min" if less is.
        patience: training ends after so many rounds with this metric that bring nothing better;
            None trains all rounds.
    """

    metric: str
    direction: str
    patience: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.metric, str) or not self.metric:
            raise ArgumentError(
                f"watch must be the name of a metric, such as sites_accuracy, got {self.metric!r}"
            )
        if self.direction not in DIRECTIONS:
            raise ArgumentError(
                f"direction must be max or min for watch = {self.metric}, got {self.direction!r}"
            )
        if self.patience is not None:
            checks.integer("patience", self.patience, low=1)

    @classmethod
    def of(cls, metric: str | None, direction: str | None, patience: int | None) -> Watch | None:
        """As arguments of a strategy say it; None if nothing is watched."""
        if metric is None:
            if patience is not None or direction is not None:
                raise ArgumentError(
                    "watch must name the metric that patience and direction are about, such as "
                    "sites_accuracy"
                )
            return None
        return cls(metric, str(direction), patience)

    def value(self, note: RoundNote) -> float | None:
        """The metric after a round; None if it was not measured, or is no finite number."""
        value = note.all_metrics.get(self.metric)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if math.isfinite(value) else None

    def is_better(self, value: float, than: float | None) -> bool:
        return than is None or DIRECTIONS[self.direction] * (value - than) > 0


class Best:
    """The best model in a training's folder: best.npz, and best.json that says of which round.

    Both are written after the round's checkpoint. If the server dies in between, they are written
    when the training goes on, since the round is then still the last one.
    """

    def __init__(self, folder: Path, watch: Watch) -> None:
        self.folder, self.watch = folder, watch
        self.round: int | None = None
        self.value: float | None = None
        record = _read(folder / RECORD)
        if (record.get("metric"), record.get("direction")) == (watch.metric, watch.direction):
            self.round, self.value = int(record["round"]), float(record["value"])

    def consider(self, note: RoundNote, model: NamedArrays) -> None:
        """Keep the model after this round if it is the best one."""
        value = self.watch.value(note)
        if value is None or not self.watch.is_better(value, self.value):
            return
        self.round, self.value = note.round, value
        buffer = io.BytesIO()
        write_npz(buffer, model)
        durable.write_file(self.folder / MODEL, buffer.getbuffer(), "server.best-model")
        record = {
            "metric": self.watch.metric,
            "direction": self.watch.direction,
            "round": note.round,
            "value": value,
        }
        durable.write_file(self.folder / RECORD, json.dumps(record).encode(), "server.best")

    def is_final(self, history: Sequence[RoundNote]) -> bool:
        """Whether patience is over: so many later rounds have the metric, and none is better."""
        if self.watch.patience is None or self.round is None:
            return False
        later = [n for n in history if n.round > self.round and self.watch.value(n) is not None]
        return len(later) >= self.watch.patience


def _read(path: Path) -> dict[str, Any]:
    try:
        record = read_json(path, FederationError)
    except FileNotFoundError:
        return {}
    if not isinstance(record, dict):
        raise FederationError(f"{path} is damaged: it must be an object")
    return record
