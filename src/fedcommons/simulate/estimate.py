"""How long a study will take, from a few short blocks of it."""

from __future__ import annotations

import time
from dataclasses import replace

from fedcommons.simulate import runner
from fedcommons.simulate.studies import Study

FEW = 2  # rounds of the shortest block that is timed
# By how much a block with more rounds must take longer, to tell what a round takes:
STANDS_OUT = 1.5  # times
LONG_ENOUGH = 0.5  # seconds, beside which what else the machine does is little


def seconds(study: Study, n_blocks: int, n_workers: int, *, at_most: float) -> float:
    """Seconds for so many blocks; a bound on them, from a first round, if it is below `at_most`.

    The first block also pays for what is done once (imports, caches), so what a round takes is the
    difference of two others: of `FEW` rounds, and of as many as it takes to stand out.
    """
    if n_blocks == 0:
        return 0.0
    in_turn = -(-n_blocks // n_workers)
    bound = _block_seconds(study, 1) * study.rounds * in_turn
    if bound < at_most:
        return bound
    rounds = min(FEW, study.rounds)
    few = more = _block_seconds(study, rounds)
    while rounds < study.rounds and more < max(STANDS_OUT * few, few + LONG_ENOUGH):
        rounds = min(3 * rounds, study.rounds)
        more = _block_seconds(study, rounds)
    if rounds == study.rounds:
        return more * in_turn
    per_round = (more - few) / (rounds - FEW)
    return (more + (study.rounds - rounds) * per_round) * in_turn


def _block_seconds(study: Study, rounds: int) -> float:
    runner.study_data(study)  # loaded once, and not counted
    start = time.perf_counter()
    runner.compute_block(replace(study, rounds=rounds), 0)
    return time.perf_counter() - start


def in_words(seconds: float) -> str:
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
