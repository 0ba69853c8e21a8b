"""Inputs on one scale, and a word where they are on very different ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcommons import scaling
from fedcommons.checks import FloatArray
from fedcommons.datasets.dataset import Dataset
from fedcommons.scaling import Moments

AT_ONCE = 1 << 22  # numbers that are converted together


def standardised(data: Dataset) -> Dataset:
    """Each input with mean 0 and standard deviation 1 over the training examples of all sites.

    The test examples are scaled by the same numbers. An input that is always the same becomes 0.
    """
    moments = _moments(data)
    scale = moments.scale()

    def scaled(x: np.ndarray) -> np.ndarray:
        flat = x.reshape(len(x), len(scale.mean))
        result = np.empty(flat.shape, np.float32)
        for rows in _blocks(flat):
            result[rows] = scale.apply(_unit(flat[rows]))
        return result.reshape(x.shape)

    names = [name_of(data, k) for k in range(len(scale.mean))]
    about = {
        "rule": "standard",
        "over": "the training examples of all sites",
        "mean": dict(zip(names, moments.mean.tolist(), strict=True)),
        "standard_deviation": dict(zip(names, moments.deviation.tolist(), strict=True)),
    }
    return replace(
        data,
        x_train=scaled(data.x_train),
        x_test=scaled(data.x_test),
        encodings={**data.encodings, "scale": about},
    )


def remark(data: Dataset) -> str:
    """What to say of inputs on very different scales; empty where they are not."""
    if data.x_train.dtype == np.uint8:
        return ""
    moments = _moments(data)
    said = scaling.far_apart(moments, [name_of(data, k) for k in range(len(moments.mean))])
    if not said:
        return ""
    return (
        f"inputs are on very different scales: {said}; "
        'gradient descent may get nowhere: give scale = "standard" in [data]'
    )


def name_of(data: Dataset, k: int) -> str:
    """An input's name, or its number where it has none."""
    return data.columns[k] if data.columns else f"input {k}"


def _moments(data: Dataset) -> Moments:
    """Those of the training inputs."""
    flat = data.x_train.reshape(len(data.x_train), -1)
    parts = (Moments.of(_unit(flat[rows])) for rows in _blocks(flat))
    return scaling.total(parts, flat.shape[1])


def _unit(x: np.ndarray) -> FloatArray:
    """Numbers as models get them: bytes in [0, 1]."""
    return x.astype(np.float64) / (255 if x.dtype == np.uint8 else 1)


def _blocks(flat: np.ndarray) -> list[slice]:
    step = max(1, AT_ONCE // max(1, flat.shape[1]))
    return [slice(start, start + step) for start in range(0, len(flat), step)]
