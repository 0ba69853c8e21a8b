"""The exact second moment of the estimate, for a given placement and given gradients.

With independent stragglers, E|g^|^2 = |sum_i f_i|^2 + sum_i p_i/(1-p_i) |f_i|^2: no sampling is
needed. The first term is |g|^2, the second the variance.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons import checks
from fedcommons.stragglers import odds


def variance(
    answers: npt.ArrayLike,
    straggler_prob: npt.ArrayLike,
    *,
    remembered: npt.ArrayLike | None = None,
) -> float:
    """E|g^ - g|^2 of the coded sum, from the clients' answers f, shape (N, P).

    With `remembered` answers h, shape (N, P), that of the memory estimator, in which f_i - h_i
    takes the place of f_i.
    """
    noisy = checks.finite("answers", answers, ndim=2)
    if remembered is not None:
        noisy = noisy - checks.finite("remembered", remembered, shape=noisy.shape)
    return float(odds(straggler_prob, len(noisy)) @ (noisy**2).sum(axis=1))


def second_moment(
    answers: npt.ArrayLike,
    straggler_prob: npt.ArrayLike,
    *,
    remembered: npt.ArrayLike | None = None,
) -> float:
    """E|g^|^2 of the coded sum or, with `remembered` answers, of the memory estimator."""
    full = checks.finite("answers", answers, ndim=2).sum(axis=0)
    return float(full @ full) + variance(answers, straggler_prob, remembered=remembered)


def variance_from_products(
    shares: csr_array, products: npt.ArrayLike, straggler_prob: npt.ArrayLike
) -> float:
    """`variance` of the coded sum in example space: sum_i r_i b_i G b_i^T.

    `shares` is a code, shape (N, M), and `products` the matrix G of the scalar products
    <g_j, g_k>, shape (M, M). For models with many parameters and few examples this is the cheap
    way; for a linear model G needs no gradients at all (`fedcommons.tasks.softmax`).
    """
    shares = csr_array(shares)
    products = checks.products(products, shares.shape[1])
    norms2 = np.asarray(shares.multiply(shares @ products).sum(axis=1)).ravel()
    return float(odds(straggler_prob, shares.shape[0]) @ norms2)
