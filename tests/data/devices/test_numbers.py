"""Targets that are numbers: read, held out, shared out, and refused where labels are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.config.recipes.recipe import DataSection
from edgefed.data.base.holdout import hold_out
from edgefed.data.devices.partition import PARTITIONS, deal, label_counts
from edgefed.data.devices.shard_files import read_shard, write_shard
from edgefed.data.devices.sources import load_device
from edgefed.data.sets.datasets import load
from edgefed.data.sets.npz import read_npz
from edgefed.errors import DataError
from tests.data.helpers import section, write_npz
from tests.numbers import numbers, write_numbers

UNLABELLED = ("clusters", "iid", "natural", "quantity")
X = np.zeros((4, 2), np.float32)
Y = np.array([0.5, -1.0, 2.0, 7.25])


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("outputs", "shape"), [(1, (4,)), (1, (4, 1)), (2, (4, 2))])
def test_floats_are_numbers_and_keep_their_values(
    tmp_path: Path, kind: Any, outputs: int, shape: tuple[int, ...]
) -> None:
    y = np.broadcast_to(Y.reshape(-1, *[1] * (len(shape) - 1)), shape).astype(kind)
    content = read_npz(write_npz(tmp_path / "a.npz", x=X, y=y))
    assert content.classes == outputs
    assert content.train.targets.dtype == np.float32
    np.testing.assert_array_equal(content.train.targets, np.tile(Y[:, None], outputs))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": Y[:3]}, "4 inputs but 3 targets"),
        ({"y": np.zeros((4, 2, 2))}, "targets of shape (4, 2, 2)"),
        ({"y": np.zeros((4, 0))}, "targets of shape (4, 0)"),
        ({"y": np.array([0, 1, np.nan, 2])}, "a target that is not a finite number, in sample 2"),
        ({"y": np.array([0, 1e300, 0, 2])}, "a target that is not a finite number, in sample 1"),
        ({"y": Y, "classes": np.int64(3)}, "declares 3 outputs but its targets have 1"),
        ({"y": Y, "x_test": X, "y_test": np.arange(4)}, "but test targets of type int64"),
        ({"y": Y, "x_test": X, "y_test": np.zeros((4, 2))}, "and shape (4, 2)"),
        ({"y": np.zeros((4, 5000))}, "needs 5000 classes"),
        ({"y": Y, "x": np.zeros((4, 2), int), "vocabulary": np.int64(4)}, "not one integer"),
    ],
)
def test_numbers_that_cannot_be_trained_on_are_named_with_their_file(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    path = write_npz(tmp_path / "a.npz", **{"x": X, **arrays})
    with pytest.raises(DataError) as caught:
        read_npz(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_any_samples_are_held_out_and_none_is_lost() -> None:
    samples = numbers(30, 1)
    train, test = hold_out(samples, 0.2, np.random.default_rng(0))
    assert (train.targets.shape, test.targets.shape) == ((24, 2), (6, 2))
    together = np.vstack([train.targets, test.targets])
    assert {row.tobytes() for row in together} == {row.tobytes() for row in samples.targets}
    assert not hold_out(samples, 0, np.random.default_rng(0))[1].has_labels


def _section(folder: Path, **keys: Any) -> DataSection:
    rng = np.random.default_rng(0)
    arrays = {"x": rng.random((90, 2)), "y": rng.random((90, 1)), "groups_train": np.arange(90) % 6}
    path = write_npz(folder / "all.npz", **arrays)
    return section(name="npz", path=str(path), test_share=0.0, min_samples=5, **keys)


@pytest.mark.parametrize("partition", UNLABELLED)
def test_what_needs_no_labels_shares_every_sample_out(tmp_path: Path, partition: str) -> None:
    chosen = _section(tmp_path, partition=partition, alpha=5.0)
    dataset = load(chosen, None, 1)
    shards = deal(dataset, chosen, 6, 0.2, 1)
    targets = [np.vstack([shard.train.targets, shard.test.targets]) for shard in shards]
    assert sum(map(len, targets)) == 90
    dealt, whole = np.vstack(targets)[:, 0], dataset.train.targets[:, 0]
    assert set(dealt.tolist()) == set(whole.tolist())
    assert {shard.classes for shard in shards} == {1}
    assert label_counts(shards[0].train, 1) == ()


@pytest.mark.parametrize("partition", sorted({*PARTITIONS} - {*UNLABELLED}))
def test_what_goes_by_labels_is_refused_in_one_line(tmp_path: Path, partition: str) -> None:
    chosen = _section(tmp_path, partition=partition)
    with pytest.raises(DataError) as caught:
        deal(load(chosen, None, 1), chosen, 3, 0.0, 1)
    assert caught.value.code == "data.partition"
    assert caught.value.message == (
        f"The partition '{partition}' needs labels, but the targets of data set 'npz' are numbers."
    )
    assert caught.value.hint == "set data.partition to one of natural, quantity, clusters, iid"


@pytest.mark.parametrize("transform", ["greyscale", "permutation"])
def test_transforms_of_labels_are_refused(tmp_path: Path, transform: str) -> None:
    with pytest.raises(DataError, match="needs labels") as caught:
        load(_section(tmp_path, transform=transform), None, 1)
    assert caught.value.code == "data.transform"


def test_a_device_reads_numbers_and_keeps_some_for_testing(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "own.npz", x=np.zeros((10, 2)), y=np.arange(10) / 7)
    found = load_device(f"npz:{path}", 0.2)
    assert (found.train.targets.shape, found.test.targets.shape) == ((8, 1), (2, 1))
    assert found.classes == 1


def test_a_shard_of_numbers_reads_back_bit_for_bit(tmp_path: Path) -> None:
    chosen = section(name="npz", path=str(write_numbers(tmp_path / "all.npz")), partition="iid")
    shard = deal(load(chosen, None, 1), chosen, 3, 0.25, 1)[0]
    write_shard(tmp_path / "one.npz", shard)
    again = read_shard(tmp_path / "one.npz")
    for before, after in ((shard.train, again.train), (shard.test, again.test)):
        assert before.targets.tobytes() == after.targets.tobytes()
        assert before.targets.shape == after.targets.shape
    assert again.classes == shard.classes == 2
