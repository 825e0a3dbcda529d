"""The partition by clusters of inputs, and partitions of packages that see inputs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.data.base.types import Array, Dataset, Indices
from edgefed.data.devices.partition import concentration, deal
from edgefed.data.partitioners.clusters import input_clusters
from edgefed.data.partitioners.cover import Cover, Parts
from edgefed.data.partitioners.registry import PARTITION_PLUGINS, Partitioner, PartitionRequest
from edgefed.data.sets.datasets import load
from edgefed.errors import DataError, RecipeError
from edgefed.files.samples import Samples
from edgefed.testing.partitioners import check_partitioner
from tests.data.helpers import section, write_image, write_npz

MODEST = settings(max_examples=25, deadline=None)


def _blobs(kinds: Indices, shape: tuple[int, ...], apart: float = 20.0) -> Array:
    """Return inputs near a point that each kind has for itself."""
    rng = np.random.default_rng(0)
    middles = rng.normal(size=(int(kinds.max()) + 1, *shape)) * apart
    return (middles[kinds] + rng.normal(size=(len(kinds), *shape))).astype(np.float32)


def _dataset(kinds: Indices, shape: tuple[int, ...] = (1, 8, 8)) -> Dataset:
    """Return data whose labels say nothing of the kinds of their inputs."""
    labels = np.random.default_rng(1).integers(0, 10, len(kinds))
    samples = Samples(_blobs(kinds, shape), labels, {"kind": kinds})
    return Dataset(samples, samples, 10, shape)


@MODEST
@given(st.integers(1, 8), st.integers(0, 2**32), st.sampled_from([(3,), (40,), (1, 9, 9)]))
def test_separate_clusters_are_recovered(count: int, seed: int, shape: tuple[int, ...]) -> None:
    kinds = np.random.default_rng(seed).permutation(np.repeat(np.arange(count), 30))
    clusters = input_clusters(_blobs(kinds, shape, 5000), count, np.random.default_rng(seed))
    pairs = set(zip(kinds.tolist(), clusters.tolist(), strict=True))
    assert len(pairs) == count == len(np.unique(clusters))


@MODEST
@given(st.integers(2, 4), st.integers(0, 2**32))
def test_each_input_is_nearest_to_the_mean_of_its_own_cluster(count: int, seed: int) -> None:
    points = np.random.default_rng(seed).random((40, 2), np.float32)
    clusters = input_clusters(points, count, np.random.default_rng(seed))
    means = np.stack([points[clusters == number].mean(axis=0) for number in range(count)])
    distances = np.linalg.norm(points[:, None] - means, axis=2)
    assert np.allclose(distances[np.arange(40), clusters], distances.min(axis=1), atol=1e-5)


def test_two_clusters_by_hand() -> None:
    # From any two of these points as centres, k-means ends with the means 1 and 11.
    line = np.array([[0], [1], [2], [10], [11], [12]], np.float32)
    clusters = input_clusters(line, 2, np.random.default_rng(3))
    assert len(set(clusters[:3])) == len(set(clusters[3:])) == 1
    assert clusters[0] != clusters[3]


def test_more_clusters_than_different_inputs_are_empty_ones() -> None:
    clusters = input_clusters(np.ones((20, 3), np.float32), 5, np.random.default_rng(0))
    assert np.unique(clusters).tolist() == [0]


def test_with_a_small_alpha_a_device_holds_one_cluster_and_all_labels() -> None:
    kinds = np.repeat(np.arange(4), 200)
    keys = section(partition="clusters", clusters=4, alpha=0.01, min_samples=50)
    shards = deal(_dataset(kinds), keys, 4, 0, seed=1)
    assert sum(len(shard.train) for shard in shards) == 800
    for shard in shards:
        shares = np.bincount(shard.train.columns["kind"], minlength=4) / len(shard.train)
        assert shares.max() > 0.9
        assert len(np.unique(shard.train.targets)) == 10
    even = deal(_dataset(kinds), section(partition="clusters", clusters=4, alpha=1e6), 4, 0, seed=1)
    for shard in even:
        assert np.bincount(shard.train.columns["kind"], minlength=4).min() > 45


def test_the_same_seed_gives_the_same_parts_and_another_seed_others() -> None:
    data = _dataset(np.repeat(np.arange(4), 50))
    keys = section(partition="clusters", clusters=7)
    one, same, other = (
        [shard.train.inputs.tobytes() for shard in deal(data, keys, 3, 0, seed)]
        for seed in (1, 1, 2)
    )
    assert one == same != other


def test_a_folder_of_images_has_the_parts_of_the_same_images_as_floats(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, 40)
    for number, value in enumerate(values):
        write_image(tmp_path / "photos" / "a" / f"{number:02d}.png", (4, 4), int(value))
        write_image(tmp_path / "photos" / "b" / f"{number:02d}.png", (4, 4), int(255 - value))
    keys: dict[str, Any] = {"partition": "clusters", "clusters": 3, "min_samples": 1, "alpha": 1.0}
    folder = load(section(name="folder", path="photos", test_share=0, **keys), tmp_path, 1)
    floats = Samples(folder.train.float_inputs(), folder.train.targets)
    write_npz(tmp_path / "x.npz", x=floats.inputs, y=floats.targets)
    npz = load(section(name="npz", path="x.npz", test_share=0, **keys), tmp_path, 1)
    dealt = [deal(data, section(**keys), 3, 0, seed=1) for data in (folder, npz)]
    for one, other in zip(*dealt, strict=True):
        assert np.array_equal(one.train.float_inputs(), other.train.inputs)


def test_what_cannot_be_clustered_is_refused() -> None:
    tokens = Samples(np.arange(120).reshape(24, 5), np.zeros(24, np.int64))
    keys = section(partition="clusters")
    for samples, said in (
        (tokens, "tokens of a text"),
        (_dataset(np.arange(8)).train, "10 clusters"),
    ):
        data = Dataset(samples, samples, 10, samples.inputs.shape[1:])
        with pytest.raises(DataError, match=said) as caught:
            deal(data, keys, 2, 0, seed=1)
        assert caught.value.code == "data.partition"
    with pytest.raises(RecipeError, match="clusters"):
        deal(_dataset(np.arange(8)), section(partition="clusters", clusters=0), 2, 0, seed=1)


def test_it_needs_no_labels_and_says_what_it_draws_from() -> None:
    data = _dataset(np.repeat(np.arange(3), 40))
    numbers = Samples(data.train.inputs, np.zeros((120, 2), np.float32))
    keys = section(partition="clusters", alpha=3.0, clusters=3)
    assert len(deal(Dataset(numbers, numbers, 2, (1, 8, 8)), keys, 2, 0, seed=1)) == 2
    assert concentration(keys, data.train.targets, 2) == {
        "axis": "devices, for each cluster",
        "components": 2,
        "values": [3.0],
    }


def _by_brightness(request: PartitionRequest, rng: np.random.Generator) -> Parts:
    assert request.inputs is not None
    with pytest.raises(ValueError, match="read-only"):
        request.inputs[0] = 0
    means = request.inputs.reshape(len(request.labels), -1).mean(axis=1)
    noise = rng.random(len(means)) * 1e-6  # the order of equal ones
    return tuple(np.array_split(np.argsort(means + noise), request.devices))


BRIGHTNESS = Partitioner(_by_brightness, Cover.ALL, by_label=False, by_inputs=True)


def test_a_partition_of_a_package_sees_inputs_that_it_cannot_change() -> None:
    data = _dataset(np.repeat(np.arange(5), 20))
    with PARTITION_PLUGINS.added("brightness", BRIGHTNESS):
        shards = deal(data, section(partition="brightness"), 4, 0, seed=1)
    means = [shard.train.inputs.mean(axis=(1, 2, 3)) for shard in shards]
    assert all(low.max() <= high.min() for low, high in pairwise(means))
    data.train.inputs[0] = 0  # others still may


def test_a_partition_that_does_not_ask_for_inputs_gets_none() -> None:
    seen: list[object] = []

    def split(request: PartitionRequest, rng: np.random.Generator) -> Parts:
        seen.append(request.inputs)
        return tuple(np.array_split(rng.permutation(len(request.labels)), request.devices))

    with PARTITION_PLUGINS.added("plain", Partitioner(split, Cover.ALL)):
        deal(_dataset(np.repeat(np.arange(5), 20)), section(partition="plain"), 4, 0, seed=1)
    assert seen == [None]


def test_the_contract_of_a_partition_that_sees_inputs() -> None:
    check_partitioner(Partitioner(lambda r, g: tuple(_by_first(r, g)), Cover.ALL, by_inputs=True))


def _by_first(request: PartitionRequest, rng: np.random.Generator) -> list[Indices]:
    assert request.inputs is not None
    order = np.argsort(request.inputs[:, 0] + rng.random(len(request.labels)))
    return np.array_split(order, request.devices)
