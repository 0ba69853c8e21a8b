"""The agreement check: do the holders of the same examples compute the same gradients of them?

An owner and a recipient each take the sum of the gradients of the examples that the one sent the
other, at the same model. The owner seals a sketch of its sum to the recipient, who compares. The
server relays what it cannot open and learns whether they agree: a pair shares too few examples for
it to see their sum. A sketch of `SKETCH` numbers tells the recipient no more than it can compute
of the same examples itself, unless the two differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from fedcommons.checks import FloatArray
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.records import encode
from fedcommons.federate.protocol.refusals import EnvelopeRefused
from fedcommons.streams import stream

KEY, SEAL, COMPARE = "audit-key", "audit-seal", "audit-compare"
TASKS = (KEY, SEAL, COMPARE)  # one after another, of all sites
SKETCH = 64
TOLERANCE = 1e-3  # of the larger of two sketches: machines round differently
BLOCK = 1 << 20


def digest_of(commit: Commit, nonce: bytes) -> bytes:
    """The name of one check: envelopes of another cannot be opened in it."""
    return hashlib.sha256(b"fedcommons/agreement/" + commit.digest + nonce).digest()


def key_statement(audit: bytes, key: bytes) -> bytes:
    """What a site signs of the key that sketches are sealed to in one check."""
    return encode({"audit": audit.hex(), "key": key.hex()})


def sketch(vector: FloatArray, audit: bytes) -> FloatArray:
    """(P,) -> (SKETCH,): every number goes to one of them at random, with a random sign.

    Its squared size is on average that of the vector; everybody in a check draws alike.
    """
    found = np.zeros(SKETCH)
    for block, start in enumerate(range(0, len(vector), BLOCK)):
        part = vector[start : start + BLOCK]
        rng = stream(int.from_bytes(audit[:7], "big"), "agreement", block)
        where = rng.integers(0, SKETCH, len(part))
        signs = 1.0 - 2.0 * rng.integers(0, 2, len(part))
        found += np.bincount(where, signs * part, SKETCH)
    return found


def agree(one: FloatArray, other: FloatArray) -> bool:
    """Whether two sketches are of the same vector, but for rounding; not if one is not finite."""
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return False
    size = max(float(np.linalg.norm(one)), float(np.linalg.norm(other)))
    return float(np.linalg.norm(one - other)) <= TOLERANCE * size


def pack(values: FloatArray) -> bytes:
    return values.astype("<f8").tobytes()


def unpack(content: bytes) -> FloatArray:
    if len(content) != 8 * SKETCH:
        raise EnvelopeRefused(f"a sketch must have {SKETCH} numbers")
    found: npt.NDArray[np.float64] = np.frombuffer(content, "<f8").astype(np.float64)
    return found


def bytes_of_all(parts: Iterable[bytes]) -> list[bytes]:
    """As they are, if they are byte strings."""
    found = list(parts)
    if not all(isinstance(part, bytes) for part in found):
        raise EnvelopeRefused("keys, signatures and envelopes must be bytes")
    return found
