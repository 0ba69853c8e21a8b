"""A stream under a passphrase: who lacks it reads nothing, and changes nothing without being seen.

    MAGIC, log2 of scrypt's cost, salt, then blocks, each `BLOCK` bytes and a tag of 16

The key is scrypt's of the passphrase and the salt, ChaCha20-Poly1305 seals each block. Its nonce is
the block's number and whether it is the last one, so that blocks cannot be exchanged, repeated or
left out, and the end cannot be cut off. A salt is used once, and so is each key.
"""

from __future__ import annotations

import os
from typing import IO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from fedcommons.errors import ArgumentError, FederationError

MAGIC = b"fedcommons sealed backup 1\n"
SALT, TAG, BLOCK = 16, 16, 1 << 20  # bytes
COST = 17  # scrypt's n is 2^17: 128 MB, half a second
COSTS = range(10, 21)  # that are read
SHORTEST = 12  # characters of a passphrase


def check_passphrase(passphrase: str) -> str:
    if len(passphrase) < SHORTEST:
        raise ArgumentError(
            f"passphrase must have at least {SHORTEST} characters, got {len(passphrase)}"
        )
    return passphrase


class SealedWriter:
    """Seals what is written to it; without `close` nobody can read the end."""

    def __init__(self, file: IO[bytes], passphrase: str) -> None:
        self._file, self._waiting, self._number = file, bytearray(), 0
        self._head = MAGIC + bytes([COST]) + os.urandom(SALT)
        self._cipher = _cipher(self._head, check_passphrase(passphrase))
        file.write(self._head)

    def write(self, content: bytes) -> int:
        self._waiting += content
        while len(self._waiting) > BLOCK:  # the last block, full or not, waits for `close`
            self._seal(bytes(self._waiting[:BLOCK]), is_last=False)
            del self._waiting[:BLOCK]
        return len(content)

    def close(self) -> None:
        self._seal(bytes(self._waiting), is_last=True)

    def _seal(self, block: bytes, *, is_last: bool) -> None:
        nonce = _nonce(self._number, is_last=is_last)
        self._file.write(self._cipher.encrypt(nonce, block, self._head))
        self._number += 1


class SealedReader:
    """Reads what was sealed, block by block; `read` fails where anything was changed."""

    def __init__(self, file: IO[bytes], passphrase: str) -> None:
        self._file, self._opened, self._number = file, b"", 0
        self._head = file.read(len(MAGIC) + 1 + SALT)
        if len(self._head) != len(MAGIC) + 1 + SALT or self._head[len(MAGIC)] not in COSTS:
            raise FederationError("the backup is damaged: its head")
        self._cipher = _cipher(self._head, passphrase)
        self._block = file.read(BLOCK + TAG)

    def read(self, n: int) -> bytes:
        while len(self._opened) < n and self._block:
            block, self._block = self._block, self._file.read(BLOCK + TAG)
            nonce = _nonce(self._number, is_last=not self._block)
            try:
                self._opened += self._cipher.decrypt(nonce, block, self._head)
            except InvalidTag:
                why = "the passphrase is wrong, or the backup is damaged"
                raise FederationError(
                    why if not self._number else f"the backup is damaged: block {self._number}"
                ) from None
            self._number += 1
        found, self._opened = self._opened[:n], self._opened[n:]
        return found


def is_sealed(file: IO[bytes]) -> bool:
    """Whether a file that was just opened is sealed; it is at its beginning again."""
    head = file.read(len(MAGIC))
    file.seek(0)
    return head == MAGIC


def _cipher(head: bytes, passphrase: str) -> ChaCha20Poly1305:
    salt, cost = head[-SALT:], head[len(MAGIC)]
    return ChaCha20Poly1305(Scrypt(salt, 32, 1 << cost, 8, 1).derive(passphrase.encode()))


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])
