"""Holding out samples in proportion to the labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.data.base.holdout import hold_out
from tests.data.helpers import labelled


@given(
    labels=st.lists(st.integers(0, 4), max_size=60),
    share=st.floats(0, 0.99),
    seed=st.integers(0, 2**32),
)
def test_the_parts_are_disjoint_whole_and_in_proportion(
    labels: list[int], share: float, seed: int
) -> None:
    samples = labelled(np.array(labels, np.int64))
    train, test = hold_out(samples, share, np.random.default_rng(seed))
    positions = np.concatenate([train.inputs[:, 0], test.inputs[:, 0]])
    assert np.array_equal(np.sort(positions), np.arange(len(labels)))
    assert np.array_equal(np.sort(train.inputs[:, 0]), train.inputs[:, 0])
    for part in (train, test):
        assert np.array_equal(part.targets, samples.targets[part.inputs[:, 0].astype(int)])
    if labels:
        assert len(train) >= 1
        assert abs(len(test) - share * len(labels)) <= 1
        counts = np.bincount(labels, minlength=5)
        exact = len(test) * counts / len(labels)
        assert (np.abs(np.bincount(test.targets, minlength=5) - exact) <= 1).all()


def test_the_same_generator_gives_the_same_split() -> None:
    samples = labelled(np.arange(50) % 3)
    one, same, other = (hold_out(samples, 0.3, np.random.default_rng(s))[1] for s in (1, 1, 2))
    assert np.array_equal(one.inputs, same.inputs)
    assert not np.array_equal(one.inputs, other.inputs)


@pytest.mark.parametrize(
    ("samples", "share", "held"), [(10, 0, 0), (1, 0.5, 0), (2, 0.01, 1), (30, 0.1, 3), (0, 0.5, 0)]
)
def test_a_share_is_rounded_up_but_training_keeps_one(
    samples: int, share: float, held: int
) -> None:
    train, test = hold_out(labelled(np.zeros(samples, np.int64)), share, np.random.default_rng(0))
    assert (len(train), len(test)) == (samples - held, held)
    assert test.inputs.shape == (held, 1)


def test_a_label_with_one_sample_stays_in_training() -> None:
    labels = np.array([0] * 8 + [1] + [2])
    for seed in range(5):
        _, test = hold_out(labelled(labels), 0.2, np.random.default_rng(seed))
        assert np.array_equal(test.targets, [0, 0])
