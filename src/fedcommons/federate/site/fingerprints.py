"""Fingerprints of examples: the same for the same values, whatever type of number holds them.

So a withdrawn example stays withdrawn if its file is rewritten with another type of number.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import numpy.typing as npt

FINGERPRINT = 16  # bytes
FORMS = ("<u1", "<f4", "<f8")  # the first that holds an example's values exactly is used
LARGEST_EXACT = 2**53  # up to it a float64 holds every integer
AT_ONCE = 16 << 20  # bytes that are compared at a time


def fingerprints_of(x: npt.NDArray[Any], y: npt.NDArray[Any], key: bytes) -> npt.NDArray[np.uint8]:
    """A fingerprint of each of these examples, (examples, 16) bytes.

    The key keeps others from checking a guess of an example against its fingerprint.
    """
    flat, labels = x.reshape(len(x), math.prod(x.shape[1:])), _labels(y)
    out = np.empty((len(x), FINGERPRINT), np.uint8)
    step = max(1, AT_ONCE // max(1, 8 * flat.shape[1]))
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        _fill(out[part], flat[part], labels[part], key)
    return out


def _labels(y: npt.NDArray[Any]) -> list[tuple[bytes, bytes]]:
    """Each label as bytes, and what these are: integers where it consists of integers."""
    flat = y.reshape(len(y), math.prod(y.shape[1:]))
    if y.dtype.kind != "f":
        return [(row.tobytes(), b"") for row in flat.astype("<i8")]
    exact = flat.astype("<f8") + 0.0  # -0 is 0
    whole = ((np.trunc(exact) == exact) & (np.abs(exact) <= LARGEST_EXACT)).all(axis=1)
    return [
        (row.astype("<i8").tobytes(), b"") if is_whole else (row.tobytes(), b"|<f8")
        for row, is_whole in zip(exact, whole, strict=True)
    ]


def _fill(
    out: npt.NDArray[np.uint8],
    flat: npt.NDArray[Any],
    labels: list[tuple[bytes, bytes]],
    key: bytes,
) -> None:
    left = np.arange(len(flat))
    for form in (*FORMS, ""):
        rows = flat[left]
        if form:
            with np.errstate(all="ignore"):  # a value that a form cannot hold changes in it
                taken = rows.astype(form) + np.zeros((), form)  # -0 is 0
                fits = (taken.astype(flat.dtype) == rows).all(axis=1)
        else:  # in their own type: large integers, NaN and infinity
            taken = rows.astype(flat.dtype.newbyteorder("<"))
            fits = np.ones(len(rows), np.bool_)
        digests = [
            hashlib.blake2b(
                label + row.tobytes(),
                digest_size=FINGERPRINT,
                key=key,
                person=form.encode() + kind,
            ).digest()
            for row, (label, kind) in zip(
                taken[fits], (labels[place] for place in left[fits]), strict=True
            )
        ]
        out[left[fits]] = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, FINGERPRINT)
        left = left[~fits]
        if not len(left):
            return
