"""Seeded damage to files: what disks, networks, other programs and enemies make of them."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable

import numpy as np

Mutation = Callable[[bytes, np.random.Generator], bytes]

NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)
WORDS = (
    *(
        b"\0",
        b"-1",
        b"1e999",
        b"NaN",
        b"null",
        b"[]",
        b"{}",
        b"true",
        b'"',
        b"\n",
        b",",
        b"\xff\xfe",
    ),
    *(b"9" * 30, b"-" + b"9" * 400, b"[" * 3000, b"\xed\xa0\x80", b"\x1b[2J", b"object", b"|O"),
)
SHAPES = ("(1099511627776,)", "(-1,)", "(0,)", "(2, 9223372036854775807)", "(1, 1)", "()", "7")
TYPES = ("|O", "<f8", ">f4", "|S0", "<U7", "|V3", "<M8[D]", "|b1", "<c16", "no type", "<f99999999")


def truncate(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: rng.integers(0, len(content) + 1)]


def flip_bits(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for at in rng.integers(0, max(len(changed), 1), rng.integers(1, 5)) if changed else ():
        changed[at] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def cut_out(content: bytes, rng: np.random.Generator) -> bytes:
    start, stop = np.sort(rng.integers(0, len(content) + 1, 2))
    return content[:start] + content[stop:]


def repeat(content: bytes, rng: np.random.Generator) -> bytes:
    start, stop = np.sort(rng.integers(0, len(content) + 1, 2))
    return content[:stop] + content[start:stop] + content[stop:]


def insert_word(content: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(0, len(content) + 1))
    replaced = int(rng.integers(0, 9))
    return content[:at] + WORDS[rng.integers(len(WORDS))] + content[at + replaced :]


def write_number(content: bytes, rng: np.random.Generator) -> bytes:
    width, form = ((1, "<B"), (2, "<H"), (4, "<I"), (4, ">I"), (8, "<Q"))[rng.integers(5)]
    if len(content) < width:
        return content
    at = int(rng.integers(0, len(content) - width + 1))
    number = NUMBERS[rng.integers(len(NUMBERS))] & (256**width - 1)
    return content[:at] + struct.pack(form, number) + content[at + width :]


BYTES: tuple[Mutation, ...] = (truncate, flip_bits, cut_out, repeat, insert_word, write_number)


# Archives that are whole, with members that are not


def _members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _archive(members: dict[str, bytes], packed: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packed) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def in_a_member(content: bytes, rng: np.random.Generator) -> bytes:
    members = _members(content)
    name = list(members)[rng.integers(len(members))]
    members[name] = BYTES[rng.integers(len(BYTES))](members[name], rng)
    return _archive(members, int(rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])))


def swap_members(content: bytes, rng: np.random.Generator) -> bytes:
    members = _members(content)
    names = list(members)
    order = rng.permutation(len(names))
    mixed = {name: members[names[k]] for name, k in zip(names, order, strict=True)}
    if rng.integers(3) == 0:
        del mixed[names[rng.integers(len(names))]]
    return _archive(mixed, zipfile.ZIP_STORED)


def other_header(content: bytes, rng: np.random.Generator) -> bytes:
    members = _members(content)
    name = list(members)[rng.integers(len(members))]
    members[name] = with_other_header(members[name], rng)
    return _archive(members, zipfile.ZIP_DEFLATED)


def with_other_header(array: bytes, rng: np.random.Generator) -> bytes:
    """An array in NumPy's format, of another shape or type than it has."""
    stream = io.BytesIO(array)
    np.lib.format.read_magic(stream)
    shape, order, dtype = np.lib.format.read_array_header_1_0(stream)
    said = str(shape) if rng.integers(2) else SHAPES[rng.integers(len(SHAPES))]
    kind = dtype.str if rng.integers(2) else TYPES[rng.integers(len(TYPES))]
    text = f"{{'descr': {kind!r}, 'fortran_order': {order}, 'shape': {said}, }}\n".encode()
    head = np.lib.format.MAGIC_PREFIX + b"\x01\x00" + struct.pack("<H", len(text)) + text
    return head + stream.read()


def other_values(content: bytes, rng: np.random.Generator) -> bytes:
    """Arrays that are whole, of other shapes, types and values."""
    members = _members(content)
    name = list(members)[rng.integers(len(members))]
    array = np.load(io.BytesIO(members[name]))
    if array.dtype.kind not in "biuf":
        return content
    changed = array.astype(rng.choice(["f8", "i8", "u1", "i2", "f4", "?"]))
    choice = rng.integers(5)
    if choice == 0:
        changed = changed[..., None]
    elif choice == 1:
        changed = changed.reshape(-1)[: rng.integers(changed.size + 1)]
    elif choice == 2 and changed.size:
        extreme = rng.choice([-1, 2**31, 2**63 - 1, 0, 3]) if changed.dtype.kind in "iu" else np.nan
        with np.errstate(all="ignore"):
            changed.reshape(-1)[rng.integers(changed.size)] = np.array(extreme).astype(
                changed.dtype
            )
    file = io.BytesIO()
    np.save(file, changed)
    members[name] = file.getvalue()
    return _archive(members, zipfile.ZIP_STORED)


OF_ARCHIVES: tuple[Mutation, ...] = (*BYTES, in_a_member, swap_members, other_header, other_values)
