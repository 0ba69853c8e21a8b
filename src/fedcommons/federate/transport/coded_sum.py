"""`CodedSum`: coded training with the `start` of Flower's strategies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fedcommons import checks
from fedcommons.federate.protocol.model_schema import NamedArrays
from fedcommons.federate.server.deadlines import Deadline
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.server.training import Training
from fedcommons.federate.transport.flower_arrays import model_of, record_of
from fedcommons.federate.transport.flower_link import FlowerLink

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


class CodedSum:
    """Trains on the coded sum of whatever arrives: the server's counterpart of `coded`.

    It is called like Flower's strategies, but does not aggregate like them: the average over those
    who answered is biased. After each round the state is on disk, and the same training goes on
    there when it is started again, with more rounds too.
    """

    def __init__(
        self,
        federation: ServerFederation,
        *,
        deadline: float | Literal["adaptive"] = 60.0,
        audit: bool = False,
        **settings: Any,
    ) -> None:
        """`settings` are those of `Settings` and of `Method`.

        `deadline` is a round's limit in seconds. An adaptive one is one and a half times what nine
        of ten answers took in past rounds, and two seconds more; who misses it counts as if it had
        taken half as long again. With `audit` sites compare what they compute of the same examples
        before each run, and those that differ from most are quarantined.
        """
        self.federation = federation
        self.settings = Settings.of(**settings)
        self.config: Mapping[str, Any] = {}
        self.deadline = deadline
        self.audit = checks.boolean("audit", audit)
        Deadline(deadline)

    @property
    def folder(self) -> Path:
        """The results folder of the training that was started last."""
        return self._training().folder

    def _training(self) -> Training:
        return Training(self.federation, self.settings, Deadline(self.deadline), self.config)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        train_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
        on_round: Callable[[dict[str, Any]], None] | None = None,
    ) -> Result:
        """Train up to `num_rounds` rounds in all; the final model, and metrics by round.

        `train_config` reaches the training functions as "config"; another one is another training.
        A training that goes on keeps its own model, whatever the values of `initial_arrays`.
        `evaluate_fn(round, arrays)` is called on the initial model and after every round;
        `on_round` with each round's record.
        """

        def evaluate(round_number: int, model: NamedArrays) -> Mapping[str, Any] | None:
            return evaluate_fn(round_number, record_of(model)) if evaluate_fn else None

        self.config = dict(train_config or {})
        state = self._training().run(
            FlowerLink(grid),
            model_of(initial_arrays),
            num_rounds,
            evaluate=evaluate,
            audit=self.audit,
            on_round=lambda note: on_round(note.to_json()) if on_round else None,
        )
        return Result(
            arrays=record_of(state.model),
            evaluate_metrics_serverapp={
                note.round: MetricRecord(dict(note.metrics))
                for note in state.history
                if note.metrics
            },
        )
