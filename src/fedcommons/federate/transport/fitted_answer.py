"""A site's answer from the part of its examples that fits into the time that it is given.

The answer stands for all that it holds: h + scale (g - r), with g the gradient of a chunk now, r
what is remembered of it and h the sum over all chunks (`fedcommons.work`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons import corrections, work
from fedcommons.federate.protocol.absences import Absences, of_anchors
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.model_schema import ModelSchema, NamedArrays
from fedcommons.federate.protocol.refusals import FitsRefused
from fedcommons.federate.site import chunk_memory, questions
from fedcommons.federate.site.batch_order import chunk_order
from fedcommons.federate.site.chunk_memory import ChunkMemory
from fedcommons.federate.site.site import Site
from fedcommons.federate.transport import coded_answer
from fedcommons.federate.transport.coded_answer import Train
from fedcommons.federate.transport.corrections_answer import Correcting
from fedcommons.federate.transport.weighted_examples import WeightedExamples

WORKED = "worked"  # seconds
clock: Callable[[], float] = time.perf_counter


@dataclass(frozen=True, slots=True)
class FittedAnswer:
    """The answer, how many chunks there are, and what it says beside.

    Attributes:
        fields: how long it took; the chunks' anchors, if the question asks for them.
        correction: of absent owners, if there is any.
    """

    answer: NamedArrays
    n_chunks: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    correction: NamedArrays | None = None


def answer(
    site: Site,
    commit: Commit,
    request: Mapping[str, Any],
    model: NamedArrays,
    digest: str,
    examples: WeightedExamples,
    train: Train,
) -> FittedAnswer:
    """The answer to a question that says how long the site has ("seconds") and in which training.

    In round 0, the warm start, every chunk is worked on, however long that takes. Where holders
    correct what is remembered of absent owners, chunks are of the site's own examples alone, and
    `digest` names the model.
    """
    if examples.one_step or examples.local_steps > 1 or examples.batch_size:
        raise FitsRefused("work = fits goes with one step on all examples and plain shares alone")
    start, doing, limit = clock(), work.parse(str(request["work"])), float(request["seconds"])
    if not doing.in_chunks or not limit > 0:
        raise FitsRefused(f"there is no work of the kind {doing.kind} in {limit:g} s")
    seconds = work.time_to_work(limit, request.get("link-seconds"))
    schema, held, least = ModelSchema.of(model), site.holdings(commit), site.policy.min_examples
    key, n_own = chunk_memory.key_of(commit, site.place(commit), held), len(held.own)
    training, absences = str(request["training"]), Absences.of(request)
    mine = examples if absences is None else _owned(site, commit, examples)
    memory = ChunkMemory(
        *(site.store.folder, training, key),
        *(len(mine), schema.n_params, schema.precision),
        chunk_order(site, key, n_own, len(mine)),
    )
    correcting = None
    if absences is not None:
        about = (commit, absences, memory, model, digest, examples, train, training)
        correcting = Correcting(site, *about)
    beside = 0 if correcting is None else correcting.outstanding
    anchor = None if correcting is None else digest

    def work_on(chunk: int) -> npt.NDArray[Any]:
        return _work_on(site, memory, chunk, n_own, model, schema, mine, train, anchor)

    memory.cut(seconds, n_own, least, beside)
    if int(request["round"]) == 0:
        if memory.notes.pace is None:
            work_on(0)
            memory.cut(seconds, n_own, least)
        for chunk in range(memory.notes.number):
            work_on(chunk)
        found = schema.model(memory.sum(), model)
    else:
        n, chunk = memory.notes.number, memory.notes.turn
        if doing.kind == "sagachunk" and examples.rng is not None:
            chunk = int(examples.rng.integers(n))
        before, h = memory.last(chunk).astype(np.float64), memory.sum()
        scale = doing.scale(len(mine), len(memory.places(chunk)), n)
        found = schema.model(h + scale * (work_on(chunk) - before), model)
    if correcting is None:
        return FittedAnswer(found, memory.notes.number, {WORKED: clock() - start})
    correcting.compute(corrections.per_job(beside, memory.notes.number), int(request["question"]))
    fields = {**of_anchors(memory.anchors()), WORKED: clock() - start}
    return FittedAnswer(found, memory.notes.number, fields, correcting.correction())


def _owned(site: Site, commit: Commit, examples: WeightedExamples) -> WeightedExamples:
    """The site's own examples, in full, and those that it has in the place of a missing owner."""
    owned = np.flatnonzero(site.holdings(commit).placement.owner == site.place(commit))
    x, y = examples.x[owned], examples.y[owned]
    return replace(examples, x=x, y=y, shares=np.ones(len(owned)))


def _work_on(
    site: Site,
    memory: ChunkMemory,
    chunk: int,
    n_own: int,
    model: NamedArrays,
    schema: ModelSchema,
    examples: WeightedExamples,
    train: Train,
    anchor: str | None,
) -> npt.NDArray[Any]:
    """The gradient of a chunk, which is remembered as it is rounded: (P,)."""
    places = memory.places(chunk)
    shares = examples.shares[places]
    questions.check_examples(site.policy, shares, int((places < n_own).sum()))
    part = replace(
        examples, x=examples.x[places], y=examples.y[places], shares=shares, one_step=True
    )
    start = clock()
    found = coded_answer.answer(model, part, train)
    took = clock() - start
    gradient = np.asarray(schema.vector(found), memory.dtype)
    memory.remember(chunk, gradient, took, anchor=anchor)
    return gradient.astype(np.float64)
