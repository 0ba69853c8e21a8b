"""The exact second moment of the estimate, for a given placement and given gradients.

With independent stragglers, E|g^|^2 = |sum_i f_i|^2 + sum_i p_i/(1-p_i) |f_i|^2: no sampling is
needed. The first term is |g|^2, the second the variance.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons import checks
from fedcommons.checks import FloatArray
from fedcommons.errors import ArgumentError
from fedcommons.estimators import Estimator


def odds(straggler_prob: npt.ArrayLike, n_clients: int) -> FloatArray:
    """r_i = p_i / (1 - p_i): shape (N,)."""
    p = checks.straggler_prob(straggler_prob, n_clients)
    return p / (1 - p)


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


def moment_coefficients(
    estimator: Estimator, straggler_prob: npt.ArrayLike, n_clients: int
) -> tuple[float, FloatArray]:
    """(alpha, beta) such that E|g^|^2 = alpha |g|^2 + sum_i beta_i |f_i|^2.

    For memory, f_i - h_i takes the place of f_i. The average over responders has such a form only
    if all p_i are equal.
    """
    p = checks.straggler_prob(straggler_prob, n_clients)
    if estimator.needs_everybody:
        return 1.0, np.zeros(n_clients)
    if estimator.unbiased:
        return 1.0, odds(p, n_clients)
    if np.ptp(p) > 0:
        raise ArgumentError(
            f"straggler_prob must be the same for all clients for {estimator.name}, "
            f"got {p.min():g} to {p.max():g}"
        )
    k = np.arange(1, n_clients + 1)  # how many answer
    chance = _binomial(n_clients, 1 - p[0])
    own = float((chance * n_clients / k).sum())  # E[u_i^2]
    pair = 0.0  # E[u_i u_k], i != k
    if n_clients > 1:
        pair = float((chance * n_clients * (k - 1) / (k * (n_clients - 1))).sum())
    return pair, np.full(n_clients, own - pair)


def _binomial(n: int, q: float) -> FloatArray:
    """The probabilities of 1, ..., n successes in n trials, q > 0."""
    # Slow to import, and only this needs it; scipy.stats would be slower still.
    from scipy.special import gammaln, xlog1py, xlogy

    k = np.arange(1, n + 1)
    choices = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.exp(choices + xlogy(k, q) + xlog1py(n - k, -q))


__all__ = [
    "moment_coefficients",
    "odds",
    "second_moment",
    "variance",
    "variance_from_products",
]


def __dir__() -> list[str]:
    return __all__
