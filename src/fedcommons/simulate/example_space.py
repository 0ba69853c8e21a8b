"""The fast engine: softmax regression in example space, all curves of a run at once.

From zero weights the model is always X^T A with one coefficient per example and class, so a run
needs the products of its M training examples with each other and with the test set once. After
that a round is a small product (training scores) and a large one (test scores) for all curves
together. Products and sums over examples are float32, sums of these float64. Axes inside: (class,
curve, example), so that the classes of a score lie in separate planes and the largest is found by
elementwise maxima.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.datasets import Dataset
from fedcommons.estimators import ESTIMATORS, Arrivals, SecondMoment
from fedcommons.simulate import draws, memory
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.measures import Measures
from fedcommons.simulate.result import THEORY, RunResult, nothing_measured
from fedcommons.simulate.scoring import Evaluation, Scorer
from fedcommons.simulate.theory_columns import TheoryColumns

Float32 = npt.NDArray[np.float32]
Value = TypeVar("Value")
ROUNDS_AT_ONCE = 17  # whose statistics are computed together: large products


def needed_bytes(
    n_curves: int, *, n_clients: int, n_examples: int, n_classes: int, n_rounds: int
) -> int:
    """What a run's large arrays take, at least: scalar products, shares, weights, residuals."""
    of_pair = 4 + 8 + 4  # products of inputs, of gradients, and on the way to them
    of_round = 8 + 4  # a weight as it is computed, and as it is kept
    of_class = 4 * (6 + min(n_rounds, ROUNDS_AT_ONCE))
    of_example = 8 * n_clients + of_round * n_rounds + of_class * n_classes
    return n_examples * (of_pair * n_examples + n_curves * of_example)


def simulate_run(
    dataset: Dataset,
    test: Evaluation,
    curves: Sequence[Curve],
    *,
    n_clients: int,
    class_size: int | None,
    n_rounds: int,
    seed: int,
    run: int,
    theory_for: frozenset[Curve] = frozenset(),
    measures: Measures | None = None,
) -> RunResult:
    """Train every curve of one run."""
    data = draws.training_set(dataset, class_size, seed=seed, run=run)
    G = data.inputs @ data.inputs.T + 1
    C, M, L, T = len(curves), len(data.labels), dataset.n_classes, n_rounds
    shared = draws.share_all(curves, data, n_clients, seed=seed, run=run)
    probs = [c.straggler_prob for c in curves]
    absences = [(c.stragglers, c.mean_absence, c.straggler_prob) for c in curves]
    records = [id(s) for s in shared]  # one for all curves that share alike
    codes = list(zip(records, (c.code for c in curves), probs, strict=True))
    shares = np.stack(
        _once_each(
            codes,
            lambda k: draws.shares(curves[k], shared[k].placement, data.products).toarray(),
        )
    )
    answered = np.stack(
        _once_each(absences, lambda k: draws.answered(curves[k], T, n_clients, seed=seed, run=run)),
        axis=1,
    )
    fresh, remembered, moves = _weights(curves, answered, shares.sum(axis=2))
    # What each example's gradient counts in each round: sum_i u_i b_ij, (T, C, M).
    weight = (fresh.transpose(1, 0, 2) @ shares).transpose(1, 0, 2).astype(np.float32, order="C")
    moments = [
        ESTIMATORS[c.estimator].second_moment(np.full(n_clients, c.straggler_prob)) for c in curves
    ]
    alpha = np.array([np.nan if m is None else m.alpha for m in moments])
    variances = _Variances(curves, shares, moments, G)
    means = _Means(curves, shares, moments, G)
    steps = np.array([c.learning_rate for c in curves]) / M
    decays = np.array([c.decay for c in curves])
    memories = [
        memory.Memory(
            group,
            warm=np.array([c.warm for c in curves]),
            shares=shares,
            moments=moments,
            answered=answered,
            weight=remembered,
            moves=moves,
            G=G,
            n_classes=L,
        )
        for group in memory.by_placement(curves, shares)
    ]
    asked = [k for k, curve in enumerate(curves) if curve in theory_for]
    theory = TheoryColumns(curves, shared, asked, data.labels, G) if asked else None

    A, scores = (np.zeros((L, C, M), np.float32) for _ in range(2))  # scores: of training, A @ G
    Z, full, coefficients, through = (np.empty((L, C, M), np.float32) for _ in range(4))
    recent = np.empty((C, min(T, ROUNDS_AT_ONCE), L, M), np.float32)  # rounds' residuals
    correct = np.empty((C, T + 1), np.int32)
    moment, norm2, projection = (np.empty((C, T)) for _ in range(3))
    variance, middle = np.zeros((C, T)), np.empty((C, T))
    finite = np.ones((C, T + 1), np.bool_)
    scorer = Scorer(data.inputs, test, correct)
    scorer.add(A)
    measured = measures.nothing(C) if measures else nothing_measured()

    def measure(t: int) -> None:
        if measures and t in measures.rounds:
            at = measures.rounds.index(t)
            measured[0][:, at], measured[1][:, at] = measures.of(scorer.all_scores(A))

    measure(0)
    for t in range(T):
        _residuals(scores, data.labels, out=Z)
        place = t % ROUNDS_AT_ONCE
        recent[:, place] = Z.transpose(1, 0, 2)
        np.matmul(Z.reshape(-1, M), G, out=full.reshape(-1, M))  # the full gradient
        norm2[:, t] = middle[:, t] = _dots(Z, full)
        np.multiply(Z, weight[t], out=coefficients)
        for k in means.curves:
            middle[k, t] = means.of(k, Z[:, k], memories)
        for m in memories:
            contribution, variance[m.curves, t] = m.step(t, recent[m.curves, place])
            coefficients[:, m.curves] += contribution.transpose(1, 0, 2)
        np.matmul(coefficients.reshape(-1, M), G, out=through.reshape(-1, M))
        moment[:, t] = _dots(coefficients, through)
        projection[:, t] = _dots(coefficients, full) / norm2[:, t]
        step = (steps * decays**t).astype(np.float32)[:, None]
        coefficients *= step
        A -= coefficients
        through *= step
        scores -= through
        finite[:, t + 1] = _finite(A) & _finite(scores)
        scorer.add(A)
        measure(t + 1)
        if place + 1 == ROUNDS_AT_ONCE or t + 1 == T:
            some = recent[:, : place + 1]
            variance[:, t - place : t + 1] += variances.at(some)
            if theory is not None:
                theory.add(some)
    scorer.flush()
    correct[~finite] = -1
    het = np.array(
        _once_each(records, lambda k: draws.heterogeneity_of(shared[k], data.groups, curves[k]))
    )
    exact = variance + alpha[:, None] * middle
    columns = theory.columns(variance[asked]) if theory else np.empty((0, T, len(THEORY)))
    return RunResult(correct, moment, exact, norm2, projection, het, columns, *measured)


def _once_each(keys: Sequence[Hashable], value: Callable[[int], Value]) -> list[Value]:
    """value(k) for every place k, computed once for all places with the same key."""
    known: dict[Hashable, Value] = {}
    for k, key in enumerate(keys):
        if key not in known:
            known[key] = value(k)
    return [known[key] for key in keys]


def _weights(
    curves: Sequence[Curve], answered: BoolArray, W: FloatArray
) -> tuple[FloatArray, FloatArray, dict[int, FloatArray]]:
    """u and v of every round and curve, (T, C, N) each, and by curve how far its memory moves."""
    fresh, remembered = np.empty(answered.shape), np.empty(answered.shape)
    moves = {}
    for k, curve in enumerate(curves):
        estimator = ESTIMATORS[curve.estimator]
        arrivals = Arrivals.now_or_never(answered[:, k]).from_the_start(W[k], warm=curve.warm)
        weights = estimator.weigh(arrivals, np.full(answered.shape[-1], curve.straggler_prob))
        fresh[:, k], remembered[:, k] = weights.fresh, weights.remembered
        if estimator.moves is not None:
            moves[k] = estimator.moves(arrivals)
    return fresh, remembered, moves


class _Variances:
    """sum_i beta_i |c_i f_i|^2 of the curves without memory: a quadratic form in the residuals.

    Curves with the same shares and clients that are alike in beta and c have the same form.
    """

    def __init__(
        self,
        curves: Sequence[Curve],
        shares: FloatArray,
        moments: Sequence[SecondMoment | None],
        G: Float32,
    ) -> None:
        known: dict[tuple[bytes, bytes], Float32] = {}
        self.forms: list[tuple[int, float, Float32]] = []
        for k, (curve, moment) in enumerate(zip(curves, moments, strict=True)):
            if moment is None or ESTIMATORS[curve.estimator].remembers:
                continue
            beta = moment.beta if moment.noise is None else moment.beta * moment.noise[0] ** 2
            scale = float(beta[0])
            if not beta.any():
                continue
            unlike = b"" if (beta == scale).all() else beta.tobytes()
            key = (shares[k].tobytes(), unlike)
            if key not in known:
                b = shares[k].astype(np.float32)
                scaled = b * beta[:, None].astype(np.float32) if unlike else b
                known[key] = (b.T @ scaled) * G
            self.forms.append((k, 1.0 if unlike else scale, known[key]))

    def at(self, Z: Float32) -> FloatArray:
        """For residuals (C, rounds, L, M): (C, rounds)."""
        values = np.zeros(Z.shape[:2])
        for k, scale, form in self.forms:
            through = (Z[k].reshape(-1, len(form)) @ form).reshape(Z[k].shape)
            values[k] = scale * np.einsum("tlm,tlm->tl", Z[k], through).sum(1, dtype=np.float64)
        return values


class _Means:
    """|sum_i a_i f_i + b_i h_i|^2 of the curves where that is not the full gradient's."""

    def __init__(
        self,
        curves: Sequence[Curve],
        shares: FloatArray,
        moments: Sequence[SecondMoment | None],
        G: Float32,
    ) -> None:
        self.G = G
        self.curves: list[int] = []
        self.weights: dict[int, tuple[Float32, Float32 | None]] = {}
        for k, (curve, moment) in enumerate(zip(curves, moments, strict=True)):
            if moment is None or moment.mean is None:
                continue
            a, b = moment.mean
            remembers = ESTIMATORS[curve.estimator].remembers
            self.curves.append(k)
            self.weights[k] = (
                (a @ shares[k]).astype(np.float32),
                b.astype(np.float32) if remembers else None,
            )

    def of(self, k: int, Z: Float32, memories: Sequence[memory.Memory]) -> float:
        """For the residuals (L, M) of a curve, before its memory moves."""
        fresh, remembered = self.weights[k]
        coefficients = Z * fresh
        if remembered is not None:
            holder = next(m for m in memories if k in m.curves)
            coefficients = coefficients + holder.weighted(k, remembered, Z)
        return float(np.einsum("lm,lm->", coefficients, coefficients @ self.G))


def _residuals(scores: Float32, labels: IntArray, out: Float32) -> None:
    """softmax(scores) - onehot(labels) over the first axis: (L, C, M)."""
    np.subtract(scores, scores.max(axis=0), out=out)
    np.exp(out, out=out)
    out /= out.sum(axis=0)
    out[labels, :, np.arange(len(labels))] -= 1


def _finite(a: Float32) -> BoolArray:
    """Whether all of a curve's (class, example) planes is finite: (C,)."""
    return np.asarray(np.isfinite(a).all(axis=(0, 2)))


def _dots(a: Float32, b: Float32) -> FloatArray:
    """The scalar product of each curve's (class, example) planes: (C,)."""
    return np.einsum("lcm,lcm->lc", a, b).sum(axis=0, dtype=np.float64)
