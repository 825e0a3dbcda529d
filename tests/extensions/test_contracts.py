"""Our own algorithms, networks, data sets and partitions pass the tests that authors run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.composed.registry import built_in
from edgefed.data.partitioners.registry import PARTITIONERS
from edgefed.data.sets.dataset_reader import DatasetReader
from edgefed.data.sets.digits import DigitsOptions, load_digits
from edgefed.data.sets.folder import FolderOptions, load_folder
from edgefed.data.sets.npz import NpzOptions, load_npz
from edgefed.data.sets.shakespeare import TextOptions, load_shakespeare
from edgefed.learn.modeling.model_building import NETWORKS
from edgefed.testing.algorithms import check_algorithm
from edgefed.testing.datasets import check_dataset
from edgefed.testing.models import check_model
from edgefed.testing.partitioners import check_partitioner

KEEP_MIN_SAMPLES = ("dirichlet", "clusters", "growing", "quantity", "natural")

SMALL: dict[str, dict[str, Any]] = {
    "resnet18": {"shape": (3, 16, 16)},
    "resnet20": {"shape": (3, 16, 16)},
    "vgg9": {"shape": (3, 32, 32)},
    "lstm": {"shape": (12,), "classes": 20},
    "mlp": {"settings": {"hidden": [5]}},
}
"""Arguments of the check of a network, by its name."""


@pytest.mark.parametrize("name", list(built_in()))
def test_an_algorithm(name: str) -> None:
    check_algorithm(built_in()[name])


@pytest.mark.parametrize("name", list(NETWORKS))
def test_a_network(name: str) -> None:
    check_model(NETWORKS[name], **SMALL.get(name, {}))


@pytest.mark.parametrize("name", [name for name in PARTITIONERS if name != "histograms"])
def test_a_partition(name: str) -> None:
    check_partitioner(PARTITIONERS[name], keeps_min_samples=name in KEEP_MIN_SAMPLES)


def test_a_data_set_without_files() -> None:
    pytest.importorskip("sklearn", reason="the demo's data are not installed")
    check_dataset(DatasetReader("Digits", DigitsOptions, load_digits))


def test_a_data_set_of_one_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    inputs, labels = rng.random((20, 4), np.float32), rng.integers(0, 3, 20)
    np.savez(tmp_path / "data.npz", x=inputs, y=labels)
    check_dataset(DatasetReader("NPZ", NpzOptions, load_npz), {"path": "data.npz"}, tmp_path)


def test_a_data_set_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "play.txt").write_text("To be, or not to be, that is the question: " * 20)
    reader = DatasetReader("Text", TextOptions, load_shakespeare)
    check_dataset(reader, {"path": "play.txt", "window": 10}, tmp_path)


def test_a_data_set_of_images(tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(1)
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(6):
            pixels = rng.integers(0, 256, (8, 8, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    check_dataset(DatasetReader("Folder", FolderOptions, load_folder), {"path": str(tmp_path)})
