"""The digits of scikit-learn."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from edgefed.data.base.types import Dataset
from edgefed.data.sets.datasets import load
from edgefed.errors import DataError
from tests.data.helpers import section


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load(section(name="digits"), None, seed=1)


def test_every_digit_is_in_one_of_two_parts(digits: Dataset) -> None:
    assert (len(digits.train), len(digits.test)) == (1437, 360)
    assert digits.classes == 10
    assert digits.shape == (1, 8, 8)
    assert digits.train.inputs.shape == (1437, 1, 8, 8)


def test_inputs_are_float32_from_0_to_1(digits: Dataset) -> None:
    assert digits.train.inputs.dtype == digits.test.inputs.dtype == np.float32
    assert digits.train.targets.dtype == np.int64
    assert (digits.train.inputs.min(), digits.train.inputs.max()) == (0, 1)


def test_the_test_part_holds_every_digit_in_proportion(digits: Dataset) -> None:
    train, test = (np.bincount(part.targets) for part in (digits.train, digits.test))
    assert np.abs(test - 0.2 * (train + test)).max() <= 1


def test_runs_with_different_seeds_share_one_split(digits: Dataset) -> None:
    other = load(section(name="digits"), None, seed=2)
    assert np.array_equal(other.test.inputs, digits.test.inputs)
    assert np.array_equal(other.train.targets, digits.train.targets)


def test_they_are_those_of_scikit_learn_wherever_it_keeps_them(
    digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgefed.data.sets.digits.FILE", "moved.csv.gz")
    theirs = load(section(name="digits"), None, seed=1)
    for ours, part in ((digits.train, theirs.train), (digits.test, theirs.test)):
        assert np.array_equal(ours.inputs, part.inputs)
        assert np.array_equal(ours.targets, part.targets)
        assert ours.targets.dtype == part.targets.dtype


def test_without_scikit_learn_the_hint_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(DataError) as caught:
        load(section(name="digits"), None, seed=1)
    assert caught.value.hint == "pip install 'edgefed[demo]'"
