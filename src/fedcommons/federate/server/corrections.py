"""Corrections by holders of absent owners' examples, as the server asks for them and takes them.

It says with each question who is absent and at which models what is remembered of these was
computed, and adds what comes to the estimate of that round. Nothing of it is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedcommons import bounds, shown
from fedcommons.checks import FloatArray
from fedcommons.errors import FederationError
from fedcommons.federate.protocol.absences import Absences, Anchors
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.holders import copies_of, delivered
from fedcommons.federate.protocol.model_schema import ModelSchema
from fedcommons.federate.server.answer_files import AnswerFiles
from fedcommons.federate.server.round_answers import RoundAnswers

logger = shown.logger(__name__)

MOST_VECTORS = 64  # a site's chunks, and as many models


def check(commit: Commit, schema: ModelSchema) -> None:
    """Refuse to begin where nothing is shared; say how much sites keep."""
    if not commit.pairs:
        raise FederationError(
            "correct must be false where nothing is shared: no site has copies of another's "
            "examples"
        )
    n_owners = sum(commit.active) - 1
    n_bytes = (2 * MOST_VECTORS + 2 * n_owners) * schema.n_params * schema.precision.itemsize
    logger.info(
        "holders correct what is remembered of absent owners: each site keeps up to %d chunks, %d "
        "models and two vectors of each owner, %.1f MB of disk, and at most 4 GiB of chunks and of "
        "models",
        *(MOST_VECTORS, MOST_VECTORS, n_bytes / 1e6),
    )


def absences(
    commit: Commit, asked: Sequence[int], known: Mapping[str, Anchors], round_number: int
) -> Absences:
    """Who is absent in a round, of whom something is remembered; nobody in a warm start."""
    absent = set(np.flatnonzero(commit.active).tolist()) - set(asked)
    of_members = [known.get(member.identity) for member in commit.members]
    anchors = {
        place: one
        for place, one in enumerate(of_members)
        if place in absent and one is not None and round_number
    }
    needed = dict.fromkeys(x for one in of_members for x in one or () if x)
    return Absences(asked, anchors, list(needed))


def told(commit: Commit, absences: Absences) -> Callable[[int], dict[str, Any]]:
    """The fields of each site's question: of those owners alone whose examples it holds."""
    sent = delivered(commit)

    def fields(place: int) -> dict[str, Any]:
        of_held = {owner: one for owner, one in absences.anchors.items() if sent[owner, place]}
        return replace(absences, anchors=of_held).fields()

    return fields


def stands_for(commit: Commit, found: RoundAnswers) -> FloatArray:
    """How many examples of absent owners each site's correction stands for, at most: (N,)."""
    n = np.zeros(len(commit.members))
    there = np.array(commit.active)
    there[sorted(found.absent)] = False
    for owner in found.absent:
        copies = copies_of(commit.record, owner)
        held = np.where(there, copies.held, 0)
        n += copies.n * held / max(1, held.sum())
    return n


def bound(
    commit: Commit,
    found: RoundAnswers,
    files: AnswerFiles,
    last: Mapping[str, Sequence[float]],
    factor: float,
) -> None:
    """Clip corrections as answers are, by the examples that they stand for.

    `last` has the sizes of each site's last answers, this round's among them.
    """
    if not factor or not found.corrections:
        return
    known = [list(last.get(member.identity, [])) for member in commit.members]
    sizes = bounds.Sizes(np.array([x + [np.nan] * (bounds.LAST - len(x)) for x in known]))
    norms = np.array([found.correction_norms.get(i, 0.0) for i in range(len(known))])
    factors = sizes.factors(bounds.per_unit(norms, stands_for(commit, found)), factor)
    for place, row in found.corrections.items():
        if factors[place] < 1:
            found.corrections[place] = files.scaled(row, float(factors[place]))


def add(estimate: FloatArray, commit: Commit, files: AnswerFiles, found: RoundAnswers) -> None:
    """Add what holders correct to the estimate, (P,), in the order of the roster."""
    rows = [found.corrections[i] for i in sorted(found.corrections) if found.rows[i] is not None]
    if found.absent:
        absent = ", ".join(commit.members[place].site for place in sorted(found.absent))
        logger.info("%d sites correct what is remembered of %s", len(rows), absent)
    for start, stop in files.steps() if rows else ():
        for row in rows:
            estimate[start:stop] += files.read(row, start, stop)
