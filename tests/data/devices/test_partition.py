"""Sharing a data set out, as the recipe says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgefed.data.base.types import Dataset
from edgefed.data.devices.partition import PARTITIONS, deal, label_counts, partition
from edgefed.data.partitioners.cover import Cover
from edgefed.data.partitioners.registry import PARTITIONERS
from edgefed.data.sets.datasets import load
from edgefed.errors import DataError, RecipeError
from tests.data.helpers import labelled, section

LABELS = np.repeat(np.arange(10), 40)
WITHOUT_FILE = [name for name in PARTITIONS if name != "histograms"]
FACTS: dict[str, Any] = {
    "groups": np.arange(400) % 20,
    "coarse": np.arange(10) // 2,
    "inputs": np.random.default_rng(0).random((400, 2), np.float32),
}


def _dataset() -> Dataset:
    samples = labelled(np.random.default_rng(0).permutation(LABELS))
    return Dataset(samples, samples, 10, (1,))


@pytest.mark.parametrize("name", WITHOUT_FILE)
def test_every_partition_repeats_with_its_generator(name: str) -> None:
    keys = section(partition=name, alpha=2.0, pieces=2, pieces_used=1, merge_groups=True)
    one, same, other = (
        partition(keys, LABELS, 8, 10, np.random.default_rng(seed), **FACTS) for seed in (1, 1, 2)
    )
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    together = np.concatenate(one)
    if PARTITIONERS[name].cover is Cover.SHARED:
        assert len(together) == 400
    elif PARTITIONERS[name].cover is Cover.SOME:
        assert len(np.unique(together)) == len(together) == 200
    else:
        assert np.array_equal(np.sort(together), np.arange(400))


def test_the_keys_of_the_section_reach_the_partition() -> None:
    def sizes(**keys: object) -> list[int]:
        rng = np.random.default_rng(4)
        return [len(part) for part in partition(section(**keys), LABELS, 8, 10, rng)]

    skewed = {"partition": "dirichlet", "alpha": 0.2, "balance": False}
    assert min(sizes(**skewed, min_samples=1)) < 20 <= min(sizes(**skewed, min_samples=20))
    assert sizes(**skewed) != sizes(**(skewed | {"balance": True}))
    three = partition(
        section(partition="classes", classes_per_device=3), LABELS, 8, 10, np.random.default_rng(0)
    )
    assert {len(np.unique(LABELS[part])) for part in three} == {3}


@pytest.mark.parametrize(
    ("keys", "devices", "message"),
    [
        (
            {"partition": "classes", "classes_per_device": 11},
            8,
            "11 labels, but there are 10",
        ),
        ({"partition": "iid"}, 401, "400 training samples cannot be divided among 401"),
        ({"partition": "classes"}, 300, "Label 0 has 40 samples for 60 devices"),
        ({"partition": "dirichlet", "min_samples": 51}, 8, "cannot give 8 devices 51 each"),
        ({"partition": "quantity", "min_samples": 51}, 8, "cannot give 8 devices 51 each"),
        ({"partition": "growing", "pieces_used": 2}, 8, "2 pieces, but there are 1"),
        ({"partition": "shards", "shards_per_device": 51}, 8, "cannot be cut into 408 shards"),
        ({"partition": "niid-label", "classes_per_device": 11}, 8, "needs 11 labels"),
        ({"partition": "disjoint-random"}, 4, "4 devices of 2 labels cannot hold all 10"),
        ({"partition": "natural"}, 8, "does not state who each sample is from"),
        ({"partition": "pachinko"}, 8, "does not state coarse labels"),
    ],
)
def test_what_cannot_be_shared_out_is_explained(
    keys: dict[str, object], devices: int, message: str
) -> None:
    with pytest.raises(DataError) as caught:
        partition(section(**keys), LABELS, devices, 10, np.random.default_rng(0))
    assert message in caught.value.message
    assert caught.value.hint
    assert caught.value.code == "data.partition"


def test_wrong_names_keys_and_labels_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(RecipeError, match="no partition 'dirichlt'") as caught:
        partition(section(partition="dirichlt"), LABELS, 8, 10, rng)
    assert caught.value.hint == "did you mean 'dirichlet'?"
    with pytest.raises(RecipeError, match="'min_samples' cannot be used"):
        partition(section(partition="dirichlet", min_samples=0), LABELS, 8, 10, rng)
    with pytest.raises(DataError, match="labels outside 0 to 8"):
        partition(section(partition="iid"), LABELS, 8, 9, rng)


def test_dealing_gives_each_device_its_own_samples_and_holdout() -> None:
    dataset = _dataset()
    shards = deal(dataset, section(), 20, holdout=0.25, seed=5)
    positions = np.concatenate(
        [part.inputs[:, 0] for shard in shards for part in (shard.train, shard.test)]
    )
    assert np.array_equal(np.sort(positions), np.arange(400))
    for shard in shards:
        assert (len(shard.train), len(shard.test), shard.classes) == (15, 5, 10)
        assert len(np.unique(shard.train.targets)) == 2
        assert np.array_equal(np.unique(shard.test.targets), np.unique(shard.train.targets))
        rows = shard.train.inputs[:, 0].astype(int)
        assert np.array_equal(dataset.train.targets[rows], shard.train.targets)


def test_the_same_seed_deals_the_same_shards() -> None:
    one, same, other = (deal(_dataset(), section(), 8, 0.1, seed) for seed in (5, 5, 6))
    assert all(
        np.array_equal(a.train.inputs, b.train.inputs)
        and np.array_equal(a.test.inputs, b.test.inputs)
        for a, b in zip(one, same, strict=True)
    )
    assert not np.array_equal(one[0].train.inputs, other[0].train.inputs)


@pytest.mark.parametrize("name", ["iid", "dirichlet", "growing"])
def test_a_device_with_several_parts_holds_the_samples_of_as_many_devices(name: str) -> None:
    dataset = _dataset()
    apart = deal(dataset, section(partition=name), 6, 0, seed=1)
    pooled = deal(dataset, section(partition=name, parts_per_device=3), 2, 0, seed=1)
    assert len(pooled) == 2
    for device, shard in enumerate(pooled):
        parts = apart[3 * device : 3 * device + 3]
        together = np.concatenate([part.train.inputs for part in parts])
        assert np.array_equal(shard.train.inputs, together)
    assert len(pooled[0].train) > len(apart[0].train)


def test_the_holdout_does_not_change_who_holds_what() -> None:
    for alone, split in zip(
        deal(_dataset(), section(), 8, 0, 5), deal(_dataset(), section(), 8, 0.5, 5), strict=True
    ):
        together = np.concatenate([split.train.inputs, split.test.inputs])
        assert set(together[:, 0]) == set(alone.train.inputs[:, 0])
        assert len(alone.test) == 0


def test_without_central_data_there_is_nothing_to_deal() -> None:
    keys = section(name="none")
    with pytest.raises(DataError, match="0 training samples"):
        deal(load(keys, None, seed=1), keys, 8, 0, seed=1)


def test_label_counts_name_every_class() -> None:
    assert label_counts(labelled(np.array([1, 1, 4])), 6) == (0, 2, 0, 0, 1, 0)
    assert label_counts(labelled(np.zeros(0, np.int64)), 2) == (0, 0)


@pytest.mark.parametrize("name", WITHOUT_FILE)
def test_who_gets_a_sample_and_in_which_order_is_drawn(name: str) -> None:
    """A data set is often sorted; neither runs of it nor its order may reach a device."""
    keys = section(partition=name, alpha=2.0, pieces=2, pieces_used=1)
    parts = partition(keys, LABELS, 8, 10, np.random.default_rng(3), **FACTS)
    assert not any(np.array_equal(part, np.sort(part)) for part in parts)
    mixed = [LABELS[part] for part in parts if len(np.unique(LABELS[part])) > 1]
    assert all(np.count_nonzero(np.diff(each)) >= len(np.unique(each)) for each in mixed)
    pieces = [np.sort(part[LABELS[part] == label]) for part in parts for label in range(10)]
    several = [piece for piece in pieces if 4 <= len(piece) < 36]
    runs = [piece for piece in several if np.ptp(piece) == len(piece) - 1]
    assert several or name == "natural"
    assert bool(runs) == (name == "shards")  # which hands out runs of the sorted labels
