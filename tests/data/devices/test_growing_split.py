"""Samples stay in their part while a device's data grow, whatever their order."""

from __future__ import annotations

import numpy as np
import pytest

from edgefed.data.base.holdout import hold_out
from edgefed.data.base.types import joined
from edgefed.data.devices.growing_split import GrowingSplit, first_split
from edgefed.files.samples import Samples
from edgefed.seeds import generator

SHARE = 0.2
NAMES = ("cat", "dog")


def samples(count: int, start: int = 0) -> Samples:
    """Return samples of which no two are equal, of two labels."""
    numbers = np.arange(start, start + count)
    rng = [np.random.default_rng(number).standard_normal(4) for number in numbers]
    return Samples(np.array(rng, np.float32), numbers % 2)


def inputs(part: Samples) -> set[bytes]:
    return {row.tobytes() for row in part.inputs}


def test_the_first_split_has_a_share_of_each_label_whatever_the_order() -> None:
    whole = samples(50)
    train, test = first_split(whole, (), SHARE, by_order=False).parts(whole)
    assert (len(train), np.bincount(test.targets).tolist()) == (40, [5, 5])
    shuffled = whole.take(np.random.default_rng(1).permutation(50))
    again = first_split(shuffled, (), SHARE, by_order=False).parts(shuffled)[1]
    assert inputs(again) == inputs(test)


@pytest.mark.parametrize("by_order", [False, True])
def test_no_sample_moves_when_others_come_between_and_are_removed(by_order: bool) -> None:
    first = samples(50)
    split = first_split(first, (), SHARE, by_order=by_order)
    train, test = split.parts(first)
    if by_order:
        old = hold_out(first, SHARE, generator(0, "data", "device", "holdout"))
        assert [part.inputs.tobytes() for part in old] == [
            part.inputs.tobytes() for part in (train, test)
        ]
    grown = joined([samples(1000, 50), first, samples(1000, 1050)])
    more, held = split.parts(grown)
    assert inputs(held) & inputs(first) == inputs(test)
    assert 0.17 * 2000 < len(held) - len(test) < 0.23 * 2000
    assert split.parts(more)[1].inputs.size == 0, "no sample of those trained on is held out"


def test_the_numbers_of_labels_play_no_part_where_they_have_names() -> None:
    whole = samples(50)
    split = first_split(whole, NAMES, SHARE, by_order=False)
    renumbered = Samples(whole.inputs, whole.targets + 1)
    assert inputs(split.parts(renumbered, ("bee", *NAMES))[1]) == inputs(
        split.parts(whole, NAMES)[1]
    )


def test_of_equal_samples_as_many_stay_held_out() -> None:
    equal = Samples(np.zeros((20, 4), np.float32), np.zeros(20, np.int64))
    split = first_split(equal, (), SHARE, by_order=False)
    assert [len(part) for part in split.parts(equal)] == [16, 4]
    _, held = split.parts(joined([samples(10), equal]))
    assert (held.inputs == 0).all(axis=1).sum() == 4


def test_one_sample_is_left_for_training() -> None:
    none = np.zeros(0, np.uint64)
    train, test = GrowingSplit(0.999999, none, none).parts(samples(5))
    assert (len(train), len(test)) == (1, 4)
