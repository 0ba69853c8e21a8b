"""Cox's proportional hazards: the partial likelihood of what is held together.

It compares every event with those who were still at risk then, so it is no sum over examples: the
losses of parts do not add up to the loss of the whole. A client's is that of what it holds, and
the sum over clients is what is trained, as a Cox model stratified by client would be. Ties are
Breslow's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.errors import ArgumentError
from fedcommons.tasks.loss import Float32, Targets
from fedcommons.tasks.survival import Survival


class Cox(Survival):
    """-sum_{events j} w_j (s_j - log sum_{k: t_k >= t_j} w_k exp(s_k)), for one score s.

    Scaling all weights scales the gradient; an example of weight 0 is as if it were not there.
    """

    name = "cox"
    decomposable = False
    n_outputs = 1

    def targets(self, y: Targets) -> Float32:
        return y.astype(np.float32)

    def residuals(self, scores: Any, y: Float32, weight: Float32) -> Float32:
        if (weight < 0).any():
            raise ArgumentError(
                f"weights must be >= 0 for loss cox, whose risk sets they count, got "
                f"{weight.min():g}"
            )
        order, first, last = _by_time(y[..., 0])
        s, w, events = (_in(order, part) for part in (scores[..., 0], weight, y[..., 1]))
        hazard, at_risk, _ = _risk(s, w, first)
        of_events = _divided(w * events, at_risk)
        # The events up to an example's time, those at the same time with it.
        until = np.take_along_axis(np.cumsum(of_events, axis=-1), last, axis=-1)
        sorted_residuals = hazard * until - w * events
        out = np.empty_like(sorted_residuals)
        np.put_along_axis(out, order, sorted_residuals, axis=-1)
        return out[..., None].astype(np.float32)

    def values(self, scores: npt.NDArray[Any], y: Targets) -> npt.NDArray[Any]:
        order, first, _ = _by_time(y[..., 0])
        s, events = _in(order, scores[..., 0]), _in(order, y[..., 1])
        _, at_risk, top = _risk(s, np.ones(s.shape), first)
        out = np.empty_like(at_risk)
        np.put_along_axis(out, order, events * (np.log(at_risk) + top - s), axis=-1)
        return out

    def predictions(self, scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The risk: (B, n)."""
        return scores[..., 0]


def _by_time(times: npt.NDArray[Any]) -> tuple[Any, Any, Any]:
    """The order of times, and where the first and the last of each one's equals are in it."""
    order = np.argsort(times, axis=-1, kind="stable")
    ordered = _in(order, times)
    n = times.shape[-1]
    places = np.broadcast_to(np.arange(n), times.shape)
    new = np.ones(times.shape, np.bool_)
    new[..., 1:] = ordered[..., 1:] > ordered[..., :-1]
    first = np.maximum.accumulate(np.where(new, places, 0), axis=-1)
    ends = np.ones(times.shape, np.bool_)
    ends[..., :-1] = new[..., 1:]
    reversed_ends = np.where(ends, places, n)[..., ::-1]
    last = np.minimum.accumulate(reversed_ends, axis=-1)[..., ::-1]
    return order, first, last


def _in(order: Any, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    values = np.broadcast_to(values, order.shape)
    return np.take_along_axis(values, order, axis=-1).astype(np.float64)


def _risk(
    s: npt.NDArray[Any], w: npt.NDArray[Any], first: Any
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """w exp(s), its sum over those at risk, both times exp(-top), and the top."""
    top = np.where(w > 0, s, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(over="ignore", invalid="ignore"):
        hazard = np.where(w > 0, w * np.exp(s - top), 0.0)
    later = np.cumsum(hazard[..., ::-1], axis=-1)[..., ::-1]
    return hazard, np.take_along_axis(later, first, axis=-1), top


def _divided(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.divide(a, b, out=np.zeros_like(a), where=a != 0)
