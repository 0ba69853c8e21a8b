"""One round: ask, estimate the gradient from what arrived, step, note."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from fedcommons import shown
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.errors import FederationError
from fedcommons.estimators import ESTIMATORS
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.holders import held_by_each, owned_by_each
from fedcommons.federate.protocol.model_schema import ModelSchema, NamedArrays
from fedcommons.federate.server import answer_sizes, corrections, estimation, withdrawals
from fedcommons.federate.server.answer_files import AnswerFiles, Row
from fedcommons.federate.server.answers import AnswerCollector
from fedcommons.federate.server.asked import Asked
from fedcommons.federate.server.asking import Heard
from fedcommons.federate.server.choice import Choice, Chooser
from fedcommons.federate.server.code_choice import straggler_prob
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.hooks import Hooks, as_handed_back
from fedcommons.federate.server.lifting import lift_what_was_asked
from fedcommons.federate.server.offences import Offences
from fedcommons.federate.server.open_question import OWES
from fedcommons.federate.server.rates import Rates
from fedcommons.federate.server.round_answers import RoundAnswers
from fedcommons.federate.server.round_notes import RoundNote
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.server.site_metrics import Numbers
from fedcommons.federate.server.site_notes import of_sites, with_late
from fedcommons.federate.server.training_state import TrainingState
from fedcommons.optimizers import OPTIMIZERS, USUAL

logger = shown.logger(__name__)

MOST_REPEATS = 5  # of a round in which examples are withdrawn, or sites quarantined


class Rounds:
    """Makes the rounds of one training; each changes the state."""

    def __init__(
        self, federation: ServerFederation, settings: Settings, collector: AnswerCollector
    ) -> None:
        self.federation, self.settings, self.collector = federation, settings, collector
        self.estimator = ESTIMATORS[settings.method.estimator]
        self.optimizer = OPTIMIZERS[settings.method.server_optimizer]
        self.offences = Offences()
        self.rates = Rates(settings, self.files, self.schema)
        self.chooser = Chooser(settings.ask)
        self.was_alone = False  # in the last round

    @property
    def commit(self) -> Commit:
        return self.federation.commit

    @property
    def weights(self) -> FloatArray:
        """The sum of each site's shares: of its own examples, in full, where holders correct."""
        record = self.commit.record
        return owned_by_each(record) if self.settings.correct else held_by_each(record)[1]

    @property
    def schema(self) -> ModelSchema:
        return self.collector.folder.schema

    @property
    def files(self) -> AnswerFiles:
        return self.collector.folder.answers

    def bring_up_to_date(self, state: TrainingState) -> None:
        """Have all sites apply the newest commit, although nothing is trained.

        Their answers are not used; but what was withdrawn, or left, is deleted.
        """
        self._answers(state, state.round)

    def warm_up(self, state: TrainingState) -> None:
        """Memory from everybody's answer, at the initial model or after a new exchange.

        What is remembered of those who are missing stays as it is, nothing at first.
        """
        self.rates.send(state, 0)
        found = self._answers(state, 0)
        self.rates.hear(state, found, self.commit, 0)
        self.use_up(found)
        if not found.answered.any():
            raise FederationError(
                "no answer counts with which memory would start warm: find out why, and give the "
                "same command again"
            )
        state.memory = {**(state.memory or {}), **self._remembered(found.rows)}
        state.note_anchors(self.commit, found)
        state.warmed = True
        n = sum(self.commit.active)
        logger.info("memory is warm for %d of %d sites", found.answered.sum(), n)

    def lift_quarantines(self, state: TrainingState) -> None:
        """Go on with the sites that the operator lets take part again."""
        for identity in lift_what_was_asked(self.federation):
            self.offences.forget(identity)
        state.come_to(self.commit, self.federation.state)

    def take_in_newcomers(self, state: TrainingState) -> bool:
        """Go on with the sites that came later and are accepted; whether there are any."""
        joined = self.collector.newcomers.take_in()
        state.come_to(self.commit, self.federation.state)
        return joined

    def one(self, state: TrainingState, there: BoolArray | None, hooks: Hooks) -> RoundNote:
        """The next round; what is noted of it.

        `there` is who is not made out to be missing; nobody is by default. Where a reply brings a
        withdrawal, the others' answers are of what it takes back: they are dropped, and the same
        sites are asked again under the next commit.
        """
        start, t = time.monotonic(), state.round
        self.rates.send(state, t + 1)
        if there is None:
            there = np.ones(len(self.commit.members), np.bool_)
        for _ in range(1 + MOST_REPEATS):
            p = straggler_prob(self.settings, self.commit, state.reliability)
            choice = self.chooser.choice(self.commit, t + 1, np.array(self.commit.active), p)
            step = _Step(self, state, self._ask(state, t + 1, there, choice), choice, there)
            model, pooled = hooks.train(t + 1, step.asked.asking, step)
            if not step.is_made:
                raise FederationError(
                    "aggregate_train must call the one that it overrides, which estimates from the "
                    "coded answers"
                )
            if not step.is_outdated:
                break
        found, before, choice = step.found, state.reliability, step.choice
        state.model = as_handed_back(model, state.model, step.model_before, self.schema)
        commit, present = self.commit, np.array(self.commit.active)
        state.round = t + 1
        self.was_alone = step.is_alone
        if not step.is_alone or not (there & choice.asked & present).any():
            busy = np.isin(np.arange(len(present)), sorted(found.owing | set(found.late)))
            asked = choice.asked & present & ~busy
            state.reliability = before.observe(found.answered & asked, asked)
        for i in np.flatnonzero(state.reliability.away & ~before.away & present):
            logger.warning(
                "%s has been away for %d rounds: it counts as before when it is back; consider "
                "leave if it is gone for good",
                commit.members[i].site,
                state.reliability.run[i],
            )
        note = RoundNote(
            t + 1,
            round(time.monotonic() - start, 3),
            commit.order,
            of_sites(commit, found, choice, step.straggler_prob, step.changes),
            training=replace(step.metrics, pooled=dict(pooled)),
            deadline=None if found.decided is None else round(found.decided.seconds, 3),
            why="" if found.decided is None else found.decided.why,
            rate=step.rate,
            bytes_sent=len(step.asked.asking.asked) * sum(x.nbytes for x in state.model.values()),
            bytes_received=self.files.row_bytes * sum(row is not None for row in found.all_rows),
        )
        self.chooser.learn([note])
        return note

    def _ask(
        self,
        state: TrainingState,
        round_number: int,
        there: BoolArray,
        choice: Choice | None = None,
    ) -> Asked:
        if not self.commit.n_examples:
            raise FederationError("nothing is left to train on: all examples were withdrawn")
        could = there & np.array(self.commit.active)
        asked = could if choice is None else could & choice.asked
        return self.collector.ask(state.model, round_number, asked, others=could & ~asked)

    def _answers(self, state: TrainingState, round_number: int) -> RoundAnswers:
        """Everybody's answers, of which none contains what was withdrawn."""
        everybody = np.ones(len(self.commit.members), np.bool_)
        for _ in range(1 + MOST_REPEATS):
            asked = self._ask(state, round_number, everybody)
            found, is_outdated = self.taken(state, asked, None)
            if not is_outdated:
                break
        return found

    def taken(
        self, state: TrainingState, asked: Asked, replies: Iterable[Heard] | None
    ) -> tuple[RoundAnswers, bool]:
        """The answers, as far as withdrawals and offences leave them; whether there were any."""
        found = self.collector.answers(asked, replies)
        late = self.collector.late
        if late is not None:
            late.gather(found, self.commit)
        self._bound(state, found)
        if late is not None:
            late.note_bounded(found, self.commit)
        found.offenders |= self.offences.hear(self.commit, found, asked.round)
        is_new = withdrawals.commit_without(
            self.federation, found.taken_back, found.left, found.offenders
        )
        state.come_to(self.commit, self.federation.state)
        if is_new:
            found = found.outdated()
            not_used = [] if late is None else late.rows
            self.files.withdraw([*(state.memory or {}).values(), *not_used])
        return found, is_new

    def _bound(self, state: TrainingState, found: RoundAnswers) -> None:
        about = (self.commit, found, self.files, state.sizes, self.settings.answer_bound)
        answer_sizes.bound(*about, self.weights)
        corrections.bound(*about)

    def use_up(self, found: RoundAnswers) -> None:
        """What `found` has of late answers is not looked at again."""
        if self.collector.late is not None:
            self.collector.late.use_up(found, self.commit)

    def end(self, state: TrainingState, note: RoundNote) -> RoundNote:
        """Remember what came since the step, such as while sites evaluated; the note, with that."""
        late, commit = self.collector.late, self.commit
        if late is None or state.memory is None:
            return note
        late.look(self.collector.link.nodes())
        found = RoundAnswers.nothing(len(commit.members))
        late.gather(found, commit)
        # What replies say of withdrawals is heard with the next round's answers.
        found.late = {place: one for place, one in found.late.items() if one.row is not None}
        self._bound(state, found)
        self.remember(state, found)
        self.use_up(found)
        by_site = {commit.members[place].site: one for place, one in found.late.items()}
        sites = [
            with_late(site, by_site[site.site]) if site.site in by_site else site
            for site in note.sites
        ]
        names = {place: member.site for place, member in enumerate(commit.members)}
        training = note.training.joined(found.site_metrics(names))
        return replace(note, sites=tuple(sites), training=training)

    def remember(self, state: TrainingState, found: RoundAnswers) -> None:
        """Have late answers in the memory, without a step."""
        places = [place for place, late in found.late.items() if late.row is not None]
        if state.memory is None or not places:
            return
        self.rates.hear(state, found, self.commit, state.round)
        members = self.commit.members
        rows = estimation.remember(
            self.estimator,
            self.files,
            [found.late[place].row for place in places],
            [state.memory.get(members[place].identity) for place in places],
            found.arrivals(places, state.round),
            self._rates(found, places),
        )
        pairs = zip(places, rows, strict=True)
        state.memory |= {members[place].identity: row for place, row in pairs if row is not None}
        state.note_anchors(self.commit, found)

    def _remembered(self, rows: Sequence[Row | None]) -> dict[str, Row]:
        """By the site's identity, of rows in the order of the roster."""
        pairs = zip(self.commit.members, rows, strict=True)
        return {member.identity: row for member, row in pairs if row is not None}

    def changes(self, state: TrainingState, found: RoundAnswers) -> FloatArray:
        """How far each answer is from what is remembered, (N,), if whom to ask goes by it."""
        if not self.chooser.measures:
            return np.full(len(found.rows), np.nan)
        memory = state.memory
        known = None if memory is None else [memory.get(m.identity) for m in self.commit.members]
        return estimation.changes(self.files, found.all_rows, known)

    def step(
        self, state: TrainingState, found: RoundAnswers, p: FloatArray, choice: Choice
    ) -> float:
        """Move the model along the estimate; p is how often sites straggle that are asked.

        Returns the step on the mean gradient.
        """
        t, members = state.round, self.commit.members
        self.rates.hear(state, found, self.commit, t + 1)
        here = np.flatnonzero(self.commit.active)
        memory = None
        if state.memory is not None:
            memory = [state.memory.get(members[place].identity) for place in here]
        rows, W = found.all_rows, self.weights[here]
        arrivals = found.arrivals(here.tolist(), t + 1, choice.asked)
        if memory is not None:
            heard = np.array([row is not None for row in memory])
            arrivals = replace(arrivals, heard=heard, shares=W)
        with np.errstate(over="ignore", invalid="ignore"):  # noticed below
            estimate, memory = estimation.estimate(
                self.estimator,
                self.files,
                [rows[place] for place in here],
                memory,
                arrivals,
                choice.missing_prob(p)[here],
                W,
                self._rates(found, here.tolist()),
            )
            corrections.add(estimate, self.commit, self.files, found)
        M = self.commit.n_examples
        rate = self.rates.of(state, self.commit)
        with np.errstate(over="ignore", invalid="ignore"):  # noticed below
            direction, moments = self.optimizer.direction(state.moments, estimate, M, USUAL)
            del estimate  # as large as the model, like all that follows
            moved = self.schema.vector(state.model)
            moved -= rate / M * direction
            model = self.schema.model(moved, state.model)
        if not all(np.isfinite(x).all() for x in (*self.schema.trained(model), *moments)):
            about = (self.commit, found, self.files, t, self.settings.learning_rate)
            raise answer_sizes.not_finite(*about)
        state.model, state.moments = model, moments
        if state.memory is not None and memory is not None:
            by_place = dict(zip(here.tolist(), memory, strict=True))
            state.memory |= self._remembered([by_place.get(i) for i in range(len(members))])
            state.note_anchors(self.commit, found)
        return rate

    def _rates(self, found: RoundAnswers, places: Sequence[int]) -> FloatArray | None:
        """How far what is remembered moves, where a chunk counts for as many as there are."""
        if self.settings.work_asked != "sagachunk" or not self.estimator.remembers:
            return None
        return np.array([1 / found.chunks.get(place, 1) for place in places])


class _Step:
    """What the server makes of a round's replies, when the strategy hands them on."""

    def __init__(
        self,
        rounds: Rounds,
        state: TrainingState,
        asked: Asked,
        choice: Choice,
        there: BoolArray,
    ) -> None:
        self._rounds, self._state, self.asked = rounds, state, asked
        self.choice, self.there = choice, there
        self.model_before = state.model
        self.is_made = self.is_outdated = self.is_alone = False
        self.rate: float | None = None

    def __call__(self, replies: Iterable[Heard]) -> tuple[NamedArrays, Numbers]:
        """Move the model along the estimate; the model, and the sites' metrics of training.

        If nobody answers who was asked, and nobody is there who is still at work, the server is
        alone: the model stays as it is, whatever is remembered, and nothing is learnt of any site.
        Where some are asked, nobody's answering is by design if anybody is connected: the estimator
        has counted on it.
        """
        if self.is_made:
            raise FederationError("the answers of a round can be aggregated once")
        self.is_made = True
        rounds, state = self._rounds, self._state
        self.found, self.is_outdated = rounds.taken(state, self.asked, replies)
        self.straggler_prob = straggler_prob(rounds.settings, rounds.commit, state.reliability)
        self.changes = rounds.changes(state, self.found)
        self.is_alone = self._is_alone()
        if not self.is_alone and not self.is_outdated:
            self.rate = rounds.step(state, self.found, self.straggler_prob, self.choice)
        else:
            rounds.remember(state, self.found)
        rounds.use_up(self.found)
        names = {place: member.site for place, member in enumerate(rounds.commit.members)}
        self.metrics = self.found.site_metrics(names)
        return state.model, self.metrics.pooled

    def _is_alone(self) -> bool:
        if self.found.answered.any() or OWES in self.found.outcomes:
            return False
        commit, meeting = self._rounds.commit, self._rounds.federation.meeting
        active = np.array(commit.active)
        if (self.choice.probs[active] == 1).all():
            return True
        could = np.flatnonzero(active & self.there)
        return all(meeting.node(commit.members[place].identity) is None for place in could)
