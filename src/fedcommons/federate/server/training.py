"""Coded training: the server's rounds, checkpointed, on whatever answers arrive."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fedcommons import checks, estimators
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.errors import FederationError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.server import results, round_notes
from fedcommons.federate.server.answers import Heard, Inquiry
from fedcommons.federate.server.coordinator import Federation
from fedcommons.federate.server.progress import SEEN, State, digest_of, reliability_of
from fedcommons.federate.server.round_notes import Evaluate
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.server.withdrawals import holders_of_what_left, withdraw
from fedcommons.federate.transport.model_arrays import Layout
from fedcommons.reliability import Reliability
from fedcommons.streams import stream

MOST_REPEATS = 3  # of a round in which examples are withdrawn
MOST_SILENT_ROUNDS = 10  # in a row, in which nobody answers


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
        and two seconds more; who misses it counts as if it had taken half as long again.
        """
        self.federation = federation
        self.config = ConfigRecord()
        self.settings = Settings(**settings)
        self.estimator = estimators.ESTIMATORS[self.settings.estimator]
        if deadline != "adaptive":
            checks.positive("deadline", deadline)
        self.deadline = deadline

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

        `train_config` reaches the training functions as "config"; another one is another training.
        Going on needs the initial model that the training began with. `evaluate_fn(round, arrays)`
        is called on the initial model and after every round; `on_round` with each round's record.
        """
        num_rounds = checks.integer("num_rounds", num_rounds, low=0)
        self.layout = Layout.of(initial_arrays)
        if self.layout.statistics:
            raise FederationError(
                f"the arrays must be trained by gradients, got {self.layout.statistics[0]}, which "
                "is kept of batches: use GroupNorm or LayerNorm, or track_running_stats=False"
            )
        self.config = train_config or ConfigRecord()
        inquiry = Inquiry(self.federation, self.layout, self.settings, self.deadline, self.config)
        saved = self.federation.state.checkpoint(self.name)
        self._use_code(grid, inquiry, initial_arrays, saved)
        state = self._begin(initial_arrays, evaluate_fn, saved)
        if state.round and num_rounds <= state.round:
            self._bring_up_to_date(grid, inquiry, state)
            log(
                WARNING,
                "nothing was trained: this training is at round %d, num_rounds is %d in all",
                state.round,
                num_rounds,
            )
        absences = self._absences(num_rounds)
        if self.settings.warm and not state.warmed:
            self._warm_up(grid, inquiry, state)
        silent, most_silent = 0, min(MOST_SILENT_ROUNDS, num_rounds - state.round)
        for t in range(state.round, num_rounds):
            note = self._round(grid, inquiry, state, t, absences)
            note["metrics"] = round_notes.metrics(evaluate_fn, t + 1, state.model)
            self._save(state)
            round_notes.log_round(note, num_rounds)
            if on_round:
                on_round(note)
            silent = round_notes.silent(note, silent)
            if silent == most_silent:
                raise FederationError(
                    f"nobody answered, {silent} times in a row, up to round {t + 1}: the model is "
                    "as it was before; give the same command again to go on, with a larger "
                    "num_rounds if that was the last"
                )
        results.write(self.folder, self._describe(), state.history, state.model)
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
        return self.settings.name(self.commit.number, self.config)

    @property
    def folder(self) -> Path:
        """The results folder of this training."""
        return self.federation.state.folder / self.name

    def _describe(self) -> dict[str, Any]:
        return results.describe(self.commit, self.settings, self.config)

    # The state

    def _begin(
        self, initial: ArrayRecord, evaluate_fn: Evaluate | None, saved: dict[str, Any] | None
    ) -> State:
        """The state of the last checkpoint, or a fresh one."""
        N = len(self.commit.members)
        if saved is None:
            memory = estimators.start(self.estimator, N, len(self.layout.vector(initial)))
            metrics = round_notes.metrics(evaluate_fn, 0, initial)
            return State(
                0,
                initial,
                memory,
                self._known_reliability(),
                self.commit.order,
                digest_of(self.layout.vector(initial)),
                history=[{"round": 0, "metrics": metrics, "sites": []}],
            )
        notes = saved["notes"]
        if notes["layout"] != json.loads(json.dumps(self.layout.arrays)):
            raise FederationError(
                f"{self.folder} holds the training of another model: choose another state-dir, or "
                "remove that folder"
            )
        if notes["initial"] != digest_of(self.layout.vector(initial)):
            raise FederationError(
                f"{self.folder} holds a training that began with other values of the model: make "
                "the same initial model in every run, by a seed perhaps, to go on; remove that "
                "folder, or choose another state-dir, to begin with this one"
            )
        state = State(
            notes["round"],
            self.layout.record(saved["model"], initial),
            saved.get("memory"),
            reliability_of(N, saved),
            tuple(notes["commit"]),
            notes["initial"],
            notes["warmed"],
            notes["history"],
        )
        log(INFO, "going on after round %d", state.round)
        self._forget(state)  # the commit may have changed while nobody trained
        return state

    def _save(self, state: State) -> None:
        arrays: dict[str, npt.NDArray[Any]] = {
            "model": self.layout.vector(state.model),
            **{name: getattr(state.reliability, name) for name in SEEN},
        }
        if state.memory is not None:
            arrays["memory"] = state.memory
        notes = {
            "round": state.round,
            "commit": state.commit,
            "initial": state.initial,
            "about": self._describe(),
            "straggler_prob": self.commit.straggler_prob,
            "owner_share": self.commit.owner_share,
            "rehearsed": self.settings.stragglers is not None,
            "warmed": state.warmed,
            "layout": self.layout.arrays,
            "history": state.history,
        }
        self.federation.state.save_checkpoint(self.name, notes, **arrays)

    def _forget(self, state: State) -> None:
        """Forget the answers of sites that held what is gone since the state's last commit."""
        if state.commit == self.commit.order:
            return
        if state.memory is not None:
            before = self.federation.state.commit_of(state.commit)
            everybody = set(range(len(state.memory)))
            gone = holders_of_what_left(before, self.commit) if before else everybody
            state.memory[sorted(gone)] = 0
        state.commit = self.commit.order

    def _known_reliability(self) -> Reliability:
        """What the newest training of this epoch learnt of the sites; nothing if there is none.

        Rehearsed absences say nothing of a training that does not rehearse.
        """
        rehearses = self.settings.stragglers is not None
        saved = self.federation.state.newest_checkpoint(
            f"epoch{self.commit.number}-", lambda notes: rehearses or not notes["rehearsed"]
        )
        N = len(self.commit.members)
        return Reliability.start(N) if saved is None else reliability_of(N, saved)

    # What a round goes by

    def _use_code(
        self, grid: Grid, inquiry: Inquiry, initial: ArrayRecord, saved: dict[str, Any] | None
    ) -> None:
        """Commit to the code that is asked for, with what it needs.

        A training that goes on keeps what it split by, whatever others did in between.
        """
        code, commit = self.settings.code, self.commit
        p: tuple[float, ...] | None = None
        w: tuple[float, ...] | None = None
        if code == "reliability-split":
            if saved is None or self.settings.straggler_prob is not None:
                p = tuple(self._straggler_prob(self._known_reliability()).tolist())
            else:
                p = tuple(saved["notes"]["straggler_prob"])
        elif code == "owner-corrected":
            if saved is not None:
                w = tuple(saved["notes"]["owner_share"])
            elif commit.owner_share is not None:
                w = commit.owner_share
            else:
                w = tuple(inquiry.owner_shares(grid, initial))
        if (code, p, w) != (commit.code, commit.straggler_prob, commit.owner_share):
            self.federation.record(commit.anew(code=code, straggler_prob=p, owner_share=w))

    def _straggler_prob(self, reliability: Reliability) -> FloatArray:
        known = self.settings.straggler_prob
        if known is None:
            return reliability.straggler_prob
        return checks.straggler_prob(known, len(self.commit.members))

    def _absences(self, num_rounds: int) -> BoolArray | None:
        """Who answers in each round, if absences are rehearsed: (rounds, N)."""
        model, N = self.settings.stragglers, len(self.commit.members)
        if model is None:
            return None
        return model.answered(num_rounds, N, rng=stream(self.settings.seed, "stragglers", 0))

    # A round

    def _bring_up_to_date(self, grid: Grid, inquiry: Inquiry, state: State) -> None:
        """Have all come under the newest commit, although nothing is trained.

        Their answers are not used; but what was withdrawn, or left, is deleted.
        """
        self._ask(grid, inquiry, state, state.round, np.array(self.commit.present))
        self._save(state)

    def _warm_up(self, grid: Grid, inquiry: Inquiry, state: State) -> None:
        """Memory from everybody's answer at the initial model; who is missing stays at 0."""
        everybody = np.array(self.commit.present)
        heard = self._ask(grid, inquiry, state, 0, everybody)
        if not heard.answered.any():
            raise FederationError(
                "no answer counts at the initial model, with which memory would start warm: find "
                "out why, and give the same command again"
            )
        state.memory, state.warmed = heard.answers, True
        self._save(state)
        log(INFO, "memory is warm for %d of %d sites", heard.answered.sum(), everybody.sum())

    def _ask(
        self, grid: Grid, inquiry: Inquiry, state: State, round_number: int, asked: BoolArray
    ) -> Heard:
        """Answers of which none contains what was withdrawn, as far as its owner is heard.

        Where a reply brings a withdrawal, the others' answers are of what it takes back: they are
        dropped, and all are asked again under the next commit.
        """
        for _ in range(1 + MOST_REPEATS):
            if not self.commit.n_examples:
                raise FederationError("nothing is left to train on: all examples were withdrawn")
            present = np.array(self.commit.present)
            heard = inquiry.answers(grid, state.model, round_number, asked & present)
            if not self._recommit(state, heard):
                break
            heard = heard.outdated()
        return heard

    def _round(
        self, grid: Grid, inquiry: Inquiry, state: State, t: int, absences: BoolArray | None
    ) -> dict[str, Any]:
        """One round; what is noted of it."""
        start = time.monotonic()
        asked = np.ones(len(self.commit.members), np.bool_) if absences is None else absences[t]
        heard = self._ask(grid, inquiry, state, t + 1, asked)
        commit, present = self.commit, np.array(self.commit.present)
        p = self._straggler_prob(state.reliability)  # of past rounds
        # If nobody answers who was asked, the server is alone: the model stays as it is, whatever
        # is remembered, and nothing is learnt of any site.
        if heard.answered.any():
            self._step(state, heard, p, t)
        before, state.round = state.reliability, t + 1
        if heard.answered.any() or not (asked & present).any():
            state.reliability = before.observe(heard.answered | ~present)
        note = {
            "round": t + 1,
            "seconds": round(time.monotonic() - start, 3),
            "commit": list(commit.order),
            "sites": round_notes.by_site(commit, heard, p),
        }
        state.history.append(note)
        for i in np.flatnonzero(state.reliability.away & ~before.away & present):
            log(
                WARNING,
                "%s has been away for %d rounds: it counts as before when it is back; consider "
                "leave if it is gone for good",
                commit.members[i].site,
                state.reliability.run[i],
            )
        return note

    def _step(self, state: State, heard: Heard, p: FloatArray, t: int) -> None:
        """Move the model along the estimate."""
        here = np.array(self.commit.present)
        memory = None if state.memory is None else state.memory[here]
        with np.errstate(over="ignore", invalid="ignore"):  # noticed below
            estimate, memory = estimators.estimate(
                self.estimator, memory, heard.answers[here], heard.answered[here], p[here]
            )
        if state.memory is not None:
            state.memory[here] = memory
        step = self.settings.learning_rate * self.settings.decay**t / self.commit.n_examples
        with np.errstate(over="ignore", invalid="ignore"):  # noticed below
            moved = self.layout.vector(state.model) - step * estimate
            model = self.layout.record(moved, state.model)
        if not np.isfinite(self.layout.vector(model)).all():
            sizes = np.abs(heard.answers).max(axis=1)
            largest, usual = int(sizes.argmax()), np.median(sizes[heard.answered])
            raise FederationError(
                f"the model is not finite any more after round {t + 1}, with learning_rate "
                f"{self.settings.learning_rate:g} and answers of up to {sizes[largest]:.3g}, by "
                f"{self.commit.members[largest].site} (the median site's: {usual:.3g}); "
                f"the model of round {t} is kept"
            )
        state.model = model

    def _recommit(self, state: State, heard: Heard) -> bool:
        """Commit anew if sites withdrew examples or everything; whether they did."""
        commit = self.commit
        for place, taken_back in heard.taken_back.items():
            commit = withdraw(commit, place, taken_back)
        for place in sorted(heard.left):
            if commit.present[place]:
                commit = commit.without(place)
        is_new = commit.order != self.commit.order
        if is_new:
            self.federation.record(commit)
            log(
                INFO, "examples were withdrawn: commit %s, %d left", commit.order, commit.n_examples
            )
        self._forget(state)
        return is_new
