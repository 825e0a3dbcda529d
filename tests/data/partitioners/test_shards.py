"""Shards on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgefed.data.base.types import Dataset, Shard
from edgefed.data.devices.partition import deal
from edgefed.data.devices.shard_files import read_shard, write_shard
from edgefed.data.devices.sources import load_device
from edgefed.errors import DataError, StorageError
from edgefed.files.samples import Samples
from tests.data.helpers import section, write_npz


def _shards(holdout: float) -> Sequence[Shard]:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 1, 4, 4)).astype(np.float32)
    # Bits that a careless conversion loses: the smallest denormal and a negative zero.
    inputs[:, 0, 0, 0], inputs[:, 0, 0, 1] = np.float32(1e-45), np.float32(-0.0)
    samples = Samples(inputs, rng.permutation(np.arange(60) % 6))
    dataset = Dataset(samples, samples, 8, (1, 4, 4))
    return deal(dataset, section(partition="classes", classes_per_device=2), 6, holdout, seed=3)


def _same_bits(one: Samples, other: Samples) -> bool:
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in ((one.inputs, other.inputs), (one.targets, other.targets))
    )


@pytest.mark.parametrize("holdout", [0.0, 0.25])
def test_a_shard_and_the_agent_that_reads_it_see_the_same_bits(
    tmp_path: Path, holdout: float
) -> None:
    for index, shard in enumerate(_shards(holdout)):
        path = tmp_path / "shards" / f"device-{index}.npz"
        write_shard(path, shard)
        assert [entry.name for entry in path.parent.glob(".*")] == []
        read, data = read_shard(path), load_device(f"npz:{path}", holdout=0.1)
        for part in (read, data):
            assert _same_bits(part.train, shard.train)
            assert _same_bits(part.test, shard.test)
            assert part.classes == shard.classes == 8
        assert data.shape == (1, 4, 4)
        assert data.name == f"device-{index}"
        assert (len(shard.test) > 0) == (holdout > 0)


def test_a_shard_replaces_an_older_one_and_the_same_shard_is_the_same_file(tmp_path: Path) -> None:
    first, second = _shards(0.25)[:2]
    write_shard(tmp_path / "a.npz", first)
    write_shard(tmp_path / "a.npz", second)
    write_shard(tmp_path / "b.npz", second)
    assert _same_bits(read_shard(tmp_path / "a.npz").train, second.train)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_shard_without_a_test_part_has_an_empty_one(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz", x=np.zeros((4, 2, 3), np.float32), y=np.arange(4))
    assert read_shard(path).test.inputs.shape == (0, 2, 3)


def test_trouble_with_the_file_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=str(tmp_path)):
        write_shard(tmp_path, _shards(0)[0])
    with pytest.raises(DataError, match=str(tmp_path)):
        read_shard(tmp_path)
