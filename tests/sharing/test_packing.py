"""Packed averages: precision of the encoding, and damaged input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgefed.errors import DataError
from edgefed.sharing.packing import (
    ROUNDING,
    are_shares,
    check_fits,
    check_shares,
    pack,
    unpack,
)
from edgefed.sharing.types import Entries

inputs_of = arrays(
    np.float32, (3, 2, 2), elements=st.floats(-100, 100, width=32, allow_subnormal=False)
)


def entries(inputs: Any) -> Entries:
    return Entries(inputs, np.full((len(inputs), 4), 0.25, np.float32))


@given(inputs_of)
def test_a_byte_is_off_by_at_most_half_a_step(inputs: Any) -> None:
    packed = pack(entries(inputs), as_bytes=True)
    assert packed["inputs"].dtype == np.uint8
    found = unpack(packed)
    step = np.ptp(inputs.astype(float).reshape(3, -1), axis=1)[:, None, None] / 255
    assert (np.abs(found.inputs.astype(float) - inputs) <= step / 2 * 1.001 + 1e-4).all()
    np.testing.assert_array_equal(found.targets, entries(inputs).targets)


def test_a_range_too_narrow_for_a_step_still_packs() -> None:
    found = unpack(pack(entries(np.array([[0], [1e-44], [2e-44]], np.float32)), as_bytes=True))
    assert np.abs(found.inputs).max() <= 2e-44


def test_a_scale_that_is_rounded_down_cuts_the_largest_off_and_wraps_nothing_around() -> None:
    """380 of the least floats / 255 is nearest to one of them, and so 380 would be the code."""
    least = np.finfo(np.float32).smallest_subnormal
    found = unpack(pack(entries(np.array([[0, 200, 380]], np.float32) * least), as_bytes=True))
    np.testing.assert_array_equal(found.inputs / least, [[0, 200, 255]])


@given(inputs_of)
def test_numbers_travel_as_they_are(inputs: Any) -> None:
    found = unpack(pack(entries(inputs), as_bytes=False))
    assert found.inputs.tobytes() == inputs.tobytes()


def packed() -> dict[str, Any]:
    return pack(entries(np.arange(12, dtype=np.float32).reshape(3, 2, 2)), as_bytes=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"extra": np.zeros(1, np.float32)}, "it holds"),
        ({"inputs": np.zeros((3, 2, 2), np.int32)}, "it holds|another kind"),
        ({"targets": np.zeros((2, 4), np.float32)}, r"inputs \(3, 2, 2\) and targets \(2, 4\)"),
        ({"targets": np.full((3, 4), np.nan, np.float32)}, "^.*holds NaN"),
        ({"targets": np.zeros((3, 4, 1), np.float32)}, r"targets \(3, 4, 1\)"),
        ({"targets": np.zeros((3, 4))}, "another kind"),
        ({"scale": np.ones(3)}, "another kind"),
        ({"offset": np.zeros((3, 1), np.float32)}, "offset is not one number for each entry"),
        ({"scale": np.zeros(2, np.float32)}, "scale is not one number for each entry"),
        ({"offset": np.full(3, np.inf, np.float32)}, "infinity"),
        ({"inputs": np.zeros((0, 2, 2), np.uint8), "targets": np.zeros((0, 4), np.float32)}, "0"),
    ],
)
def test_what_is_no_averaged_data_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        unpack({**packed(), **change})
    assert caught.value.code == "share.malformed"


@pytest.mark.parametrize(
    "change", [{"inputs": np.zeros((3, 4))}, {"inputs": np.zeros((3, 4), int)}]
)
def test_numbers_of_another_kind_are_refused_without_a_scale_too(change: dict[str, Any]) -> None:
    plain = pack(entries(np.zeros((3, 4), np.float32)), as_bytes=False)
    with pytest.raises(DataError, match="another kind") as caught:
        check_fits({**plain, **change}, (4,), 4)
    assert caught.value.code == "share.malformed"


def test_entries_of_one_number_have_a_dimension_for_it() -> None:
    plain = pack(entries(np.zeros((3, 1), np.float32)), as_bytes=False)
    with pytest.raises(DataError, match=r"inputs \(3,\)"):
        unpack({**plain, "inputs": np.zeros(3, np.float32)})


@pytest.mark.parametrize(
    ("rows", "fit"),
    [
        ([], True),
        ([[0.25, 0.75], [1, 0]], True),
        ([[0.5, 0.5 + ROUNDING / 2]], True),
        ([[0.5, 0.5 + 2 * ROUNDING]], False),
        ([[0.5, 0.5 - 2 * ROUNDING]], False),
        ([[0.5, 0.5], [1.5, -0.5]], False),
    ],
)
def test_shares_of_labels_come_to_one(rows: list[list[float]], fit: bool) -> None:
    targets = np.array(rows, np.float32).reshape(-1, 2)
    assert are_shares(targets) is fit
    if fit:
        check_shares({"targets": targets})
        return
    with pytest.raises(DataError, match="not label distributions") as caught:
        check_shares({"targets": targets})
    assert caught.value.code == "share.malformed"


def test_nothing_is_no_averaged_data() -> None:
    with pytest.raises(DataError, match="holds nothing"):
        unpack({})


def test_averages_of_another_run_are_told_from_ours() -> None:
    check_fits(packed(), (2, 2), 4)
    for shape, classes, said in (
        ((1, 8, 8), 4, r"inputs are \(2, 2\), not \(1, 8, 8\)"),
        ((2, 2), 10, r"targets are \(4,\), not \(10,\)"),
    ):
        with pytest.raises(DataError, match=said) as caught:
            check_fits(packed(), shape, classes)
        assert caught.value.code == "share.foreign"
