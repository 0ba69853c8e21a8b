"""Fingerprints of examples: the same for the same values, whatever type of number holds them.

So a withdrawn example stays withdrawn if its file is rewritten with another type of number.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray

FINGERPRINT = 16  # bytes
FORMS = ("<u1", "<f4", "<f8")  # the first that holds an example's values exactly is used
AT_ONCE = 16 << 20  # bytes that are compared at a time


def fingerprints_of(x: npt.NDArray[Any], y: IntArray, key: bytes) -> npt.NDArray[np.uint8]:
    """A fingerprint of each of these examples, (examples, 16) bytes.

    The key keeps others from checking a guess of an example against its fingerprint.
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
            with np.errstate(all="ignore"):  # a value that a form cannot hold changes in it
                taken = rows.astype(form) + np.zeros((), form)  # -0 is 0
                fits = (taken.astype(flat.dtype) == rows).all(axis=1)
        else:  # in their own type: large integers, NaN and infinity
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
