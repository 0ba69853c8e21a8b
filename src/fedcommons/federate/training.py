"""Coded training: the server's rounds, checkpointed, on whatever answers arrive."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fedcommons import checks, estimators
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.coding import CODES
from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate import results, wire
from fedcommons.federate.coordinator import Federation
from fedcommons.federate.layout import Layout
from fedcommons.federate.records import Commit
from fedcommons.federate.refusals import AnswerRefused
from fedcommons.reliability import Reliability
from fedcommons.stragglers import StragglerModel
from fedcommons.streams import stream

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
SHORTEST_DEADLINE, LONGEST_DEADLINE = 5.0, 600.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What makes one training another.

    Attributes:
        estimator: a name of `estimators.ESTIMATORS`; `warm` starts memory from everybody's answer
            at the initial model.
        code: one of `coding.CODES`.
        straggler_prob: p, or p_i by site in the order of names; None estimates it from past rounds.
        learning_rate, decay: the step on the mean gradient, and its factor from round to round.
            Where sites answer with trained models, it scales how far the model follows them.
        local_steps, batch_size: what a site does in a round; 0 is a full batch.
        stragglers: rehearse absences: sites that this model has missing are not asked.
        seed: of the rehearsed absences.
    """

    estimator: str = "coded_sum"
    warm: bool = False
    code: str = "equal-split"
    straggler_prob: float | tuple[float, ...] | None = None
    learning_rate: float = 1.0
    decay: float = 1.0
    local_steps: int = 1
    batch_size: int = 0
    stragglers: StragglerModel | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.estimator not in estimators.ESTIMATORS:
            known = ", ".join(estimators.ESTIMATORS)
            raise ArgumentError(f"estimator must be one of {known}, got {self.estimator!r}")
        if self.code not in CODES:
            raise ArgumentError(f"code must be one of {', '.join(CODES)}, got {self.code!r}")
        if self.warm and not estimators.ESTIMATORS[self.estimator].remembers:
            raise ArgumentError(f"warm needs an estimator that remembers, got {self.estimator}")
        checks.positive("learning_rate", self.learning_rate)
        checks.positive("decay", self.decay)
        checks.integer("local_steps", self.local_steps, low=1)
        checks.integer("batch_size", self.batch_size, low=0)
        checks.integer("seed", self.seed, low=0)
        if self.code == "owner-corrected" and (self.local_steps > 1 or self.batch_size):
            raise ArgumentError(
                "code owner-corrected has negative weights, safe with full gradients and one local "
                f"step only, got local_steps {self.local_steps}, batch_size {self.batch_size}"
            )

    def name(self, epoch: int) -> str:
        """A folder's name: readable, and another one for other settings."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:8]
        warm = "-warm" if self.warm else ""
        return f"epoch{epoch}-{self.code}-{self.estimator.replace('_', '-')}{warm}-{digest}"


@dataclass(slots=True)
class State:
    """Where a training is: what a checkpoint holds."""

    round: int
    model: ArrayRecord
    memory: FloatArray | None
    reliability: Reliability
    commit: str
    warmed: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


class CodedSum:
    """Trains on the coded sum of whatever arrives: the server's counterpart of `coded`.

    It has the `start` of Flower's strategies, but not their aggregation: the average over those who
    answered is biased. After each round the state is on the disk, and the same training goes on
    there when it is started again, with more rounds too.
    """

    def __init__(
        self,
        federation: Federation,
        *,
        deadline: float | Literal["adaptive"] = 60.0,
        **settings: Any,
    ) -> None:
        """`settings` are those of `Settings`; `deadline` is a round's limit in seconds.

        An adaptive deadline is one and a half times what nine of ten answers took in past rounds,
        and two seconds more.
        """
        self.federation = federation
        self.settings = Settings(**settings)
        self.estimator = estimators.ESTIMATORS[self.settings.estimator]
        if deadline != "adaptive":
            checks.positive("deadline", deadline)
        self.deadline = deadline
        self._answer_seconds: list[float] = []
        self._confirmed: set[str] = set()
        self._coverage: dict[str, float] = {}
        self._withdrawals: dict[int, tuple[set[int], int]] = {}
        self._left: set[int] = set()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        train_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
        on_round: Callable[[dict[str, Any]], None] | None = None,
    ) -> Result:
        """Train up to `num_rounds` rounds in all; the final model, and metrics by round.

        `train_config` reaches the training functions as "config"; `evaluate_fn(round, arrays)`
        is called on the initial model and after every round; `on_round` with each round's record.
        """
        num_rounds = checks.integer("num_rounds", num_rounds, low=0)
        self.layout = Layout.of(initial_arrays)
        self.train_config = train_config or ConfigRecord()
        self._use_code(grid, initial_arrays)
        state = self._begin(initial_arrays, evaluate_fn)
        absences = self._absences(num_rounds)
        if self.settings.warm and not state.warmed:
            self._warm_up(grid, state)
        for t in range(state.round, num_rounds):
            self._round(grid, state, t, absences)
            note = state.history[-1]
            note["metrics"] = _metrics(evaluate_fn, t + 1, state.model)
            self._save(state)
            _log_round(note, num_rounds)
            if on_round:
                on_round(note)
        results.write(
            self.federation.state.folder / self.name, self._describe(), state.history, state.model
        )
        return Result(
            arrays=state.model,
            evaluate_metrics_serverapp={
                note["round"]: MetricRecord(note["metrics"])
                for note in state.history
                if note["metrics"]
            },
        )

    @property
    def commit(self) -> Commit:
        return self.federation.commit

    @property
    def name(self) -> str:
        return self.settings.name(self.commit.number)

    @property
    def folder(self) -> Path:
        """The results folder of this training."""
        return self.federation.state.folder / self.name

    def _describe(self) -> dict[str, Any]:
        return {
            "federation": self.federation.name,
            "settings": {n: str(getattr(self.settings, n)) for n in self.settings.__slots__},
            "sites": [
                {
                    "site": member.site,
                    "identity": member.identity,
                    "examples": member.n_examples,
                    "shareable": member.n_shareable,
                    "present": self.commit.present[i],
                }
                for i, member in enumerate(self.commit.members)
            ],
            "copies": self.commit.copies,
            "epoch": self.commit.number,
            "serial": self.commit.serial,
            "deliveries": len(self.commit.pairs),
            "examples": self.commit.n_examples,
        }

    # The state

    def _begin(self, initial: ArrayRecord, evaluate_fn: Evaluate | None) -> State:
        """The state of the last checkpoint, or a fresh one."""
        N = len(self.commit.members)
        saved = self.federation.state.checkpoint(self.name)
        if saved is None:
            vector = self.layout.vector(initial)
            state = State(
                0,
                initial,
                estimators.start(self.estimator, N, len(vector)),
                self._known_reliability(),
                self.commit.digest.hex(),
            )
            first = {"round": 0, "metrics": _metrics(evaluate_fn, 0, initial), "sites": []}
            state.history.append(first)
            return state
        notes = saved["notes"]
        if notes["layout"] != json.loads(json.dumps(self.layout.arrays)):
            raise FederationError(
                f"{self.federation.state.folder / self.name} holds the training of another model: "
                "choose another state-dir, or remove that folder"
            )
        start = Reliability.start(N)
        state = State(
            notes["round"],
            self.layout.record(saved["model"], initial),
            saved.get("memory"),
            replace(start, missed=saved["missed"], rounds=saved["rounds"]),
            notes["commit"],
            notes["warmed"],
            notes["history"],
        )
        log(INFO, "going on after round %d", state.round)
        if state.commit != self.commit.digest.hex():  # it changed while nobody trained
            self._forget(state, range(N))
            state.commit = self.commit.digest.hex()
        return state

    def _save(self, state: State) -> None:
        arrays: dict[str, npt.NDArray[Any]] = {
            "model": self.layout.vector(state.model),
            "missed": np.asarray(state.reliability.missed),
            "rounds": np.asarray(state.reliability.rounds),
        }
        if state.memory is not None:
            arrays["memory"] = state.memory
        notes = {
            "round": state.round,
            "commit": state.commit,
            "warmed": state.warmed,
            "layout": self.layout.arrays,
            "history": state.history,
        }
        self.federation.state.save_checkpoint(self.name, notes, **arrays)

    @staticmethod
    def _forget(state: State, sites: Sequence[int]) -> None:
        """What these sites answered was of examples that they no longer hold."""
        if state.memory is not None:
            state.memory[list(sites)] = 0

    # The code

    def _use_code(self, grid: Grid, initial: ArrayRecord) -> None:
        """Commit to the code that is asked for, with what it needs."""
        wanted, commit = self.settings.code, self.commit
        if wanted == "equal-split":
            if commit.code != wanted:
                self._commit(code=wanted, straggler_prob=None, owner_share=None)
        elif wanted == "reliability-split":
            if commit.code != wanted:
                p = self._straggler_prob(self._known_reliability())
                self._commit(code=wanted, straggler_prob=tuple(p.tolist()), owner_share=None)
        elif commit.code != wanted:
            if commit.code != "equal-split":
                self._commit(code="equal-split", straggler_prob=None, owner_share=None)
            w = self._owner_shares(grid, initial)
            self._commit(code=wanted, straggler_prob=None, owner_share=tuple(w))

    def _known_reliability(self) -> Reliability:
        """What the newest training of this epoch learnt of the sites; nothing if there is none."""
        start = Reliability.start(len(self.commit.members))
        saved = self.federation.state.newest_checkpoint(f"epoch{self.commit.number}-")
        if saved is None:
            return start
        return replace(start, missed=saved["missed"], rounds=saved["rounds"])

    def _commit(self, **changes: Any) -> None:
        self.federation.record(self.commit.anew(**changes))
        self._confirmed.clear()
        self._coverage.clear()

    def _owner_shares(self, grid: Grid, model: ArrayRecord) -> list[float]:
        """Each owner's best w at the initial model; an owner that is not there splits equally."""
        everybody = np.array(self.commit.present)
        replies, _ = self._ask(grid, model, 0, "owner-share", everybody)
        equal = 1 / (self.commit.copies + 1)
        shares = [equal] * len(everybody)
        for place, reply in replies.items():
            w = wire.fields(reply).get("owner-share")
            if isinstance(w, float) and math.isfinite(w):
                shares[place] = w
        return shares

    # A round

    def _absences(self, num_rounds: int) -> BoolArray | None:
        """Who answers in each round, if absences are rehearsed: (rounds, N)."""
        model, N = self.settings.stragglers, len(self.commit.members)
        if model is None:
            return None
        return model.answered(num_rounds, N, rng=stream(self.settings.seed, "stragglers", 0))

    def _straggler_prob(self, reliability: Reliability) -> FloatArray:
        known = self.settings.straggler_prob
        if known is None:
            return reliability.straggler_prob
        return checks.straggler_prob(known, len(self.commit.members))

    def _warm_up(self, grid: Grid, state: State) -> None:
        """Memory from everybody's answer at the initial model; who is missing stays at 0."""
        everybody = np.array(self.commit.present)
        answers, answered, _ = self._answers(grid, state.model, 0, everybody)
        state.memory = np.where(answered[:, None], answers, 0.0)
        state.warmed = True
        self._save(state)
        log(INFO, "memory is warm for %d of %d sites", answered.sum(), everybody.sum())

    def _round(self, grid: Grid, state: State, t: int, absences: BoolArray | None) -> None:
        start = time.monotonic()
        present = np.array(self.commit.present)
        asked = present if absences is None else present & absences[t]
        answers, answered, outcomes = self._answers(grid, state.model, t + 1, asked)
        p = self._straggler_prob(state.reliability)
        commit = self.commit
        if answered.any():  # else the model stays as it is, whatever is remembered
            estimate, state.memory = estimators.estimate(
                self.estimator, state.memory, answers, answered, p
            )
            step = self.settings.learning_rate * self.settings.decay**t / commit.n_examples
            moved = self.layout.vector(state.model) - step * estimate
            state.model = self.layout.record(moved, state.model)
        state.reliability = state.reliability.observe(answered | ~present)
        state.round = t + 1
        self._check_coverage()
        state.history.append(
            {
                "round": t + 1,
                "seconds": round(time.monotonic() - start, 3),
                "commit": list(commit.order),
                "sites": [
                    {
                        "site": member.site,
                        "answered": bool(answered[i]),
                        "outcome": outcomes[i],
                        "straggler_prob": float(p[i]),
                    }
                    for i, member in enumerate(commit.members)
                    if present[i]
                ],
            }
        )
        self._recommit(state)
        for i in np.flatnonzero(state.reliability.at_cap & present):
            log(WARNING, "%s hardly ever answers: consider leave", commit.members[i].site)

    def _answers(
        self, grid: Grid, model: ArrayRecord, round_number: int, asked: BoolArray
    ) -> tuple[FloatArray, BoolArray, list[str]]:
        """(N, P) answers, who answered, and in a word what became of each site."""
        N = len(self.commit.members)
        replies, outcomes = self._ask(grid, model, round_number, "answer", asked)
        size = len(self.layout.vector(model))
        answers, answered = np.zeros((N, size)), np.zeros(N, np.bool_)
        for place, reply in replies.items():
            try:
                answers[place] = self._answer_of(reply, place, round_number)
                answered[place] = True
            except (AnswerRefused, ValueError, TypeError, KeyError) as error:
                outcomes[place] = str(error) if isinstance(error, AnswerRefused) else "malformed"
                log(WARNING, "%s: %s", self.commit.members[place].site, outcomes[place])
        return answers, answered, outcomes

    def _ask(
        self, grid: Grid, model: ArrayRecord, round_number: int, task: str, asked: BoolArray
    ) -> tuple[dict[int, Message], list[str]]:
        """Replies without an error, by place in the roster, and outcomes."""
        self.federation.meet_quickly(grid)
        members = self.commit.members
        outcomes = ["answered" if here else "not asked" for here in asked]
        place_of = {}
        for place in np.flatnonzero(asked).tolist():
            node = self.federation.node_of.get(members[place].identity)
            if node is None:
                outcomes[place] = "not connected"
            else:
                place_of[node] = place
        contents = {
            node: self._request(place, model, round_number, task)
            for node, place in place_of.items()
        }
        replies = wire.ask(
            grid, contents, "train", seconds=self._seconds(), on_reply=self._note_seconds
        )
        good = {}
        for node, place in place_of.items():
            why = wire.failure(replies.get(node))
            if why is None:
                good[place] = replies[node]
            else:
                outcomes[place] = why
                if why == "SiteWithdrew":
                    self._left.add(place)
                log(WARNING, "%s: %s", members[place].site, why)
        return good, outcomes

    def _request(self, place: int, model: ArrayRecord, round_number: int, task: str) -> Any:
        member = self.commit.members[place]
        fields: dict[str, Any] = {
            "commit": self.commit.record,
            "round": round_number,
            "task": task,
            "local-steps": self.settings.local_steps,
            "batch-size": self.settings.batch_size,
        }
        if member.identity not in self._confirmed:
            receipts = self.federation.receipts(member.identity)
            fields["receipt-recipients"] = [r.recipient for r in receipts]
            fields["receipt-examples"] = [r.examples for r in receipts]
            fields["receipt-signatures"] = [r.signature for r in receipts]
        config = ConfigRecord({**self.train_config, "server-round": round_number})
        return wire.content(fields, arrays=model, config=config)

    def _seconds(self) -> float:
        if self.deadline != "adaptive":
            return float(self.deadline)
        if not self._answer_seconds:
            return LONGEST_DEADLINE / 5
        usual = float(np.quantile(self._answer_seconds[-100:], 0.9))
        return min(max(1.5 * usual + 2, SHORTEST_DEADLINE), LONGEST_DEADLINE)

    def _note_seconds(self, _node: int, reply: Message, seconds: float) -> None:
        if not reply.has_error():
            self._answer_seconds.append(seconds)

    def _answer_of(self, reply: Message, place: int, round_number: int) -> FloatArray:
        """The answer as a vector, if it is one to this message under this commit."""
        fields = wire.fields(reply)
        member = self.commit.members[place]
        if reply.metadata.src_node_id != self.federation.node_of.get(member.identity):
            raise AnswerRefused("unknown sender")
        if fields.get("digest") != self.commit.digest:
            raise AnswerRefused("wrong commit")
        if fields.get("round") != round_number:
            raise AnswerRefused("wrong round")
        if "withdrawn" in fields:
            numbers = {int(number) for number in fields["withdrawn"]}
            self._withdrawals[place] = (numbers, int(fields["withdrawn-private"]))
            raise AnswerRefused("withdrew examples")
        vector = self.layout.vector(reply.content.array_records["answer"])
        if not np.isfinite(vector).all():
            raise AnswerRefused("NaN or infinity")
        self._confirmed.add(member.identity)
        self._coverage[member.identity] = float(fields["coverage"])
        return vector

    def _check_coverage(self) -> None:
        """All sites' sums of 1/d_j add up to M: they agree on who holds what."""
        commit = self.commit
        here = [m.identity for m, p in zip(commit.members, commit.present, strict=True) if p]
        if all(identity in self._coverage for identity in here):
            total = sum(self._coverage[identity] for identity in here)
            if not math.isclose(total, self.commit.n_examples, rel_tol=1e-9, abs_tol=1e-6):
                raise FederationError(
                    f"the sites' shares must add up to the {self.commit.n_examples} examples, "
                    f"got {total}: they do not agree on who holds what"
                )

    # Withdrawals

    def _recommit(self, state: State) -> None:
        """Commit anew if sites withdrew examples or everything; forget what they affect."""
        for place, (numbers, n_private) in self._withdrawals.items():
            self._withdraw(state, place, numbers, n_private)
        self._withdrawals.clear()
        for place in sorted(self._left):
            if self.commit.present[place]:
                holders = {r for s, r in self.commit.pairs if s == place} | {place}
                holders |= {s for s, r in self.commit.pairs if r == place}
                self.federation.record(self.commit.without(place))
                self._changed(state, holders)
        self._left.clear()

    def _withdraw(self, state: State, place: int, numbers: set[int], n_private: int) -> None:
        commit = self.commit
        n_shareable = commit.members[place].n_shareable
        valid = {number for number in numbers if 0 <= number < n_shareable}
        gone = tuple(sorted({*commit.withdrawn[place], *valid}))
        n_private = max(n_private, commit.withdrawn_private[place])
        room = commit.members[place].n_examples - n_shareable
        if (gone, n_private) == (commit.withdrawn[place], commit.withdrawn_private[place]) or (
            n_private > room
        ):
            return
        recipients = commit.draw.recipients_of(place, np.array(gone, np.int64))
        delivered = {r for s, r in commit.pairs if s == place}
        withdrawn, private = list(commit.withdrawn), list(commit.withdrawn_private)
        withdrawn[place], private[place] = gone, n_private
        self.federation.record(
            commit.anew(withdrawn=tuple(withdrawn), withdrawn_private=tuple(private))
        )
        self._changed(state, {place} | (delivered & set(recipients.ravel().tolist())))
        log(INFO, "%s withdrew examples: commit %s", commit.members[place].site, self.commit.order)

    def _changed(self, state: State, affected: set[int]) -> None:
        self._forget(state, sorted(affected))
        state.commit = self.commit.digest.hex()
        self._confirmed.clear()
        self._coverage.clear()


def _metrics(evaluate_fn: Evaluate | None, round_number: int, model: ArrayRecord) -> dict[str, Any]:
    found = evaluate_fn(round_number, model) if evaluate_fn else None
    return {} if found is None else dict(found)


def _log_round(note: dict[str, Any], num_rounds: int) -> None:
    """One line: metrics, how many answered, who did not and why, and the p of each site."""
    sites = note["sites"]
    metrics = "".join(f"{name} {value:.4f}, " for name, value in note["metrics"].items())
    missing = [f"{s['site']} ({s['outcome']})" for s in sites if not s["answered"]]
    log(
        INFO,
        "round %d/%d: %s%d of %d answered%s; p %s",
        note["round"],
        num_rounds,
        metrics,
        len(sites) - len(missing),
        len(sites),
        f", not {', '.join(missing)}" if missing else "",
        " ".join(f"{s['straggler_prob']:.2f}" for s in sites),
    )
