"""Coded training: round after round on whatever answers arrive, with a checkpoint after each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedcommons import checks, shown
from fedcommons.errors import FederationError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.model_schema import ModelSchema, NamedArrays
from fedcommons.federate.server import (
    agreement,
    code_choice,
    corrections,
    results,
    room,
    round_events,
    round_notes,
)
from fedcommons.federate.server.advice import advice
from fedcommons.federate.server.answers import AnswerCollector
from fedcommons.federate.server.best import Best, Watch
from fedcommons.federate.server.checkpoints import Checkpoint
from fedcommons.federate.server.deadlines import Deadline
from fedcommons.federate.server.evaluation import Evaluation, Evaluator
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.hooks import Hooks
from fedcommons.federate.server.late_answers import LateAnswers
from fedcommons.federate.server.link import Link
from fedcommons.federate.server.never_on_time import NeverOnTime
from fedcommons.federate.server.round_notes import Evaluate, RoundNote
from fedcommons.federate.server.rounds import Rounds
from fedcommons.federate.server.settings import Settings, remembers_late
from fedcommons.federate.server.standardisation import scale_of_training
from fedcommons.federate.server.training_folder import TrainingFolder
from fedcommons.federate.server.training_state import TrainingState, digest_of
from fedcommons.tracking import Target, Tracker

logger = shown.logger(__name__)

MOST_SILENT_ROUNDS = 10  # in a row, in which nobody answers


class Training:
    """One training of a federation, as its settings have it; it goes on where it was.

    `config` reaches the sites' training functions; another one is another training. How it is
    evaluated, what of that is watched, what becomes of late answers and where its numbers are
    tracked may change while it goes on.
    """

    def __init__(
        self,
        federation: ServerFederation,
        settings: Settings,
        deadline: Deadline,
        config: Mapping[str, Any],
        evaluation: Evaluation | None = None,
        watch: Watch | None = None,
        late: str | None = None,
        track: Sequence[Target] = (),
    ) -> None:
        self.federation, self.settings = federation, settings
        self.remembers_late = remembers_late(settings, late)
        self.deadline, self.config = deadline, dict(config)
        self.evaluation, self.watch = evaluation or Evaluation(), watch
        self.track = track

    @property
    def commit(self) -> Commit:
        return self.federation.commit

    @property
    def name(self) -> str:
        return self.settings.name(self.config)

    @property
    def folder(self) -> Path:
        """The results folder of this training."""
        return self.federation.state.folder / self.name

    def run(
        self,
        link: Link,
        initial: NamedArrays,
        num_rounds: int,
        *,
        evaluate: Evaluate | None = None,
        on_round: Callable[[RoundNote], None] | None = None,
        hooks: Hooks | None = None,
        audit: bool = False,
    ) -> TrainingState:
        """Train up to `num_rounds` rounds in all, those of earlier runs included.

        A training that goes on does so from its own model, whatever the values of `initial`. It
        ends sooner if what is watched does not get better. With `audit` sites first compare what
        they compute of the same examples.
        """
        num_rounds = checks.integer("num_rounds", num_rounds, low=0)
        schema = ModelSchema.of(initial)
        if schema.running_statistics:
            logger.info(
                "%s and the like stay at the sites: the server's model keeps those it began with",
                schema.running_statistics[0],
            )
        room.check(
            len(self.commit.members_present),
            schema,
            self.folder,
            estimator=self.settings.method.estimator,
            server_optimizer=self.settings.method.server_optimizer,
        )
        folder = TrainingFolder(self.folder, schema)
        collector = AnswerCollector(
            self.federation, link, folder, self.settings.method, self.deadline, self.config
        )
        collector.work = self.settings.work_asked
        rounds = Rounds(self.federation, self.settings, collector)
        saved = self.federation.state.checkpoint(self.name)
        if (scale := scale_of_training(collector, self.settings, saved)) is not None:
            collector.scale = scale.scale
        code_choice.commit_to_code(
            self.federation, self.settings, saved, lambda: collector.owner_shares(initial)
        )
        if audit:
            agreement.check(collector, initial)
        state = self._begin(initial, folder, evaluate, saved)
        if self.settings.correct:
            corrections.check(self.commit, schema)
            collector.anchors = state.anchors
        if self.remembers_late:
            collector.late = LateAnswers(
                *(self.federation, link, folder, state.owed, self.deadline),
                needs_anchors=self.settings.correct,
            )
        self._learn_durations(state)
        best = None if self.watch is None else Best(self.folder, self.watch)
        if best is not None:  # it may have died before it was kept
            best.consider(state.history[-1], state.model)
        is_final = best is not None and best.is_final(state.history)
        if state.round and (num_rounds <= state.round or is_final):
            rounds.bring_up_to_date(state)
            self._save(state, folder)
            logger.warning(
                "nothing was trained: this training is at round %d, num_rounds is %d in all",
                state.round,
                num_rounds,
            )
        if self.settings.method.warm and not state.warmed:
            rounds.warm_up(state)
            self._save(state, folder)
        evaluator = Evaluator(
            self.federation, link, self.evaluation, self.deadline, self.settings.seed
        )
        evaluator.scale = collector.scale
        rounds.chooser.learn(state.history)
        tracked = round_events.about(self.folder, self.commit, self.settings, self.config)
        tracker = Tracker(self.track, tracked)
        if not state.round:
            tracker.send(round_events.events_of(state.history[0]))

        def hear(note: RoundNote) -> None:
            tracker.send(round_events.events_of(note))
            if on_round:
                on_round(note)

        try:
            around = _Around(evaluator, evaluate, hear, hooks or Hooks(), best)
            self._go_on(rounds, state, num_rounds, around)
            collector.live.end(is_over=True)
        finally:
            tracker.close()
        folder.tidy(state.memory)
        about = {**self._about(), **({} if scale is None else {"scale": scale.listed})}
        results.write(self.folder, about, state.history, state.model)
        return state

    def _go_on(
        self, rounds: Rounds, state: TrainingState, num_rounds: int, around: _Around
    ) -> None:
        """Round after round up to `num_rounds`; an error if nobody answers for many of them."""
        silent, most_silent = 0, min(MOST_SILENT_ROUNDS, num_rounds - state.round)
        absences = code_choice.rehearsed_absences(self.settings, self.commit, num_rounds)
        slow = NeverOnTime(self.remembers_late)
        for t in range(state.round, num_rounds):
            if around.is_final(state):
                break
            rounds.lift_quarantines(state)
            note = rounds.one(state, None if absences is None else absences[t], around.hooks)
            note = around.measured(note, state.model, num_rounds, rounds.collector.evaluates)
            note = rounds.end(state, note)
            state.history.append(note)
            if rounds.take_in_newcomers(state):
                absences = code_choice.rehearsed_absences(self.settings, self.commit, num_rounds)
            self._save(state, rounds.collector.folder)
            if around.best is not None:
                around.best.consider(note, state.model)
            round_notes.log_round(note, num_rounds)
            slow.warn(state.history)
            around.on_round(note)
            counts = rounds.was_alone or self.settings.ask is None
            silent = round_notes.silent_rounds(note, silent) if counts else 0
            if silent == most_silent:
                raise FederationError(
                    f"nobody answered, {silent} times in a row, up to round {t + 1}: the model is "
                    "as it was before; give the same command again to go on, with a larger "
                    f"num_rounds if that was the last{_why_nobody(note)}"
                )

    def _begin(
        self,
        initial: NamedArrays,
        folder: TrainingFolder,
        evaluate: Evaluate | None,
        saved: Checkpoint | None,
    ) -> TrainingState:
        """The state of the last checkpoint, or a fresh one."""
        disk = self.federation.state
        if saved is None:
            folder.save_untrained({name: initial[name] for name in folder.schema.untrained})
            return TrainingState.start(
                initial,
                folder.schema,
                self.settings.method,
                code_choice.known_reliability(self.federation, self.settings),
                self.commit,
                round_notes.initial_note(evaluate, initial),
            )
        kept = {**initial, **folder.untrained()}
        state = TrainingState.resume(saved, kept, folder.schema, folder)
        if state.initial != digest_of(folder.schema.vector(initial)):
            logger.warning(
                "the initial model has other values than the one that this training began with, "
                "which is kept: make it by a seed to have the same in every run, or begin anew in "
                "another state-dir"
            )
        logger.info("going on after round %d", state.round)
        state.come_to(self.commit, disk)  # it may have changed in between
        return state

    def _learn_durations(self, state: TrainingState) -> None:
        """How long answers took in earlier runs of this training, for a deadline that adapts."""
        for note in state.history:
            for site in note.sites:
                if site.seconds is not None:
                    self.deadline.note_answer(site.site, site.seconds)

    def _save(self, state: TrainingState, folder: TrainingFolder) -> None:
        state.save(folder, self.commit, self.settings, self._about())

    def _about(self) -> dict[str, Any]:
        about = results.describe(self.commit, self.settings, self.config)
        return {**about, "quarantine": self.federation.quarantine.listed()}


def _why_nobody(note: RoundNote) -> str:
    """What to do about it, if all sites say the same."""
    outcomes = {site.outcome for site in note.sites}
    (why,) = outcomes if len(outcomes) == 1 else ("",)
    return f". All sites say {why}{advice(why)}" if advice(why) else ""


@dataclass(frozen=True, slots=True)
class _Around:
    """What happens around the rounds: how models are measured, and who hears of it."""

    evaluator: Evaluator
    evaluate: Evaluate | None
    on_round: Callable[[RoundNote], None]
    hooks: Hooks
    best: Best | None

    def measured(
        self, note: RoundNote, model: NamedArrays, num_rounds: int, evaluates: Mapping[str, str]
    ) -> RoundNote:
        """The note of a round with what the sites and the server say of the model after it."""
        if self.evaluator.evaluation.is_due(note.round, num_rounds):
            there = [site.site for site in note.sites if site.answered]
            found = self.evaluator.metrics(note.round, model, there, evaluates, self.hooks)
            note = replace(note, evaluation=found)
        return round_notes.with_metrics(note, self.evaluate, model)

    def is_final(self, state: TrainingState) -> bool:
        """Whether what is watched has not got better for long enough."""
        best = self.best
        if best is None or not best.is_final(state.history):
            return False
        logger.info(
            "training ends after round %d: %s has not been better than %.6g, after round %d, for "
            "%d measurements",
            *(state.round, best.watch.metric, best.value, best.round, best.watch.patience),
        )
        return True
