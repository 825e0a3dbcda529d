"""torchvision's data sets: existing files, wrong files, and no network.

The files are made up and small; where torchvision checks digests, it is told theirs.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torchvision import datasets

from edgefed.data.devices.partition import partition
from edgefed.data.devices.sources import load_device
from edgefed.data.sets.datasets import load
from edgefed.data.sets.vision import KINDS, coarse_labels
from edgefed.errors import DataError, RecipeError
from tests.data.helpers import section

NOWHERE = "http://127.0.0.1:1/"
"""Nothing listens on port 1, so a download fails as it does without a network."""


def _idx(path: Path, array: Any) -> None:
    header = bytes([0, 0, 8, array.ndim])
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + sizes + array.tobytes())


def _write_cifar(folder: Path, labels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write CIFAR's files with 12 images each, and tell torchvision their digests."""
    kind = datasets.CIFAR100 if labels == "fine_labels" else datasets.CIFAR10
    rng = np.random.default_rng(0)
    lists: dict[str, list[list[str]]] = {"train_list": [], "test_list": []}
    base = folder / kind.base_folder
    base.mkdir()
    for name, files in lists.items():
        data = rng.integers(0, 256, (12, 3072), np.uint8)
        content = pickle.dumps({"data": data, labels: list(range(12))})
        (base / name).write_bytes(content)
        files.append([name, hashlib.md5(content).hexdigest()])
        monkeypatch.setattr(kind, name, files)
    names = pickle.dumps({kind.meta["key"]: [str(number) for number in range(100)]})
    (base / "meta").write_bytes(names)
    meta = {**kind.meta, "filename": "meta", "md5": hashlib.md5(names).hexdigest()}
    monkeypatch.setattr(kind, "meta", meta)


def test_fashion_mnist_has_a_folder_and_moments_of_its_own(tmp_path: Path) -> None:
    raw = tmp_path / "FashionMNIST" / "raw"
    for part in ("train", "t10k"):
        _idx(raw / f"{part}-images-idx3-ubyte", np.full((10, 28, 28), 255, np.uint8))
        _idx(raw / f"{part}-labels-idx1-ubyte", np.arange(10, dtype=np.uint8))
    dataset = load(section(name="fashion-mnist", normalize=True), tmp_path, seed=1)
    assert (dataset.classes, dataset.shape) == (10, (1, 28, 28))
    assert dataset.train.inputs[0, 0, 0, 0] == pytest.approx((1 - 0.2860) / 0.3530, rel=1e-5)


@pytest.mark.parametrize(
    ("split", "first", "classes"), [("balanced", 0, 47), ("letters", 1, 26), ("digits", 0, 10)]
)
def test_emnist_is_turned_upright_and_its_letters_start_at_0(
    tmp_path: Path, split: str, first: int, classes: int
) -> None:
    images = np.zeros((10, 28, 28), np.uint8)
    images[:, 2, 20] = 255
    for part in ("train", "test"):
        stem = tmp_path / "EMNIST" / "raw" / f"emnist-{split}-{part}"
        _idx(stem.with_name(f"{stem.name}-images-idx3-ubyte"), images)
        _idx(
            stem.with_name(f"{stem.name}-labels-idx1-ubyte"),
            np.arange(first, first + 10, dtype=np.uint8),
        )
    for other in ("balanced", "byclass", "bymerge", "letters", "digits", "mnist"):
        if other != split:
            _idx(stem.with_name(f"emnist-{other}-train-images-idx3-ubyte"), images)
    dataset = load(section(name="emnist", split=split), tmp_path, seed=1)
    assert dataset.classes == classes
    assert dataset.train.inputs[0, 0, 20, 2] == 1
    assert np.array_equal(dataset.train.targets, np.arange(10))


def test_cifar10_is_channels_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_cifar(tmp_path, "labels", monkeypatch)
    # One of its labels is 11, which a damaged download could have.
    with pytest.raises(DataError, match="labels outside its 10"):
        load(section(name="cifar10"), tmp_path, seed=1)


def test_cifar100_keeps_its_coarse_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_cifar(tmp_path, "fine_labels", monkeypatch)
    dataset = load(section(name="cifar100", normalize=True), tmp_path, seed=1)
    assert (dataset.classes, dataset.shape) == (100, (3, 32, 32))
    assert len(dataset.preparation.mean) == 3
    assert dataset.coarse is not None
    parts = partition(
        section(partition="pachinko"),
        dataset.train.targets,
        3,
        100,
        np.random.default_rng(0),
        coarse=dataset.coarse,
    )
    assert sorted(np.concatenate(parts).tolist()) == list(range(12))


def test_coarse_labels_are_twenty_of_five() -> None:
    coarse = coarse_labels()
    assert np.array_equal(np.bincount(coarse), np.full(20, 5))
    # apple, aquarium_fish, baby, bear, beaver; …; woman, worm.
    assert coarse[:5].tolist() == [4, 1, 14, 8, 0]
    assert coarse[-2:].tolist() == [14, 13]
    assert list(KINDS) == sorted(KINDS)


def test_svhn_is_read_from_its_matrix_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    listed = {}
    pixels = np.zeros((32, 32, 3, 10), np.uint8)
    pixels[4, 7, 1] = 255
    for part in ("train", "test"):
        file = tmp_path / f"{part}_32x32.mat"
        # Its 0 is written as 10.
        scipy_io.savemat(file, {"X": pixels, "y": np.arange(1, 11)[:, None]})
        digest = hashlib.md5(file.read_bytes()).hexdigest()
        listed[part] = [f"{NOWHERE}{file.name}", file.name, digest]
    monkeypatch.setattr(datasets.SVHN, "split_list", listed)
    dataset = load(section(name="svhn"), tmp_path, seed=1)
    assert dataset.train.inputs.shape == (10, 3, 32, 32)
    assert dataset.train.inputs[0, 1, 4, 7] == 1
    assert sorted(dataset.train.targets.tolist()) == list(range(10))


@pytest.mark.parametrize("name", ["emnist", "cifar10", "cifar100", "svhn", "fashion-mnist"])
def test_without_network_the_error_says_why_and_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "svhn":
        pytest.importorskip("scipy.io")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", [NOWHERE])
    for kind in (datasets.EMNIST, datasets.CIFAR10, datasets.CIFAR100):
        monkeypatch.setattr(kind, "url", f"{NOWHERE}file.zip")
    listed = {part: [f"{NOWHERE}{part}", f"{part}_32x32.mat", ""] for part in ("train", "test")}
    monkeypatch.setattr(datasets.SVHN, "split_list", listed)
    with pytest.raises(DataError) as caught:
        load(section(name=name, path="kept"), tmp_path, seed=1)
    assert str(tmp_path / "kept") in caught.value.message
    assert "refused" in caught.value.message
    assert "connect to the network once" in caught.value.hint
    # The network may be back at the next start of a service, so not 2.
    assert (caught.value.code, caught.value.exit_code) == ("data.download", 1)
    assert capsys.readouterr().out == ""


def test_keys_of_a_source_and_of_a_recipe_are_checked(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="'split' cannot be used"):
        load(section(name="emnist", split="capitals"), tmp_path, seed=1)
    with pytest.raises(RecipeError, match="no key 'split'"):
        load(section(name="cifar10", split="letters"), tmp_path, seed=1)
    with pytest.raises(RecipeError, match="no key 'split'"):
        load_device(f"cifar10:{tmp_path}?split=letters", holdout=0.1)
