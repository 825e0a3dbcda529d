"""The loaders on real files, if they are available beside the repository."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgefed.data.devices.partition import deal, label_counts
from edgefed.data.sets.datasets import load
from edgefed.data.sets.vision import FASHION_MNIST
from tests.data.helpers import section

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
MNIST_FILE = SHARED / "mnist" / "mnist.npz"
CIFAR_FILE = SHARED / "cifar10" / "cifar10_jpeg.npz"
FASHION_FILE = SHARED / "fashion_mnist" / "fashion_mnist.npz"
ROLES_FILE = SHARED / "shakespeare" / "shakespeare_roles.jsonl"
ABSENT = "the real data is not on this machine"


@pytest.mark.skipif(not MNIST_FILE.is_file(), reason=ABSENT)
def test_mnist_loads_and_is_shared_out() -> None:
    keys = section(name="npz", path=MNIST_FILE.name)
    dataset = load(keys, MNIST_FILE.parent, seed=1)
    assert dataset.train.inputs.shape == (60_000, 1, 28, 28)
    assert (len(dataset.test), dataset.classes, dataset.shape) == (10_000, 10, (1, 28, 28))
    assert (dataset.train.inputs.min(), dataset.train.inputs.max()) == (0, 1)
    assert label_counts(dataset.test, 10) == (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)
    shards = deal(dataset, keys, 60, holdout=0, seed=1)
    assert sum(len(shard.train) for shard in shards) == 60_000
    assert {len(np.unique(shard.train.targets)) for shard in shards} == {2}
    assert dataset.groups is not None
    sizes = np.bincount(dataset.groups)
    assert (len(sizes), sizes.min(), sizes.max()) == (539, 19, 131)
    natural = deal(dataset, section(partition="natural"), 539, holdout=0, seed=1)
    assert sorted(len(shard.train) for shard in natural) == sorted(sizes.tolist())


@pytest.mark.skipif(not FASHION_FILE.is_file(), reason=ABSENT)
def test_fashion_mnist_has_the_moments_that_papers_state() -> None:
    dataset = load(section(name="npz", path=str(FASHION_FILE), normalize=True), None, seed=1)
    moments = FASHION_MNIST.moments
    assert moments is not None
    assert dataset.preparation.mean == pytest.approx(moments.mean, abs=1e-4)
    assert dataset.preparation.std == pytest.approx(moments.std, abs=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(not CIFAR_FILE.is_file(), reason=ABSENT)
def test_cifar10_is_decoded_and_kept(tmp_path: Path) -> None:
    keys = section(name="npz", path=str(CIFAR_FILE), normalize=True)
    dataset = load(keys, tmp_path, seed=1)
    assert dataset.train.inputs.shape == (50_000, 3, 32, 32)
    assert dataset.preparation.mean == pytest.approx((0.4913, 0.4821, 0.4465), abs=1e-4)
    assert dataset.preparation.std == pytest.approx((0.2452, 0.2428, 0.2606), abs=1e-4)
    assert len(list((tmp_path / "decoded").glob("jpeg-*.npy"))) == 2


@pytest.mark.skipif(not ROLES_FILE.is_file(), reason=ABSENT)
def test_shakespeare_has_sixty_roles_of_two_hundred_samples() -> None:
    keys = section(
        name="shakespeare",
        path=str(ROLES_FILE),
        stride=20,
        partition="natural",
        min_samples=200,
    )
    dataset = load(keys, None, seed=1)
    assert (dataset.classes, dataset.shape) == (80, (80,))
    shards = deal(dataset, keys, 60, holdout=0, seed=1)
    assert min(len(shard.train) for shard in shards) >= 200
