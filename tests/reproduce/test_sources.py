"""Where a table's data is searched for, and the errors if it is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgefed.config.recipes.recipe import DataSection
from edgefed.data.sets.datasets import load
from edgefed.data.sets.shakespeare import read_roles
from edgefed.errors import DataError
from edgefed.reproduce.sources import ROLES, SOURCES, fetch, locate, made_texts
from tests.data.helpers import section


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.mark.parametrize(
    ("name", "files", "reader", "named"),
    [
        ("cifar10", ["cifar10/cifar10.npz"], "npz", "cifar10/cifar10.npz"),
        ("cifar10", ["cifar-10-batches-py/data_batch_1"], "cifar10", ""),
        ("cifar10", ["cifar10/cifar-10-batches-py/data_batch_1"], "cifar10", "cifar10"),
        ("cifar100", ["cifar-100-python/train"], "cifar100", ""),
        ("mnist", ["mnist/mnist.npz"], "npz", "mnist/mnist.npz"),
        ("mnist", ["MNIST/raw/t10k"], "mnist", ""),
        ("svhn", ["svhn/svhn.npz"], "npz", "svhn/svhn.npz"),
        ("svhn", ["train_32x32.mat", "test_32x32.mat"], "svhn", ""),
        ("svhn", ["svhn/train_32x32.mat"], "svhn", "svhn"),
        ("fashion-mnist", ["FashionMNIST/raw/t10k"], "fashion-mnist", ""),
        ("fashion-mnist", ["fashion_mnist/fashion_mnist.npz"], "npz", None),
        ("femnist", ["femnist/train/a.json", "femnist/test/a.json"], "femnist", "femnist"),
        ("femnist", ["femnist/a.json"], "femnist", "femnist"),
        ("femnist", ["femnist/femnist.npz"], "npz", "femnist/femnist.npz"),
        ("shakespeare", ["shakespeare/some.jsonl"], "shakespeare", "shakespeare/some.jsonl"),
        ("mnist-writers", ["mnist/mnist.npz", "mnist/mnist_writers.npz"], "npz", "mnist/mnist.npz"),
    ],
)
def test_each_layout_is_found(
    name: str, files: list[str], reader: str, named: str | None, tmp_path: Path
) -> None:
    for file in files:
        put(tmp_path / file)
    found = locate({"data.name": name, "data.limit": 7}, tmp_path, tmp_path / "scratch").settings
    assert found["data.name"] == reader
    assert found["data.limit"] == 7
    assert found["data.path"] == str(tmp_path / (files[0] if named is None else named))


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_not_there_is_never_downloaded(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        locate({"data.name": name}, tmp_path, tmp_path)
    assert caught.value.code == "data.missing"
    assert SOURCES[name].title in caught.value.message
    assert SOURCES[name].places[0].pattern in caught.value.hint


def test_mnist_without_its_writers_is_not_mnist_by_writer(tmp_path: Path) -> None:
    put(tmp_path / "mnist" / "mnist.npz")
    with pytest.raises(DataError, match="MNIST by writer is not in"):
        locate({"data.name": "mnist-writers"}, tmp_path, tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder") as caught:
        locate({"data.name": "cifar10"}, tmp_path / "nowhere", tmp_path)
    assert caught.value.code == "data.missing"


@pytest.mark.parametrize("name", ["femnist", "shakespeare", "mnist-writers"])
def test_what_cannot_be_downloaded_needs_a_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--data") as caught:
        locate({"data.name": name}, None, tmp_path)
    assert caught.value.code == "data.missing"


def test_what_can_be_downloaded_stays_as_it_is(tmp_path: Path) -> None:
    keys = {"data.name": "cifar10", "data.normalize": True}
    assert locate(keys, None, tmp_path).settings == keys


def test_a_packed_set_is_normalised_like_the_original(tmp_path: Path) -> None:
    put(tmp_path / "cifar10" / "cifar10_jpeg.npz")
    found = locate({"data.name": "cifar10", "data.normalize": True}, tmp_path, tmp_path)
    assert found.settings["data.mean"] == pytest.approx([0.4914, 0.4822, 0.4465], abs=2e-4)
    assert len(found.settings["data.std"]) == 3
    assert "compressed with loss" in found.note
    assert "data.mean" not in locate({"data.name": "cifar10"}, tmp_path, tmp_path).settings


def test_a_download_that_fails_is_told_before_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DataError("cannot be downloaded", code="data.missing")

    monkeypatch.setattr("edgefed.reproduce.sources.load", refuse)
    with pytest.raises(DataError):
        fetch(section(name="cifar10"), tmp_path)
    put(tmp_path / "cifar-10-batches-py" / "data_batch_1")
    fetch(section(name="cifar10"), tmp_path)
    fetch(section(name="digits"), tmp_path)


def test_made_texts_are_the_same_every_time_and_can_be_loaded(tmp_path: Path) -> None:
    path = made_texts(tmp_path / "made.jsonl")
    first = path.read_bytes()
    stamp = path.stat().st_mtime_ns
    assert made_texts(path).stat().st_mtime_ns == stamp, "it is not written again"
    path.write_text("damaged")
    assert made_texts(path).read_bytes() == first
    texts = read_roles(path)
    assert len(texts) == len(set(texts.values())) == ROLES
    keys = locate({"data.name": "made-texts"}, None, tmp_path).settings
    values = {key.removeprefix("data."): value for key, value in keys.items()}
    dataset = load(DataSection.model_validate({**values, "window": 5}), None, seed=1)
    assert dataset.groups is not None
    assert len(np.unique(dataset.groups)) == ROLES


def test_coloured_digits_are_the_same_every_time_and_only_their_hue_is_drawn(
    tmp_path: Path,
) -> None:
    pytest.importorskip("sklearn", reason="the digits are not installed")
    keys = locate({"data.name": "made-colours"}, None, tmp_path).settings
    path = Path(str(keys["data.path"]))
    first, stamp = path.read_bytes(), path.stat().st_mtime_ns
    locate({"data.name": "made-colours"}, None, tmp_path)
    assert path.stat().st_mtime_ns == stamp, "it is not written again"
    path.write_bytes(b"damaged")
    locate({"data.name": "made-colours"}, None, tmp_path)
    assert path.read_bytes() == first
    plain = load(section(name="digits"), None, seed=1)
    made = load(section(name="npz", path=str(path)), None, seed=1)
    assert made.shape == (3, 8, 8)
    assert np.array_equal(made.train.targets, plain.train.targets)
    brightest = made.train.inputs.max(axis=1, keepdims=True)
    assert np.allclose(brightest, plain.train.inputs, atol=1 / 255)
    assert made.train.inputs.min(axis=1).max() == 0, "a pure hue lacks one of the colours"
