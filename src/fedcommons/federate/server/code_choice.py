"""The code that a training uses, and the straggler probabilities that it goes by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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

    A training that goes on keeps what it split by, whatever others did in between.
    """
    code, commit = CODES[settings.method.code], federation.commit
    p: tuple[float, ...] | None = None
    w: tuple[float, ...] | None = None
    if code.needs_p:
        if saved is None or settings.straggler_prob is not None:
            known = known_reliability(federation, settings)
            p = tuple(straggler_prob(settings, known).tolist())
        else:
            p = saved.straggler_prob
    if code.needs_owner_share:
        if saved is not None:
            w = saved.owner_share
        elif commit.owner_share is not None:
            w = commit.owner_share
        else:
            w = tuple(ask_owner_shares())
    if (code.name, p, w) != (commit.code, commit.straggler_prob, commit.owner_share):
        federation.record(commit.anew(code=code.name, straggler_prob=p, owner_share=w))


def known_reliability(federation: ServerFederation, settings: Settings) -> Reliability:
    """What the newest training of this epoch learnt of the sites; nothing if there is none.

    Rehearsed absences say nothing to a training that does not rehearse.
    """
    rehearses, commit = settings.stragglers is not None, federation.commit
    saved = federation.state.newest_checkpoint(
        f"epoch{commit.number}-", lambda checkpoint: rehearses or not checkpoint.rehearsed
    )
    return Reliability.start(len(commit.members)) if saved is None else saved.reliability


def straggler_prob(settings: Settings, reliability: Reliability) -> FloatArray:
    """p_i for each site, (N,): as the settings have it, or as it is known from past rounds."""
    known = settings.straggler_prob
    if known is None:
        return reliability.straggler_prob
    return checks.straggler_prob(known, len(reliability.rounds))


def rehearsed_absences(settings: Settings, commit: Commit, num_rounds: int) -> BoolArray | None:
    """Who is asked in each round, (rounds, N), if absences are rehearsed."""
    model = settings.stragglers
    if model is None:
        return None
    rng = stream(settings.seed, "stragglers", 0)
    return model.answered(num_rounds, len(commit.members), rng=rng)
