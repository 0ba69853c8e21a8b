"""`CodedSum`: coded training as a strategy of Flower."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedcommons import checks, shown
from fedcommons.errors import ArgumentError
from fedcommons.federate.protocol.model_schema import NamedArrays
from fedcommons.federate.server.best import Watch
from fedcommons.federate.server.deadlines import Deadline
from fedcommons.federate.server.evaluation import Evaluation
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.settings import Settings, remembers_late
from fedcommons.federate.server.training import Training
from fedcommons.federate.server.training_state import TrainingState
from fedcommons.federate.transport.flower_arrays import model_of, record_of
from fedcommons.federate.transport.flower_link import SERVER_LOGGER, FlowerLink, ModelRecords
from fedcommons.federate.transport.strategy_hooks import StrategyHooks
from fedcommons.tracking import targets

logger = shown.logger(SERVER_LOGGER.name)

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]

FIXED_KEYS = "records are named arrays, config and metrics, and sites weigh by num-examples"
OVERRIDE = "override {} instead"
REFUSED = {  # arguments of Flower's strategies, and what to do instead
    "min_evaluate_nodes": "those that answered are asked, fraction_evaluate of them",
    "min_available_nodes": "share waits for sites; who is missing afterwards is made up for",
    "weighted_by_key": FIXED_KEYS,
    "arrayrecord_key": FIXED_KEYS,
    "configrecord_key": FIXED_KEYS,
    "train_metrics_aggr_fn": OVERRIDE.format("aggregate_train"),
    "evaluate_metrics_aggr_fn": OVERRIDE.format("aggregate_evaluate"),
}


class CodedSum(Strategy):
    """Trains on the coded sum of whatever arrives: the server's counterpart of `coded`.

    A strategy of Flower with a `start` of its own, which calls the strategy's methods: the average
    over those who answered, which others take, is biased. After each round the state is on disk,
    and the same training goes on there when it is started again, with more rounds too.
    """

    def __init__(
        self,
        federation: ServerFederation,
        *,
        deadline: float | Literal["adaptive"] = 60.0,
        evaluate_every: int = 1,
        fraction_evaluate: float = 1.0,
        watch: str | None = None,
        direction: str | None = None,
        patience: int | None = None,
        audit: bool = False,
        late: str | None = None,
        fraction_train: float | None = None,
        min_train_nodes: int | None = None,
        track: str | Sequence[str] = (),
        **settings: Any,
    ) -> None:
        """`settings` are those of `Settings` and of `Method`.

        Args:
            deadline: a round's limit in seconds. An adaptive one is the T for which T/F(T) is
                least, F(T) the share of the weight that came within T in the last 20 answers of
                each site.
            evaluate_every: sites evaluate after every so many rounds, and after the last.
            fraction_evaluate: of the sites that answered, this part is asked to.
            watch: the metric, by its name in rounds.parquet (such as sites_accuracy), by which the
                best model is kept.
            direction: "max" if more of it is better, "min" if less is.
            patience: training ends when so many measurements in a row were not better.
            fraction_train, min_train_nodes: as in Flower, instead of sites_per_round and
                least_sites: so many of the sites are asked in a round, or such a part of them.
            audit: before each run sites compare what they compute of the same examples, and those
                that differ from most are quarantined.
            late: "remember": a site that misses the deadline is not asked again before its answer
                comes, and that counts then. "discard": it is given up. By default it is remembered
                where the estimator remembers.
            track: where numbers of every round go as well, and of each site in it: jsonl:FILE,
                mlflow:URI or tensorboard:DIR, with absolute paths.
        """
        for name in settings:
            if name in REFUSED:
                raise ArgumentError(f"{name} is none of CodedSum's arguments: {REFUSED[name]}")
        settings |= sites_per_round(fraction_train, min_train_nodes, settings)
        self.federation = federation
        self.settings = Settings.of(**settings)
        self.config: Mapping[str, Any] = {}
        self.deadline = deadline
        self.evaluation = Evaluation(evaluate_every, fraction_evaluate)
        self.watch = Watch.of(watch, direction, patience)
        self.audit = checks.boolean("audit", audit)
        self.late = late
        self.track = targets(track, absolute=True)
        remembers_late(self.settings, late)
        self._hooks: StrategyHooks | None = None
        Deadline(deadline)

    @property
    def folder(self) -> Path:
        """The results folder of the training that was started last."""
        return Training(self.federation, self.settings, Deadline(self.deadline), self.config).folder

    # The methods of Flower's strategies, which `start` calls. What overrides them calls them.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages to the members that are connected, with what the round asks of each.

        Another `config` reaches the sites' training functions; a message that is left out means
        that the site is not asked, and counts as missing.
        """
        return self._in_start("configure_train", grid).make("train", server_round, arrays, config)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The model after the round, moved along the estimate, and the sites' mean metrics.

        Replies come as they arrive. Training goes on from what is returned; None takes the step
        back. Where examples are withdrawn, the same round is asked again.
        """
        found: tuple[ArrayRecord | None, MetricRecord | None]
        found = self._in_start("aggregate_train").aggregate("train", server_round, replies)
        return found

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages to those that answered in this round and have an evaluate function."""
        hooks = self._in_start("configure_evaluate", grid)
        return hooks.make("evaluate", server_round, arrays, config)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The sites' metrics together, each a mean weighted by num-examples."""
        found: MetricRecord | None
        found = self._in_start("aggregate_evaluate").aggregate("evaluate", server_round, replies)
        return found

    def summary(self) -> None:
        """Log how it trains."""
        method = self.settings.method
        logger.info(
            "CodedSum: estimator %s, code %s, learning rate %g, %d local step%s of %s, server "
            "optimizer %s, deadline %s, %s",
            method.estimator,
            method.code,
            self.settings.learning_rate,
            method.local_steps,
            "" if method.local_steps == 1 else "s",
            f"{method.batch_size} examples" if method.batch_size else "all examples",
            method.server_optimizer,
            self.deadline if self.deadline == "adaptive" else f"{self.deadline:g} s",
            "all sites asked" if (ask := self.settings.ask) is None else f"{ask} asked in a round",
        )

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
        *,
        on_round: Callable[[dict[str, Any]], None] | None = None,
        hooks: Strategy | None = None,
    ) -> Result:
        """Train up to `num_rounds` rounds in all; the final model, and metrics by round.

        Args:
            timeout: no round waits longer than so many seconds, whatever its deadline.
            train_config: reaches the training functions as "config"; another one is another
                training. A training that goes on keeps its own model, whatever the values of
                `initial_arrays`.
            evaluate_config: reaches the evaluate functions as "config".
            evaluate_fn: called as `evaluate_fn(round, arrays)` on the initial model and after
                every round.
            on_round: is called with each round's record.
            hooks: a strategy that wraps this one, whose methods are called in the place of these.
        """
        around = hooks or self
        if type(around).__module__.split(".")[0] == "flwr":
            raise ArgumentError(
                f"hooks must not be {type(around).__name__}: it is made for Flower's average"
            )
        models = ModelRecords()

        def evaluate(round_number: int, model: NamedArrays) -> Mapping[str, Any] | None:
            return evaluate_fn(round_number, models.of(model)) if evaluate_fn else None

        self.config = dict(train_config or {})
        training = Training(
            self.federation,
            self.settings,
            Deadline(self.deadline, at_most=checks.positive("timeout", timeout)),
            self.config,
            self.evaluation.with_config(evaluate_config or {}),
            self.watch,
            self.late,
            self.track,
        )
        self._hooks = StrategyHooks(around, grid, models)
        link = FlowerLink(grid, self._hooks.configure)
        around.summary()
        try:
            state = training.run(
                link,
                model_of(initial_arrays),
                num_rounds,
                evaluate=evaluate,
                on_round=lambda note: on_round(note.to_json()) if on_round else None,
                hooks=self._hooks,
                audit=self.audit,
            )
        finally:
            self._hooks = None
        return _result(state)

    def _in_start(self, method: str, grid: Grid | None = None) -> StrategyHooks:
        if self._hooks is None or (grid is not None and grid is not self._hooks.grid):
            raise StrategyHooks.out_of_order(method)
        return self._hooks


def sites_per_round(
    fraction: float | None, least: int | None, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings that Flower's fraction_train and min_train_nodes are; of all sites, none."""
    if fraction is None and least is None:
        return {}
    if {"sites_per_round", "least_sites"} & set(settings):
        raise ArgumentError(
            "fraction_train and min_train_nodes must not be given beside sites_per_round and "
            "least_sites, which say the same"
        )
    part = checks.real("fraction_train", 1.0 if fraction is None else fraction, low=0, high=1)
    if part == 0:
        raise ArgumentError("fraction_train must be above 0, got 0: nobody would train")
    number = checks.integer("min_train_nodes", 1 if least is None else least, low=0)
    if part == 1:
        return {}
    return {"sites_per_round": part, "least_sites": max(number, 1)}


def _result(state: TrainingState) -> Result:
    result = Result(arrays=record_of(state.model))
    for note in state.history:
        for metrics, found in (
            (note.training.pooled, result.train_metrics_clientapp),
            (note.evaluation.pooled, result.evaluate_metrics_clientapp),
            (note.metrics, result.evaluate_metrics_serverapp),
        ):
            if metrics:
                found[note.round] = MetricRecord(dict(metrics))
    return result
