"""What becomes of a client's own part of the gradient while it is absent, before anything is drawn.

Client i's own part is G_i, the gradient summed over the examples that it owns. Of an absent client
nothing arrives, and the error of its part is |G_i|^2. If it has shared some, their holders answer
for them: what is missing then is the private examples and its own share of the shared ones, and
what arrives is noisy, since holders are absent, too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import FloatArray
from fedcommons.stragglers import odds
from fedcommons.theory.expected_variance import Geometry


def gain_when_absent(
    counts: npt.ArrayLike,
    offered: npt.ArrayLike,
    copies: int,
    geometry: Geometry,
    *,
    straggler_prob: npt.ArrayLike,
) -> FloatArray:
    """How much of the expected error of its own part goes away by what each client shares: (N,).

    1 - E[|G^_i - G_i|^2 | i is absent] / E|G_i|^2 under the equal split, with G^_i what of the
    coded sum comes from the client's examples. Negative where the holders of its examples are so
    unreliable that they add more noise than they bring. The expectation is over stragglers,
    randomised sharing and the rounding of masks. 0 for a client without examples.

    Args:
        counts: (N, L) how many examples of each class each owns.
        offered: (N, L) how many of these it shares.
    """
    counts = checks.finite("counts", counts, ndim=2)
    offered = checks.finite("offered", offered, shape=counts.shape)
    N = len(counts)
    d = checks.copies(copies, N)
    alone = geometry.square(counts, counts, counts)
    if not d:
        return np.zeros(N)
    q, kept = d / (N - 1), 1 / (d + 1)
    fraction = offered - np.floor(offered)
    rounding = fraction * (1 - fraction)
    # Of a shared example 1 - kept arrives on average, of a private one nothing.
    lost = counts - (1 - kept) * offered
    squares = counts - (1 - kept**2) * offered
    missing = geometry.square(lost, squares - (1 - kept) ** 2 * rounding, squares)
    # What one other client has of them: every example with probability q, with the share `kept`.
    of_one = geometry.square(
        kept * q * offered, (kept * q) ** 2 * (offered - rounding), kept**2 * q * offered
    )
    r = odds(straggler_prob, N)
    error = missing + (r.sum() - r) * of_one
    return np.where(alone > 0, 1 - error / np.where(alone > 0, alone, 1), 0.0)


__all__ = ["gain_when_absent"]


def __dir__() -> list[str]:
    return __all__
