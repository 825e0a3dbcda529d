"""MNIST through torchvision, with files already there and without a network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import MNIST

from edgefed.data.sets.datasets import load
from edgefed.errors import DataError
from tests.data.helpers import section, write_mnist


def test_files_that_are_there_are_not_downloaded(tmp_path: Path) -> None:
    write_mnist(tmp_path / "kept", 20)
    dataset = load(section(name="mnist", path="kept"), tmp_path, seed=1)
    assert dataset.train.inputs.shape == dataset.test.inputs.shape == (20, 1, 28, 28)
    assert dataset.train.inputs.dtype == np.float32
    assert 0.9 < dataset.train.inputs.max() <= 1
    assert np.array_equal(dataset.train.targets, np.arange(20) % 10)
    assert (dataset.classes, dataset.shape) == (10, (1, 28, 28))


def test_without_network_the_error_says_why_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nothing listens on port 1, so the real download fails as it does without a network.
    monkeypatch.setattr(MNIST, "mirrors", ["http://127.0.0.1:1/"])
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(DataError) as caught:
        load(section(name="mnist"), tmp_path, seed=1)
    assert str(tmp_path) in caught.value.message
    assert "Connection refused" in caught.value.message
    assert str(tmp_path / "MNIST" / "raw") in caught.value.hint
    assert caught.value.code == "data.download"
    assert capsys.readouterr().out == ""


def test_damaged_files_are_an_error_of_ours(tmp_path: Path) -> None:
    write_mnist(tmp_path, 20)
    damaged = tmp_path / "MNIST" / "raw" / "t10k-images-idx3-ubyte"
    damaged.write_bytes(damaged.read_bytes()[:500])
    with pytest.raises(DataError, match="MNIST"):
        load(section(name="mnist"), tmp_path, seed=1)
