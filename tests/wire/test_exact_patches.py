"""Exact patches lose no bit, whatever the versions are."""

from __future__ import annotations

import contextlib
import struct
import warnings

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.errors import WireError
from edgefed.wire.exact_patches import apply_exact, encode_exact, is_exact, rounded
from edgefed.wire.tensors import (
    Array,
    FrameContent,
    FrameHeader,
    TensorSpec,
    compressed,
    pack,
    specs_of,
)
from tests.wire.strategies import arrays, damaged

HEADER = b"EFX1" + struct.pack("<I", 14) + b"\x91\x93\xa1w\xa7float32\x91\x01"
"""Of one tensor, ``w``, with one value."""
LIMIT = 1 << 20


def floats(*values: float) -> dict[str, Array]:
    return {"w": np.array(values, np.float32)}


def content(base: dict[str, Array] | None, target: dict[str, Array]) -> bytes:
    header = FrameHeader(b"EFX1", encode_exact(base, target))
    size = zstandard.frame_content_size(header.body)
    return FrameContent(header.body, size).read(size).tobytes()


def through(base: dict[str, Array] | None, target: dict[str, Array]) -> bytes:
    blob = encode_exact(base, target)
    assert is_exact(blob)
    return pack(apply_exact(blob, base, specs_of(target), max_bytes=LIMIT))


@pytest.mark.parametrize(
    ("base", "target", "written"),
    [
        # Multiples of 1/2: 3 - 2 = 1, folded 2; -4 + 4 = 0; -300 - 0, folded 599 = 0x257.
        ((1, -2, 0), (1.5, -2, -150), (-1, [0, 0, 0], [0, 0, 0], [0, 0, 2], [2, 0, 0x57])),
        # The base's grid counts too: multiples of 1/4, 6 - 5 = 1.
        ((1.25, -2), (1.5, -2), (-2, [0, 0], [0, 0], [0, 0], [2, 0])),
        # From zeros: 3 is folded to 6, -4 to 7.
        (None, (1.5, -2), (-1, [0, 0], [0, 0], [0, 0], [6, 7])),
        # 1 and 2^-30 are too far apart for one grid: bit patterns, 0x3f800000 and 0x30800000.
        (None, (1, 2.0**-30), (32767, [0x7F, 0x61], [0, 0], [0, 0], [0, 0])),
        # The next float32 after 1 is one bit pattern further.
        ((1, 2.0**-30), (1 + 2.0**-23, 2.0**-30), (32767, [0, 0], [0, 0], [0, 0], [2, 0])),
    ],
)
def test_bytes_by_hand(
    base: tuple[float, ...] | None,
    target: tuple[float, ...],
    written: tuple[int, list[int], list[int], list[int], list[int]],
) -> None:
    exponent, *planes = written
    older = None if base is None else floats(*base)
    expected = struct.pack("<h", exponent) + b"".join(map(bytes, planes))
    assert content(older, floats(*target)) == expected
    assert through(older, floats(*target)) == pack(floats(*target))


def test_a_negative_zero_stays_one() -> None:
    for base in (None, floats(1, 2)):
        assert through(base, floats(-0.0, 2)) == pack(floats(-0.0, 2))


@settings(max_examples=50, deadline=None)
@given(arrays(), st.data())
def test_any_versions_are_converted_without_loss(
    target: dict[str, Array], data: st.DataObject
) -> None:
    seed = data.draw(st.integers(0, 9))
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        base = {
            name: array * array.dtype.type(rng.integers(-2, 3))
            if array.dtype.kind == "f"
            else array
            for name, array in target.items()
        }
    assert through(None, target) == pack(target)
    assert through(base, target) == pack(target)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-(2**23), 2**23), min_size=1), st.integers(-149, 100))
def test_multiples_of_a_power_of_two_are_converted_without_loss(
    factors: list[int], exponent: int
) -> None:
    target = {"w": np.ldexp(np.array(factors, np.float32), exponent)}
    base = {"w": np.ldexp(np.array(factors[::-1], np.float32), exponent)}
    assert through(base, target) == pack(target)
    assert content(base, target)[:2] != b"\xff\x7f"


def test_rounded_values_are_near_and_on_a_grid() -> None:
    values = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    weights: dict[str, Array] = {"w": values, "n": np.array([3])}
    near = rounded(weights)
    assert np.abs(near["w"] - values).max() <= 2.0**-16 * np.abs(values).max()
    assert content(None, {"w": near["w"]})[:2] != b"\xff\x7f"
    assert near["n"] is weights["n"]
    with pytest.raises(WireError, match="'w'") as caught:
        rounded(floats(1, np.nan))
    assert caught.value.code == "wire.not_finite"


def test_another_base_leads_elsewhere_in_silence() -> None:
    blob = encode_exact(floats(1, 2), floats(1.5, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for base in (floats(1, 2.5), floats(3e38, 1e-30), floats(np.inf, np.nan)):
            made = apply_exact(blob, base, None, max_bytes=LIMIT)
            assert pack(made) != pack(floats(1.5, 2))


def test_an_exponent_that_no_sender_writes_gives_no_warning() -> None:
    for exponent in (-32768, 127, 32766):
        section = struct.pack("<h", exponent) + bytes(3) + b"\x02"
        content = np.frombuffer(section, np.uint8)
        blob = compressed(HEADER, iter([(content, [content.size])]), content.size)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            apply_exact(blob, floats(1), None, max_bytes=LIMIT)


@pytest.mark.parametrize("base", [floats(1), {"v": np.ones(2, np.float32)}])
def test_a_base_of_another_form_is_refused(base: dict[str, Array]) -> None:
    with pytest.raises(WireError) as caught:
        encode_exact(base, floats(1, 2))
    assert caught.value.code == "wire.tensor"


def test_what_differs_from_the_expected_tensors_is_refused() -> None:
    blob = encode_exact(None, floats(1, 2))
    for expected, most in (({"w": TensorSpec("float32", (3,))}, LIMIT), (None, 7)):
        with pytest.raises(WireError) as caught:
            apply_exact(blob, None, expected, max_bytes=most)
        assert caught.value.code == "wire.tensor"


@settings(max_examples=30, deadline=None)
@given(damaged(encode_exact(None, {**floats(1, 2, 3), "n": np.array([True])})))
def test_damage_ends_in_an_error_or_in_other_arrays(blob: bytes) -> None:
    with contextlib.suppress(WireError):
        apply_exact(blob, None, None, max_bytes=LIMIT)
