"""The code that a training uses, and the straggler probabilities that it goes by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.coding import CODES
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.server.checkpoints import Checkpoint
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.settings import Settings
from fedcommons.reliability import Reliability
from fedcommons.streams import stream


def commit_to_code(
    federation: ServerFederation,
    settings: Settings,
    saved: Checkpoint | None,
    ask_owner_shares: Callable[[], Sequence[float]],
) -> None:
    """Commit to the code that is asked for, with what it needs.

    A training that goes on under the same exchange keeps what it split by, whatever others did in
    between.
    """
    code, commit = CODES[settings.method.code], federation.commit
    goes_on = saved if saved and saved.commit[0] == commit.number else None
    p: tuple[float, ...] | None = None
    w: tuple[float, ...] | None = None
    if code.needs_p:
        if not goes_on or settings.straggler_prob is not None:
            known = known_reliability(federation, settings)
            p = tuple(straggler_prob(settings, commit, known).tolist())
        else:
            p = _with_joined(goes_on.straggler_prob, commit, 0.0)
    if code.needs_owner_share:
        if goes_on:
            w = _with_joined(goes_on.owner_share, commit, 1.0)
        elif commit.owner_share is not None:
            w = commit.owner_share
        else:
            w = tuple(ask_owner_shares())
    if (code.name, p, w) != (commit.code, commit.straggler_prob, commit.owner_share):
        federation.record(commit.anew(code=code.name, straggler_prob=p, owner_share=w))


def _with_joined(
    values: tuple[float, ...] | None, commit: Commit, of_newcomers: float
) -> tuple[float, ...] | None:
    """One number for each member, for those that joined since too; they hold nobody's copies."""
    if values is None:
        return None
    return values + (of_newcomers,) * (len(commit.members) - len(values))


def known_reliability(federation: ServerFederation, settings: Settings) -> Reliability:
    """What the newest training learnt of the sites; nothing of those that are new.

    Rehearsed absences say nothing to a training that does not rehearse.
    """
    rehearses, commit = settings.stragglers is not None, federation.commit
    saved = federation.state.newest_checkpoint(
        lambda checkpoint: rehearses or not checkpoint.rehearsed
    )
    if saved is None:
        return Reliability.start(len(commit.members))
    return saved.reliability.of(commit.places_in(saved.identities))


def straggler_prob(settings: Settings, commit: Commit, reliability: Reliability) -> FloatArray:
    """p_i for each site, (N,): as the settings have it, or as it is known from past rounds.

    Of sites that joined later the settings of one p for each site say nothing.
    """
    known, estimated = settings.straggler_prob, reliability.straggler_prob
    if known is None:
        return estimated
    if np.ndim(known) == 0:
        return checks.straggler_prob(known, len(estimated))
    n = len(commit.roster)
    return np.concatenate([checks.straggler_prob(known, n), estimated[n:]])


def rehearsed_absences(settings: Settings, commit: Commit, num_rounds: int) -> BoolArray | None:
    """Who is asked in each round, (rounds, N), if absences are rehearsed."""
    model = settings.stragglers
    if model is None:
        return None
    rng = stream(settings.seed, "stragglers", 0)
    return model.answered(num_rounds, len(commit.members), rng=rng)
