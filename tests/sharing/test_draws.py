"""The draws of averaged data do not drift: another release makes the same of the same data."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from edgefed.files.samples import Samples
from edgefed.sharing.means import Averaging, average, own_word
from edgefed.sharing.policy import ANYTHING
from edgefed.sharing.pooled_means import as_noise, stack
from edgefed.sharing.types import Array, Entries

TWELVE = Samples(np.arange(12, dtype=np.float32)[:, None], np.arange(12) % 3)


def digest(*arrays: Array) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (Averaging(4), "262a544740af9f96"),
        (Averaging(4, same_class=True), "df52495f8df5c291"),
        (Averaging(4, noise=0.5), "bf1b801bffdfa9ff"),
    ],
    ids=["groups", "labels apart", "noise"],
)
def test_what_a_device_makes_of_its_samples(asked: Averaging, wanted: str) -> None:
    entries, _ = average(TWELVE, 3, None, asked, ANYTHING)
    assert entries.inputs.dtype == entries.targets.dtype == np.float32
    assert digest(entries.inputs, entries.targets) == wanted


def test_the_word_of_the_data_is_that_of_the_release_before() -> None:
    """Else the coordinator takes every device's data for changed, and asks all of them again."""
    assert own_word(TWELVE, "device-00") == "03ffe79a8121d772"


def test_the_layout_in_memory_changes_no_word() -> None:
    inputs, targets = np.arange(24, dtype=np.float32).reshape(12, 2), np.arange(24)[::2]
    strided = Samples(inputs.T.copy().T, targets)
    assert not strided.inputs.flags.c_contiguous and not strided.targets.flags.c_contiguous
    assert own_word(strided, "a") == own_word(Samples(inputs, targets.copy()), "a")


def test_what_the_coordinator_makes_of_the_averages() -> None:
    entries = Entries(TWELVE.inputs, np.eye(3, dtype=np.float32)[TWELVE.targets])
    stacked, _ = stack({"a": entries}, 7)
    assert digest(stacked.inputs, stacked.targets) == "0774aaffc40ce33e"
    assert digest(as_noise(entries, 7).inputs) == "b135489a6540a0a7"


def test_groups_of_another_size_are_drawn_anew() -> None:
    """Halves of a group beside that group would tell each half's difference from it."""
    (few, _), (many, _) = (average(TWELVE, 3, None, Averaging(size), ANYTHING) for size in (4, 2))
    pairs = many.inputs[:, None, 0] + many.inputs[None, :, 0]
    assert not np.isin(few.inputs[:, 0], pairs / 2).all()


def test_another_seed_makes_other_noise() -> None:
    entries = Entries(TWELVE.inputs, TWELVE.inputs)
    assert not np.isin(as_noise(entries, 1).inputs, as_noise(entries, 2).inputs).any()
