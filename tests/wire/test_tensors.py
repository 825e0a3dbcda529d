"""Packed tensors: canonical, lossless, and checked before anything is allocated."""

from __future__ import annotations

import struct

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.errors import WireError
from edgefed.wire.tensors import (
    Array,
    TensorSpec,
    digest,
    pack,
    specs_of,
    unpack,
    weights_digest,
)
from tests.wire.memory import at_most, numbered
from tests.wire.strategies import arrays, damaged

GOLDEN_ARRAYS: dict[str, Array] = {
    "w": np.array([1.0, -2.0], dtype=np.float32),
    "n": np.array(3, dtype=np.int64),
}
GOLDEN = (
    b"EFT1\x18\x00\x00\x00"
    b"\x92"
    b"\x93\xa1w\xa7float32\x91\x02"
    b"\x93\xa1n\xa5int64\x90"
    b"\x00\x00\x80\x3f\x00\x00\x00\xc0"
    b"\x03\x00\x00\x00\x00\x00\x00\x00"
)


def same(left: dict[str, Array], right: dict[str, Array]) -> bool:
    """Whether both hold the same names in the same order, with the same bits."""
    return list(left) == list(right) and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].tobytes() == right[name].tobytes()
        for name in left
    )


def blob_of(header: object, data: bytes = b"", magic: bytes = b"EFT1") -> bytes:
    packed = header if isinstance(header, bytes) else msgpack.packb(header)
    return magic + struct.pack("<I", len(packed)) + packed + data


def refused(blob: bytes, expected: dict[str, TensorSpec] | None = None) -> str:
    with pytest.raises(WireError) as caught, at_most((1 << 17) + 4 * len(blob)):
        unpack(blob, expected)
    assert caught.value.code == "wire.tensor"
    return caught.value.message


def test_bytes_do_not_drift() -> None:
    assert pack(GOLDEN_ARRAYS) == GOLDEN
    assert same(unpack(GOLDEN, specs_of(GOLDEN_ARRAYS)), GOLDEN_ARRAYS)


def test_digest_is_sha256() -> None:
    assert digest(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert weights_digest(GOLDEN_ARRAYS) == digest(GOLDEN)


@settings(max_examples=25, deadline=None)
@given(arrays())
def test_arrays_return_bit_for_bit(found: dict[str, Array]) -> None:
    blob = pack(found)
    back = unpack(blob, specs_of(found))
    assert same(back, found)
    assert same(unpack(blob, None), found)
    assert pack(back) == blob
    assert weights_digest(found) == digest(blob)
    assert all(array.flags.writeable for array in back.values())


def test_layout_in_memory_does_not_matter() -> None:
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    for other in (np.asfortranarray(plain), plain.astype(">f4"), np.repeat(plain, 2, 1)[:, ::2]):
        assert pack({"w": other}) == pack({"w": plain})


def test_nan_and_negative_zero_keep_their_bits() -> None:
    odd = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x7F800000], dtype=np.uint32)
    found: dict[str, Array] = {"w": odd.view(np.float32)}
    assert same(unpack(pack(found), None), found)


def test_writing_into_the_result_leaves_the_blob_alone() -> None:
    blob = pack(GOLDEN_ARRAYS)
    unpack(blob, None)["w"][:] = 7
    assert blob == GOLDEN


@given(arrays())
def test_views_have_the_same_values_in_the_blob_s_memory(found: dict[str, Array]) -> None:
    blob = memoryview(bytearray(pack(found)))
    views = unpack(blob, None, copied=False)
    assert same(views, found)
    for name, array in views.items():
        assert np.may_share_memory(array, np.frombuffer(blob, np.uint8)) == bool(array.size), name


def test_order_is_kept_and_part_of_the_digest() -> None:
    turned = dict(reversed(GOLDEN_ARRAYS.items()))
    assert weights_digest(turned) != weights_digest(GOLDEN_ARRAYS)
    assert list(unpack(GOLDEN, specs_of(turned))) == ["w", "n"]


def test_what_differs_is_named() -> None:
    expected = specs_of(GOLDEN_ARRAYS)
    message = refused(GOLDEN, {**expected, "w": TensorSpec("float32", (3,))})
    assert "'w' is float32[2] instead of float32[3]" in message
    assert "'w' is float32" in refused(GOLDEN, {**expected, "w": TensorSpec("int32", (2,))})
    assert "'n' is not expected" in refused(GOLDEN, {"w": expected["w"]})
    assert "'b' is missing" in refused(GOLDEN, {**expected, "b": TensorSpec("bool", ())})


def test_more_than_is_allowed_is_refused() -> None:
    with pytest.raises(WireError, match="15 are allowed"):
        unpack(GOLDEN, None, max_bytes=15)
    assert same(unpack(GOLDEN, None, max_bytes=16), GOLDEN_ARRAYS)


@pytest.mark.parametrize(
    "array", [np.zeros(1, np.complex64), np.array(["x"]), np.array([None]), np.zeros(1, np.uint64)]
)
def test_other_dtypes_do_not_travel(array: Array) -> None:
    with pytest.raises(WireError, match="do not travel"):
        pack({"w": array})


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"EFT1",
        b"EFT2" + GOLDEN[4:],
        GOLDEN[:-1],
        GOLDEN + b"\x00",
        b"EFT1\xff\xff\xff\xff" + GOLDEN[8:],
        blob_of([["w", "float32", [2]]], bytes(7)),
        blob_of([["w", "float32", [2], 0]], bytes(8)),
        blob_of([["w", "float32", 2]], bytes(8)),
        blob_of([["w", "float32", [-1]]]),
        blob_of([["w", "float32", [True]]], bytes(4)),
        blob_of([["w", "float32", [2.0]]], bytes(8)),
        blob_of([["w", "complex64", [1]]], bytes(8)),
        blob_of([[b"w", "float32", [1]]], bytes(4)),
        blob_of([["w" * 257, "float32", [1]]], bytes(4)),
        blob_of([["w", "float32", [1]], ["w", "float32", [1]]], bytes(8)),
        blob_of([["w", "float32", [1]], ["w", "float32", [1]]], bytes(4)),
        blob_of([["w", "float32", [1] * 9]], bytes(4)),
        blob_of([["w", "float32", [2**31, 2**31]]]),
        blob_of([["w", "float32", [0, 2**62, 2**62]]]),
        blob_of([["w", "bool", [2]]], b"\x01\x02"),
        blob_of({"w": 1}),
        blob_of(msgpack.packb([]) + b"\x00"),
        blob_of([["w", [[]], [1]]], bytes(4)),
        blob_of(b"\xdd\xff\xff\xff\xff"),
        blob_of(b"\xdd\x00\x00\x27\x11" + b"\xc0" * 10_001),
        blob_of(b"\x91" * 100_000),
        blob_of(b"\x91\x93" + b"\x91" * 100_000),
    ],
    ids=numbered,
)
def test_malformed_blobs_are_refused(blob: bytes) -> None:
    refused(blob)


def test_a_header_of_nested_arrays_takes_no_memory() -> None:
    packed = b"\x91\x93" + b"\x98" * 200_000 + b"\x80" * 200_000
    refused(blob_of(packed))


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_refused(data: bytes, framed: bool) -> None:
    refused(blob_of(data) if framed and data[:1] != b"\x90" else data)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_damage_is_refused_or_stays_within_what_was_expected(data: st.DataObject) -> None:
    found = data.draw(arrays())
    blob = data.draw(damaged(pack(found)))
    with at_most(1 << 20):
        try:
            read = unpack(blob, specs_of(found))
        except WireError as error:
            assert error.code == "wire.tensor"
        else:
            assert specs_of(read) == specs_of(found)
            assert pack(read) == blob
