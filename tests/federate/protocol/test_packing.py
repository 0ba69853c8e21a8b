"""Examples as bytes: what is packed comes out, and nothing else does."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedcommons.federate.protocol.packing import (
    ANY_LABELS,
    ARRAY,
    CLASS_NUMBERS,
    DTYPES,
    HEAD,
    SharedExamples,
    unpack,
)
from fedcommons.federate.protocol.refusals import EnvelopeRefused


def examples_of(x: np.ndarray) -> SharedExamples:
    rng = np.random.default_rng(len(x))
    numbers = np.sort(rng.integers(0, 2**40, size=len(x)))
    return SharedExamples(numbers, rng.integers(0, 2**62, size=len(x)), x)


def packed(count: int, name: bytes, shape: tuple[int, ...], body: bytes) -> bytes:
    return HEAD.pack(CLASS_NUMBERS, count) + described(name, shape) + body


def described(name: bytes, shape: tuple[int, ...]) -> bytes:
    return ARRAY.pack(name, len(shape)) + struct.pack(f"<{len(shape)}I", *shape)


shapes = hnp.array_shapes(min_dims=1, max_dims=4, max_side=5)


@given(
    st.sampled_from(sorted(DTYPES)).flatmap(
        lambda name: hnp.arrays(
            np.dtype(name),
            st.tuples(st.integers(0, 5)).flatmap(lambda n: shapes.map(lambda shape: (*n, *shape))),
        )
    )
)
def test_what_is_packed_comes_out(x):
    before = examples_of(x)
    after = unpack(before.pack())
    assert after.x.dtype == x.dtype
    assert after.x.shape == x.shape
    assert after.x.tobytes() == x.tobytes()  # NaN too, bit for bit
    assert np.array_equal(after.numbers, before.numbers)
    assert np.array_equal(after.y, before.y)


labels = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda name: hnp.arrays(
        np.dtype(name), hnp.array_shapes(min_dims=0, max_dims=3, max_side=4).map(lambda s: (3, *s))
    )
)


@given(labels)
def test_labels_of_any_type_and_shape_come_out(y):
    x = np.arange(12.0).reshape(3, 4)
    data = SharedExamples(np.arange(3), y, x).pack()
    after = unpack(data)
    assert (after.y.dtype, after.y.shape) == (y.dtype, y.shape)
    assert after.y.tobytes() == y.tobytes()
    assert after.x.tobytes() == x.tobytes()
    assert after.pack() == data
    is_plain = y.dtype == np.int64 and y.ndim == 1
    assert data.startswith(CLASS_NUMBERS if is_plain else ANY_LABELS)


def test_class_numbers_are_packed_as_they_always_were():
    """Chunks of this form lie in stores, and may be sent again after an update."""
    x = np.array([[1, 2], [3, 4]], np.uint8)
    assert SharedExamples(np.array([5, 6]), np.array([7, 8]), x).pack() == (
        b"FCP1" + struct.pack("<I8sBI", 2, b"uint8", 1, 2)
        + struct.pack("<4q", 5, 6, 7, 8) + b"\1\2\3\4"
    )  # fmt: skip


def test_labels_are_described_only_where_they_are_no_class_numbers():
    x = described(b"int8", (1,))
    body = struct.pack("<2q", 0, 1) + b"\1"
    assert unpack(HEAD.pack(CLASS_NUMBERS, 1) + x + body).y.tolist() == [1]
    with pytest.raises(EnvelopeRefused):
        unpack(HEAD.pack(ANY_LABELS, 1) + x + described(b"int64", ()) + body)


def test_packing_does_not_depend_on_the_layout_in_memory():
    x = np.arange(24.0).reshape(4, 6)
    turned = np.asfortranarray(x)
    assert examples_of(turned).pack() == examples_of(x).pack()


def test_unpacking_then_packing_gives_the_same_bytes():
    data = examples_of(np.arange(12, dtype=np.int16).reshape(3, 2, 2)).pack()
    assert unpack(data).pack() == data


def test_select_keeps_the_rows_asked_for():
    whole = examples_of(np.arange(10.0).reshape(5, 2))
    part = whole.select(np.array([True, False, False, True, False]))
    assert len(part) == 2
    assert np.array_equal(part.x, whole.x[[0, 3]])
    assert np.array_equal(part.numbers, whole.numbers[[0, 3]])
    assert np.array_equal(part.y, whole.y[[0, 3]])


GOOD = examples_of(np.ones((3, 4), np.float32)).pack()
LABELLED = SharedExamples(
    np.arange(3), np.ones((3, 2), np.float32), np.ones((3, 4), np.float64)
).pack()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[: HEAD.size - 1],
        GOOD[: HEAD.size + 3],
        GOOD[: HEAD.size + ARRAY.size + 3],
        b"FCP3" + GOOD[4:],
        b"FCP2" + GOOD[4:],
        packed(1, b"object", (1,), bytes(24)),
        packed(1, b"float128", (1,), bytes(32)),
        packed(1, b"\xff\xfe", (1,), bytes(20)),
        packed(1, b"float32", (1,) * 9, bytes(20)),
        packed(2**32 - 1, b"float32", (1,), bytes(20)),
        packed(1, b"float32", (2**32 - 1,) * 8, bytes(20)),
        packed(2**32 - 1, b"float64", (2**30, 2**30), b""),
        packed(1, b"int8", (0,), bytes(16)),
        packed(1, b"int8", (0, 2**32 - 1, 2**32 - 1, 2**32 - 1), bytes(16)),
        packed(0, b"float64", (2**32 - 1,) * 8, b""),
        packed(1, b"bool", (3,), bytes(16) + b"\0\1\2"),
        LABELLED.replace(b"float32\0", b"object\0\0"),
        LABELLED[:-1],
        LABELLED.replace(b"float32\0", b"bool\0\0\0\0"),
    ],
    ids=[
        "nothing", "no header", "no type", "no shape", "another format", "no labels", "objects",
        "unknown type",
        "type of no letters", "nine dimensions", "claims 4 billion examples",
        "claims a huge shape", "claims exabytes", "no features", "no features, huge shape",
        "no examples, huge shape", "a boolean that is 2", "labels of objects",
        "labels too short", "labels of another type",
    ],
)  # fmt: skip
def test_what_no_array_can_be_is_refused(data):
    with pytest.raises(EnvelopeRefused):
        unpack(data)


def test_no_other_length_is_accepted():
    for length in range(len(GOOD)):
        with pytest.raises(EnvelopeRefused):
            unpack(GOOD[:length])
    with pytest.raises(EnvelopeRefused):
        unpack(GOOD + b"\0")


@settings(max_examples=2000)
@given(st.binary(max_size=80))
def test_any_bytes_are_refused_or_examples(data):
    """After a valid start, so that the length is often right: no other error, and canonical."""
    head = HEAD.size + 2 * ARRAY.size + 8
    for start in (b"", CLASS_NUMBERS, ANY_LABELS, GOOD[:8], GOOD[: HEAD.size], LABELLED[:head]):
        try:
            found = unpack(start + data)
        except EnvelopeRefused:
            continue
        assert found.pack() == start + data
