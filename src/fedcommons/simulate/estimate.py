"""How long a study will take, from a block of one round and one of three."""

from __future__ import annotations

import time
from dataclasses import replace

from fedcommons.simulate import runner
from fedcommons.simulate.studies import Study


def seconds(study: Study, n_blocks: int, n_workers: int, *, at_most: float) -> float:
    """Seconds for so many blocks; a bound on them, from a first round, if it is below `at_most`."""
    if n_blocks == 0:
        return 0.0
    in_turn = -(-n_blocks // n_workers)
    first = _block_seconds(study, 1)
    bound = first * study.rounds * in_turn
    if bound < at_most or study.rounds <= 3:
        return bound
    per_round = max(0.0, _block_seconds(study, 3) - first) / 2
    return (first + (study.rounds - 1) * per_round) * in_turn


def _block_seconds(study: Study, rounds: int) -> float:
    runner.study_data(study)  # loaded once, and not counted
    start = time.perf_counter()
    runner.compute_block(replace(study, rounds=rounds), 0)
    return time.perf_counter() - start


def in_words(seconds: float) -> str:
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
