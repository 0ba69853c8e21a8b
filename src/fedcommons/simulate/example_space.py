"""The fast engine: softmax regression in example space, all curves of a run at once.

From zero weights the model is always X^T A with one coefficient per example and class, so a run
needs the products of its M training examples with each other and with the test set once. After
that a round is a small product (training scores) and a large one (test scores) for all curves
together. Products and sums over examples are float32, sums of these float64. Axes inside: (class,
curve, example), so that the classes of a score lie in separate planes and the largest is found by
elementwise maxima.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons import estimators
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.datasets import Dataset
from fedcommons.simulate import draws
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.result import THEORY, RunResult
from fedcommons.simulate.scoring import Evaluation, Scorer
from fedcommons.simulate.theory_columns import TheoryColumns
from fedcommons.theory import second_moment

Float32 = npt.NDArray[np.float32]


class _Memory:
    """One curve that remembers: the last answer of each client, on the examples that it holds.

    Arrays have the axes (client, class, held example), padded to the client that holds most.
    """

    def __init__(
        self,
        shares: FloatArray,
        beta: FloatArray,
        answered: BoolArray,
        remembered_weight: FloatArray,
        G: Float32,
        n_classes: int,
    ) -> None:
        N, M = shares.shape
        counts = np.count_nonzero(shares, axis=1)
        width = max(1, int(counts.max()))
        filled = np.arange(width) < counts[:, None]
        self.held = np.zeros((N, width), np.int64)
        self.held[filled] = np.nonzero(shares)[1]
        self.share = np.zeros((N, 1, width), np.float32)
        self.share[:, 0][filled] = shares[shares != 0]
        self.forms = G[self.held[:, :, None], self.held[:, None, :]]
        self.to_examples = csr_array(
            (filled.ravel().astype(np.float32), (self.held.ravel(), np.arange(N * width))),
            shape=(M, N * width),
        )
        self.beta, self.answered = beta, answered
        self.remembered_weight = remembered_weight.astype(np.float32)
        self.last = np.zeros((N, n_classes, width), np.float32)

    def answers(self, Z: Float32) -> Float32:
        """Every client's answer as coefficients, from residuals (L, M)."""
        return self.share * Z[:, self.held].transpose(1, 0, 2)

    def step(self, t: int, Z: Float32) -> tuple[Float32, float]:
        """sum_i v_i h_i as coefficients (L, M), and sum_i beta_i |f_i - h_i|^2; then remember."""
        fresh = self.answers(Z)
        change = fresh - self.last
        norms2 = ((change @ self.forms) * change).sum(axis=(1, 2), dtype=np.float64)
        weighted = self.remembered_weight[t][:, None, None] * self.last
        flat = weighted.transpose(0, 2, 1).reshape(-1, Z.shape[0])
        contribution = np.asarray(self.to_examples @ flat).T
        who = self.answered[t]
        self.last[who] = fresh[who]
        return contribution, float(self.beta @ norms2)


def simulate_run(
    dataset: Dataset,
    test: Evaluation,
    curves: Sequence[Curve],
    *,
    n_clients: int,
    class_size: int,
    n_rounds: int,
    seed: int,
    run: int,
    theory_for: frozenset[Curve] = frozenset(),
) -> RunResult:
    """Train every curve of one run."""
    data = draws.training_set(dataset, class_size, seed=seed, run=run)
    G = data.inputs @ data.inputs.T + 1
    G_test = data.inputs @ test.inputs
    G_test += 1
    C, M, L, T = len(curves), len(data.labels), dataset.n_classes, n_rounds
    shared = draws.share_all(curves, data.labels, n_clients, seed=seed, run=run)
    shares = np.stack(
        [
            draws.shares(c, s.placement, data.products).toarray()
            for c, s in zip(curves, shared, strict=True)
        ]
    )
    answered = np.stack(
        [draws.answered(c, T, n_clients, seed=seed, run=run) for c in curves], axis=1
    )
    fresh, remembered = _weights(curves, answered)
    # What each example's gradient counts in each round: sum_i u_i b_ij, (T, C, M).
    weight = np.einsum("tcn,cnm->tcm", fresh, shares, optimize=True).astype(np.float32)
    alpha, beta = _coefficients(curves, n_clients)
    variances = _Variances(curves, shares, beta, G)
    steps = np.array([c.learning_rate for c in curves]) / M
    decays = np.array([c.decay for c in curves])
    memories = {
        k: _Memory(shares[k], beta[k], answered[:, k], remembered[:, k], G, L)
        for k, c in enumerate(curves)
        if estimators.ESTIMATORS[c.estimator].remembers
    }
    asked = [k for k, curve in enumerate(curves) if curve in theory_for]
    theory = TheoryColumns(curves, shared, asked, data.labels) if asked else None

    A = np.zeros((L, C, M), np.float32)
    scores = np.zeros((L, C, M), np.float32)  # training scores, A @ G
    correct = np.empty((C, T + 1), np.int32)
    moment, exact, norm2, projection = (np.empty((C, T)) for _ in range(4))
    scorer = Scorer(G_test, test, correct)
    scorer.add(A)
    for t in range(T):
        Z = _residuals(scores, data.labels)
        by_curve = np.ascontiguousarray(Z.transpose(1, 0, 2))  # (C, L, M)
        if t == 0:
            for k, memory in memories.items():
                if curves[k].warm:
                    memory.last = memory.answers(by_curve[k])
        full = (Z.reshape(-1, M) @ G).reshape(Z.shape)  # the full gradient
        norm2[:, t] = _dots(Z, full)
        exact[:, t] = variances.at(by_curve)
        coefficients = Z * weight[t]
        for k, memory in memories.items():
            contribution, exact[k, t] = memory.step(t, by_curve[k])
            coefficients[:, k] += contribution
        through = (coefficients.reshape(-1, M) @ G).reshape(coefficients.shape)
        moment[:, t] = _dots(coefficients, through)
        projection[:, t] = _dots(coefficients, full) / norm2[:, t]
        if theory is not None:
            theory.add(by_curve, G, exact[:, t])
        exact[:, t] += alpha * norm2[:, t]
        step = (steps * decays**t).astype(np.float32)[:, None]
        A -= step * coefficients
        scores -= step * through
        scorer.add(A)
    scorer.flush()
    het = np.array(
        [
            draws.heterogeneity_of(s, data.labels, c.copies)
            for c, s in zip(curves, shared, strict=True)
        ]
    )
    columns = theory.columns() if theory else np.empty((0, T, len(THEORY)))
    return RunResult(correct, moment, exact, norm2, projection, het, columns)


def _weights(curves: Sequence[Curve], answered: BoolArray) -> tuple[FloatArray, FloatArray]:
    """u and v of every round and curve: (T, C, N) each."""
    fresh, remembered = np.empty(answered.shape), np.empty(answered.shape)
    for k, curve in enumerate(curves):
        estimator = estimators.ESTIMATORS[curve.estimator]
        p = np.full(answered.shape[-1], curve.straggler_prob)
        weights = estimator.weigh(answered[:, k], p)
        fresh[:, k], remembered[:, k] = weights.fresh, weights.remembered
    return fresh, remembered


def _coefficients(curves: Sequence[Curve], n_clients: int) -> tuple[FloatArray, FloatArray]:
    """E|g^|^2 = alpha |g|^2 + sum_i beta_i |f_i|^2: (C,) and (C, N)."""
    pairs = [
        second_moment.moment_coefficients(
            estimators.ESTIMATORS[c.estimator], c.straggler_prob, n_clients
        )
        for c in curves
    ]
    return np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])


class _Variances:
    """sum_i beta_i |f_i|^2 of the curves without memory: a quadratic form in the residuals.

    beta is the same for all clients here, so curves with the same shares have the same form.
    """

    def __init__(
        self, curves: Sequence[Curve], shares: FloatArray, beta: FloatArray, G: Float32
    ) -> None:
        self.scale = beta[:, 0].copy()
        groups: dict[bytes, list[int]] = {}
        for k, curve in enumerate(curves):
            if estimators.ESTIMATORS[curve.estimator].remembers:
                self.scale[k] = 0  # has its own variance
            elif self.scale[k]:
                groups.setdefault(shares[k].tobytes(), []).append(k)
        self.order = np.array([k for members in groups.values() for k in members], np.int64)
        self.forms: list[tuple[slice, Float32]] = []
        start = 0
        for members in groups.values():
            b = shares[members[0]].astype(np.float32)
            self.forms.append((slice(start, start + len(members)), (b.T @ b) * G))
            start += len(members)

    def at(self, Z: Float32) -> FloatArray:
        """For residuals (C, L, M): (C,)."""
        z = Z[self.order]  # curves with the same form side by side
        through = np.empty_like(z)
        M = z.shape[2]
        for part, form in self.forms:
            np.matmul(z[part].reshape(-1, M), form, out=through[part].reshape(-1, M))
        through *= z
        values = np.zeros(len(Z))
        values[self.order] = through.sum(axis=2).sum(axis=1, dtype=np.float64)
        return self.scale * values


def _residuals(scores: Float32, labels: IntArray) -> Float32:
    """softmax(scores) - onehot(labels) over the first axis: (L, C, M)."""
    Z = np.exp(scores - scores.max(axis=0))
    Z /= Z.sum(axis=0)
    examples = np.arange(len(labels))
    Z[labels, :, examples] -= 1
    return Z


def _dots(a: Float32, b: Float32) -> FloatArray:
    """The scalar product of each curve's (class, example) planes: (C,)."""
    return np.einsum("lcm,lcm->lc", a, b).sum(axis=0, dtype=np.float64)
