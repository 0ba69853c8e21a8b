"""How long a study will take, from a few short blocks of some of its curves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from fedcommons.simulate import runner
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Study

FEW = 2  # rounds of the shortest block that is timed
FEW_CURVES, MORE_CURVES = 4, 4  # of the smallest sample, and how many times more the next has
# By how much a block with more rounds must take longer, to tell what a round takes:
STANDS_OUT = 1.5  # times
LONG_ENOUGH = 0.5  # seconds, beside which what else the machine does is little


def seconds(study: Study, n_blocks: int, n_workers: int, *, at_most: float) -> float:
    """Seconds for so many blocks; a bound on them, from a first round, if it is below `at_most`.

    Of many curves some stand for all: as many as take a while for one round. The first block also
    pays for what is done once (imports, caches), so what a round takes is the difference of two
    others: of `FEW` rounds, and of as many as it takes to stand out.
    """
    if n_blocks == 0:
        return 0.0
    for sample, times in _samples(study):
        first = _block_seconds(sample, 1)
        in_turn = -(-n_blocks // n_workers) * times
        if first >= LONG_ENOUGH:
            break
    bound = first * study.rounds * in_turn
    if bound < at_most:
        return bound
    rounds = min(FEW, study.rounds)
    few = more = _block_seconds(sample, rounds)
    while rounds < study.rounds and more < max(STANDS_OUT * few, few + LONG_ENOUGH):
        rounds = min(3 * rounds, study.rounds)
        more = _block_seconds(sample, rounds)
    if rounds == study.rounds:
        return more * in_turn
    per_round = (more - few) / (rounds - FEW)
    return (more + (study.rounds - rounds) * per_round) * in_turn


def _samples(study: Study) -> Iterator[tuple[Study, float]]:
    """Larger and larger samples of the study's curves, and how much more work the study's block is.

    They are evenly spread over the kinds of work that curves are; the last is the study.
    """
    curves = sorted(study.curves, key=_work)
    n = FEW_CURVES
    while n < len(curves):
        chosen = {curves[k * len(curves) // n] for k in range(n)}
        sample = study.only_curves(chosen)
        whole, part = (len(s.curves) * s.block_size for s in (study, sample))
        yield sample, whole / part
        n *= MORE_CURVES
    yield study, 1.0


def _work(curve: Curve) -> tuple[str, str, int, int, str, str]:
    """What decides how long a curve takes."""
    of_model = (curve.model, curve.algorithm, curve.local_steps, curve.batch_size or 0)
    return (*of_model, curve.estimator, curve.code)


def _block_seconds(study: Study, rounds: int) -> float:
    runner.study_data(study)  # loaded once, and not counted
    start = time.perf_counter()
    runner.compute_block(_of_length(study, rounds), 0)
    return time.perf_counter() - start


def _of_length(study: Study, rounds: int) -> Study:
    """The study with so many rounds; under a clock with that part of its seconds."""
    if study.clock is None:
        return replace(study, rounds=rounds)
    seconds = study.clock.seconds * rounds / study.rounds
    return replace(study, rounds=rounds, clock=replace(study.clock, seconds=seconds))


def in_words(seconds: float) -> str:
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
