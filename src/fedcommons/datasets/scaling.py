"""Inputs on one scale, and a word where they are on very different ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.datasets.dataset import Dataset

LARGE, FAR_APART = 10.0, 100.0  # a size that makes steps too long, beside sizes so much smaller
AT_ONCE = 1 << 22  # numbers that are converted together


def standardised(data: Dataset) -> Dataset:
    """Each input with mean 0 and standard deviation 1 over the training examples of all sites.

    The test examples are scaled by the same numbers. An input that is always the same becomes 0.
    """
    mean, deviation = _moments(data)
    same = deviation <= 1e-9 * np.maximum(1.0, np.abs(mean))  # what rounding leaves of none
    divisor = np.where(same, 1.0, deviation)

    def scaled(x: np.ndarray) -> np.ndarray:
        flat = x.reshape(len(x), len(mean))
        result = np.empty(flat.shape, np.float32)
        for rows in _blocks(flat):
            result[rows] = (_unit(flat[rows]) - mean) / divisor
        return result.reshape(x.shape)

    names = [name_of(data, k) for k in range(len(mean))]
    about = {
        "rule": "standard",
        "over": "the training examples of all sites",
        "mean": dict(zip(names, mean.tolist(), strict=True)),
        "standard_deviation": dict(zip(names, deviation.tolist(), strict=True)),
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
    mean, deviation = _moments(data)
    size = np.sqrt(mean**2 + deviation**2)
    sizes = size[size > 0]
    if not sizes.size or sizes.max() < LARGE or sizes.max() < FAR_APART * sizes.min():
        return ""
    largest, smallest = int(size.argmax()), int(np.where(size > 0, size, np.inf).argmin())
    return (
        f"inputs are on very different scales: {name_of(data, largest)} is about "
        f"{size[largest]:.3g} in size, {name_of(data, smallest)} about {size[smallest]:.3g}; "
        'gradient descent may get nowhere: give scale = "standard" in [data]'
    )


def name_of(data: Dataset, k: int) -> str:
    """An input's name, or its number where it has none."""
    return data.columns[k] if data.columns else f"input {k}"


def _moments(data: Dataset) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of each training input, in float64."""
    flat = data.x_train.reshape(len(data.x_train), -1)
    total = sum(_unit(flat[rows]).sum(axis=0) for rows in _blocks(flat))
    mean = np.asarray(total) / len(flat)
    squares = sum(((_unit(flat[rows]) - mean) ** 2).sum(axis=0) for rows in _blocks(flat))
    return mean, np.sqrt(np.asarray(squares) / len(flat))


def _unit(x: np.ndarray) -> FloatArray:
    """Numbers as models get them: bytes in [0, 1]."""
    return x.astype(np.float64) / (255 if x.dtype == np.uint8 else 1)


def _blocks(flat: np.ndarray) -> list[slice]:
    step = max(1, AT_ONCE // max(1, flat.shape[1]))
    return [slice(start, start + step) for start in range(0, len(flat), step)]
