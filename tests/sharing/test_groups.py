"""Groups of samples to average, and their minimum size."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edgefed.files.samples import Samples
from edgefed.sharing.groups import class_groups, random_groups


@given(st.integers(0, 300), st.integers(0, 400), st.integers(0, 9))
def test_every_sample_is_in_one_group_and_none_is_small(count: int, size: int, seed: int) -> None:
    groups = random_groups(count, size, np.random.default_rng(seed))
    assert sorted(np.concatenate(groups)) == list(range(count)) if groups else count == 0
    smallest = min((len(group) for group in groups), default=count)
    assert smallest >= min(size or count, count)
    assert len(groups) == (max(1, count // size) if size and count else min(1, count))


def test_the_rest_is_spread() -> None:
    groups = random_groups(11, 4, np.random.default_rng(1))
    assert sorted(len(group) for group in groups) == [5, 6]


def test_groups_are_drawn_at_random() -> None:
    first, other = (random_groups(40, 20, np.random.default_rng(seed))[0] for seed in (1, 2))
    assert set(first) != set(other)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 9))
def test_groups_of_one_label(labels: list[int], size: int) -> None:
    targets = np.array(labels)
    samples = Samples(np.zeros((len(targets), 2), np.float32), targets)
    groups = class_groups(samples, size, np.random.default_rng(1))
    assert sorted(np.concatenate(groups)) == list(range(len(labels)))
    for group in groups:
        (label,) = set(targets[group])
        count = labels.count(label)
        assert len(group) >= min(size or count, count)
    for label in set(labels):
        count = labels.count(label)
        wanted = max(1, count // size) if size else 1
        assert sum(targets[group[0]] == label for group in groups) == wanted
