"""In which order a site takes its examples: nobody else can tell, and nobody can choose.

The order follows from a secret of the site and from all that the question says. So the same
question has the same answer, also after a restart, and another one (a batch of one example more,
say) is about examples that are drawn independently: a difference of answers isolates nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcommons.checks import IntArray
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.site.participant import Participant
from fedcommons.streams import stream


def chunk_order(site: Participant, held: str, n_own: int, n_examples: int) -> IntArray:
    """(examples,) the order in which what a site holds is cut into chunks, its own first.

    It is another one for other examples or shares, by the key `held`, and nothing that the server
    may choose beside that changes it. Were chunks cut in the order of rows, what is withdrawn would
    move all rows behind it, and differences of chunks before and after would show single ones.
    """
    if site.is_simulated:
        return np.arange(n_examples)
    whole = hashlib.blake2b(f"chunks {held}".encode(), key=site.store.keyring.batch_secret)
    rng = np.random.default_rng(np.frombuffer(whole.digest(), np.uint32).tolist())
    received = n_own + rng.permutation(n_examples - n_own)
    return np.concatenate([rng.permutation(n_own), received])


def batch_order(
    site: Participant,
    commit: Commit,
    round_number: int,
    *,
    model: bytes,
    asked: Mapping[str, Any],
) -> np.random.Generator:
    """The random stream of the batches of one answer.

    Args:
        model: a digest of the model.
        asked: whatever else the server chose: steps, size, what it tells the training function.
    """
    if site.is_simulated:  # by the exchange's seed, so that a run can be repeated
        return stream(commit.seed, "batches", site.name, round_number)
    whole = hashlib.blake2b(key=site.store.keyring.batch_secret)
    about = sorted((name, repr(value)) for name, value in asked.items())
    whole.update(repr((commit.epoch, round_number, model, about)).encode())
    return np.random.default_rng(np.frombuffer(whole.digest(), np.uint32).tolist())
