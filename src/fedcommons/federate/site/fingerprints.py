"""Fingerprints of examples: alike for the same values, whatever type of number holds them.

A file that is written anew, as floats where it was bytes, brings nothing back that was withdrawn.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray

FINGERPRINT = 16  # bytes
FORMS = ("<u1", "<f4", "<f8")  # an example is taken in the first that holds its values exactly
AT_ONCE = 16 << 20  # bytes that are compared at a time


def fingerprints_of(x: npt.NDArray[Any], y: IntArray, key: bytes) -> npt.NDArray[np.uint8]:
    """A fingerprint of each of these examples, (examples, 16) bytes.

    Keyed, so that nobody else can tell from one whether a guess of the example is right.
    """
    flat, labels = x.reshape(len(x), math.prod(x.shape[1:])), y.astype("<i8")
    out = np.empty((len(x), FINGERPRINT), np.uint8)
    step = max(1, AT_ONCE // max(1, 8 * flat.shape[1]))
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        _fill(out[part], flat[part], labels[part], key)
    return out


def _fill(
    out: npt.NDArray[np.uint8], flat: npt.NDArray[Any], labels: npt.NDArray[Any], key: bytes
) -> None:
    left = np.arange(len(flat))
    for form in (*FORMS, ""):
        rows = flat[left]
        if form:
            with np.errstate(all="ignore"):  # values that a form cannot hold come back as others
                taken = rows.astype(form) + np.zeros((), form)  # -0 is 0
                fits = (taken.astype(flat.dtype) == rows).all(axis=1)
        else:  # as they are: large integers, and what is no number
            taken = rows.astype(flat.dtype.newbyteorder("<"))
            fits = np.ones(len(rows), np.bool_)
        digests = [
            hashlib.blake2b(
                label.tobytes() + row.tobytes(),
                digest_size=FINGERPRINT,
                key=key,
                person=form.encode(),
            ).digest()
            for row, label in zip(taken[fits], labels[left[fits]], strict=True)
        ]
        out[left[fits]] = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, FINGERPRINT)
        left = left[~fits]
        if not len(left):
            return
