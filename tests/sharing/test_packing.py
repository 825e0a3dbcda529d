"""Packed averages: precision of the encoding, and damaged input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgefed.errors import DataError
from edgefed.sharing.packing import check_fits, pack, unpack
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
        ({"targets": np.full((3, 4), np.nan, np.float32)}, "NaN"),
        ({"scale": np.zeros(2, np.float32)}, "scale is not one number for each entry"),
        ({"offset": np.full(3, np.inf, np.float32)}, "infinity"),
        ({"inputs": np.zeros((0, 2, 2), np.uint8), "targets": np.zeros((0, 4), np.float32)}, "0"),
    ],
)
def test_what_is_no_averaged_data_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        unpack({**packed(), **change})


def test_nothing_is_no_averaged_data() -> None:
    with pytest.raises(DataError, match="holds nothing"):
        unpack({})


def test_averages_of_another_run_are_told_from_ours() -> None:
    check_fits(packed(), (2, 2), 4)
    with pytest.raises(DataError, match=r"inputs are \(2, 2\), not \(1, 8, 8\)"):
        check_fits(packed(), (1, 8, 8), 4)
    with pytest.raises(DataError, match=r"targets are \(4,\), not \(10,\)"):
        check_fits(packed(), (2, 2), 10)
