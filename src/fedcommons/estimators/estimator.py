"""What an estimator is: weights, what it remembers, its second moment, and how it is called.

Most estimators are linear: the estimate is sum_i u_i f_i + sum_i v_i h_i + sum_i w_i l_i. Here f_i
is the answer that client i gave in time, h_i what the server remembers of it, and l_i its answer to
an earlier question that arrives only now. The weights depend on what arrived and on the straggler
probabilities, and on nothing in the answers but one comparison of them with what is remembered, if
an estimator asks for it (`Comparison`, docs/decisions/0009). A late answer counts before it enters
the memory. One that is not linear has a `combine`, and its weights say whose answers it looks at
(docs/decisions/0007).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.estimators.comparison import Comparison

OTHERS_TRIED = 8  # random patterns of the other clients, in `weights_of_one`


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What reaches the server in a round: boolean arrays of shape (..., N).

    Attributes:
        on_time: whose answer to this round's question came in time.
        asked: who was asked; one that still owes an answer to an earlier question is not.
        late: whose answer to an earlier question came now.
        age: how many rounds ago that question was asked; 0 where nothing is late. None if no
            answer is ever late.
        heard: of whom something is remembered already; None for everybody.
        shares: (N,) W_i, the sum of each client's shares; None if all are alike.
        comparison: of the answers of this one round, for estimators that compare; None if unknown.
    """

    on_time: BoolArray
    asked: BoolArray
    late: BoolArray
    age: IntArray | None = None
    heard: BoolArray | None = None
    shares: FloatArray | None = None
    comparison: Comparison | None = None

    @classmethod
    def now_or_never(cls, answered: BoolArray) -> Arrivals:
        """Everybody is asked, and what does not come in time never comes."""
        return cls(answered, np.ones_like(answered), np.zeros_like(answered))

    def from_the_start(self, shares: FloatArray, *, warm: bool) -> Arrivals:
        """The same, (T, N), as those of all rounds from the first on, at clients with these W_i.

        With `warm` everybody was heard before.
        """
        came = np.logical_or.accumulate(self.on_time | self.late)
        before = np.roll(came, 1, axis=0)
        before[:1] = False
        before |= warm
        return replace(self, heard=before, shares=shares)

    def of_round(self, t: int) -> Arrivals:
        """Those of one round, (N,) each, of those of all, (T, N)."""
        age = None if self.age is None else self.age[t]
        heard = None if self.heard is None else self.heard[t]
        return Arrivals(self.on_time[t], self.asked[t], self.late[t], age, heard, self.shares)


@dataclass(frozen=True, slots=True)
class Weights:
    """What each client's answers count: shapes (..., N).

    Attributes:
        fresh: u, for the answers that came in time; 0 for an answer that is not used.
        remembered: v, for the remembered answers.
        late: w, for the answers to earlier questions; None if they only enter the memory.
        back: how far the model goes back to the one that an answer to an earlier question was
            computed at, before the server's rate: it moves by -rate sum_i back_i (x - x_i) besides.
            None if the estimator does not look at these models (the anchors).
    """

    fresh: FloatArray
    remembered: FloatArray
    late: FloatArray | None = None
    back: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class SecondMoment:
    """The form of an estimate's second moment over who answers, given f and h:

        E|g^|^2 = alpha |sum_i a_i f_i + b_i h_i|^2 + sum_i beta_i |c_i f_i + e_i h_i|^2
                  + gamma |sum_i s_i (c_i f_i + e_i h_i)|^2

    Attributes:
        alpha: a number.
        beta: (N,).
        mean: (a, b), of shape (N,) each; None for a = 1 and b = 0, the full gradient.
        noise: (c, e), of shape (N,) each; None for the answers alone, c = 1 and e = 0.
        pairs: (gamma, s), a number and (N,); None where clients answer independently.
    """

    alpha: float
    beta: FloatArray
    mean: tuple[FloatArray, FloatArray] | None = None
    noise: tuple[FloatArray, FloatArray] | None = None
    pairs: tuple[float, FloatArray] | None = None

    def of(self, answers: FloatArray, remembered: FloatArray | None = None) -> float:
        """Its value for answers f and remembered answers h: (N, P) each."""
        h = np.zeros_like(answers) if remembered is None else remembered
        middle, noisy = answers.sum(axis=0), answers
        if self.mean is not None:
            middle = self.mean[0] @ answers + self.mean[1] @ h
        if self.noise is not None:
            noisy = self.noise[0][:, None] * answers + self.noise[1][:, None] * h
        value = self.alpha * (middle @ middle) + self.beta @ (noisy**2).sum(axis=1)
        if self.pairs is not None:
            together = self.pairs[1] @ noisy
            value += self.pairs[0] * (together @ together)
        return float(value)


@dataclass(frozen=True, slots=True)
class Estimator:
    """An estimator of the full gradient.

    Attributes:
        name: how studies and tables call it.
        caption: what it is, for the words beside a figure; may be empty.
        unbiased: whether its mean is the full gradient for every code and all known p_i, if
            stragglers are independent of the past (docs/deviations.md, 11).
        remembers: whether it needs an earlier answer of each client.
        needs_everybody: whether it waits for all answers, whoever straggles.
        needs_p: whether its weights depend on p.
        compares: whether its weights depend on `Arrivals.comparison`.
        anchors: whether it looks at the models that late answers were computed at (`Weights.back`).
        weigh: (what arrived, p) -> weights, all of shape (..., N). p is the probability, given the
            past, that a client's answer does not count in this round: because it straggles, or
            because it is not asked (`asking.missing_prob`).
        moves: what arrived -> how far h moves towards the answer that came, (..., N), from 0 for
            not at all to 1; None if whatever arrives takes the place of h.
        moment: p, (N,) -> its second moment. None if it follows from the weights
            (`second_moment_of`).
        combine: (n, P) -> (P,), what it makes of the n estimates (M/W_i) f_i of the full gradient
            that are looked at; None if it is linear. Parameters do not depend on each other, so
            that it may be given some of them at a time.
    """

    name: str
    caption: str
    unbiased: bool
    remembers: bool
    needs_everybody: bool
    needs_p: bool
    weigh: Callable[[Arrivals, FloatArray], Weights]
    moves: Callable[[Arrivals], FloatArray] | None = None
    moment: Callable[[FloatArray], SecondMoment | None] | None = None
    combine: Callable[[FloatArray], FloatArray] | None = None
    anchors: bool = False
    compares: bool = False

    @property
    def hears_late(self) -> bool:
        """Whether an answer that comes after its round changes anything."""
        one = np.array([False, True])
        arrivals = Arrivals(~one, ~one, one, np.array([0, 1]))
        late = self.weigh(arrivals, np.zeros(2)).late
        return self.remembers or (late is not None and bool(late.any()))

    def second_moment(self, p: FloatArray) -> SecondMoment | None:
        """Its second moment for these p_i, (N,), if nothing is ever late; None if it is not known.

        An estimator without one of its own has the one that follows from its weights, if a
        client's weights depend on that client's own answering alone: then clients are independent.
        """
        if self.moment is not None:
            return self.moment(p)
        if self.combine is not None or self.compares:
            return None
        return _from_weights(self.weigh, p)


def _from_weights(
    weigh: Callable[[Arrivals, FloatArray], Weights], p: FloatArray
) -> SecondMoment | None:
    """With u_i1, v_i1 the weights of a client that answers, and u_i0, v_i0 of one that does not.

    The mean of u_i is (1-p_i) u_i1 + p_i u_i0, likewise v_i's; the variance of a client's part is
    p_i (1-p_i) |(u_i1 - u_i0) f_i + (v_i1 - v_i0) h_i|^2.
    """
    everybody, nobody = (_weights(weigh, np.full(len(p), there), p) for there in (True, False))
    rng = np.random.default_rng(0)
    for _ in range(OTHERS_TRIED):
        some = rng.random(len(p)) < 0.5
        found = _weights(weigh, some, p)
        if not np.allclose(found, np.where(some, everybody, nobody), rtol=1e-12, atol=0):
            return None
    mean = (1 - p) * everybody + p * nobody
    spread = everybody - nobody
    return SecondMoment(1.0, p * (1 - p), (mean[0], mean[1]), (spread[0], spread[1]))


def _weights(
    weigh: Callable[[Arrivals, FloatArray], Weights], answered: BoolArray, p: FloatArray
) -> FloatArray:
    """u and v: (2, N)."""
    weights = weigh(Arrivals.now_or_never(answered), p)
    return np.stack([weights.fresh, weights.remembered])
