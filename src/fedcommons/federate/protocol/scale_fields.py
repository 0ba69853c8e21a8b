"""Moments and scales of inputs as fields of a message. Whatever comes from elsewhere is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.federate.protocol.refusals import MalformedRecord
from fedcommons.scaling import Moments, Scale

MOST_FEATURES = 1 << 20


def of_moments(moments: Moments) -> dict[str, Any]:
    return {
        "moments-n": moments.n,
        "moments-mean": _bytes(moments.mean),
        "moments-squares": _bytes(moments.squares),
    }


def moments_of(fields: Mapping[str, Any], most: int) -> Moments:
    """The moments of at most so many examples."""
    n = fields.get("moments-n")
    if type(n) is not int or not 1 <= n <= most:
        raise MalformedRecord(f"moments must be of 1 to {most} examples")
    mean, squares = _numbers(fields, "moments-mean"), _numbers(fields, "moments-squares")
    if len(mean) != len(squares) or (squares < 0).any():
        raise MalformedRecord("moments must have a mean and squares for each feature")
    return Moments(n, mean, squares)


def of_scale(scale: Scale | None) -> dict[str, Any]:
    """No fields if inputs stay as they are."""
    if scale is None:
        return {}
    return {"scale-mean": _bytes(scale.mean), "scale-deviation": _bytes(scale.deviation)}


def scale_of(fields: Mapping[str, Any]) -> Scale | None:
    """None if inputs stay as they are."""
    if "scale-mean" not in fields:
        return None
    mean, deviation = _numbers(fields, "scale-mean"), _numbers(fields, "scale-deviation")
    if len(mean) != len(deviation) or (deviation <= 0).any():
        raise MalformedRecord("a scale must have a mean and a deviation for each feature")
    return Scale(mean, deviation)


def _bytes(numbers: FloatArray) -> bytes:
    return numbers.astype("<f8").tobytes()


def _numbers(fields: Mapping[str, Any], name: str) -> FloatArray:
    content = fields.get(name)
    if not isinstance(content, bytes) or len(content) % 8 or len(content) > 8 * MOST_FEATURES:
        raise MalformedRecord(f"{name} must be numbers of 8 bytes")
    found = np.frombuffer(content, "<f8").astype(np.float64)
    if not np.isfinite(found).all():
        raise MalformedRecord(f"{name} must be finite")
    return found
