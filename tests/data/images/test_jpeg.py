"""JPEG images in an NPZ file, and who wrote what."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgefed.data.devices.partition import deal
from edgefed.data.images import jpeg as jpeg_module
from edgefed.data.images.jpeg import unpacked
from edgefed.data.sets.datasets import load
from edgefed.errors import DataError
from tests.data.helpers import section, write_npz


def _packed(images: list[Any]) -> tuple[Any, Any]:
    """Return (bytes, offsets) of images as JPEG."""
    files = []
    for image in images:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=95)
        files.append(buffer.getvalue())
    offsets = np.cumsum([0, *map(len, files)])
    return np.frombuffer(b"".join(files), np.uint8), offsets


def _write(folder: Path, **other: Any) -> Path:
    images = [np.full((16, 16, 3), (value, 50, 100), np.uint8) for value in (10, 60, 110, 160)]
    jpeg, offsets = _packed(images)
    arrays = {"jpeg_train": jpeg, "offsets_train": offsets, "y_train": np.arange(4)}
    test, test_offsets = _packed(images[:2])
    arrays |= {"jpeg_test": test, "offsets_test": test_offsets, "y_test": np.arange(2)}
    return write_npz(folder / "a.npz", **(arrays | other))


def test_images_are_decoded_once_and_kept(tmp_path: Path) -> None:
    path = _write(tmp_path)
    cache = tmp_path / "cache"
    keys = section(name="npz", path=str(path))
    first = load(keys, cache, seed=1)
    assert first.train.inputs.shape == (4, 3, 16, 16)
    assert np.allclose(first.train.inputs[:, 0, 8, 8] * 255, [10, 60, 110, 160], atol=3)
    assert (len(first.test), first.classes, first.warnings) == (2, 4, ())
    kept = sorted((cache / "decoded").iterdir())
    assert [file.suffix for file in kept] == [".npy", ".npy"]
    # What is kept is what is read: changed, it shows.
    pixels = np.load(kept[0])
    np.save(kept[0], np.zeros_like(pixels))
    again = load(keys, cache, seed=1)
    part = again.train if len(pixels) == 4 else again.test
    assert not part.inputs.any()


def test_pixels_of_earlier_images_are_removed_when_they_take_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*values: int) -> set[str]:
        jpeg, offsets = _packed([np.full((16, 16, 3), value, np.uint8) for value in values])
        unpacked(jpeg, offsets, tmp_path / "decoded", "here")
        return {path.name for path in (tmp_path / "decoded").iterdir()}

    first = read(1)
    (path,) = (tmp_path / "decoded").iterdir()
    os.utime(path, (1, 1))
    assert len(read(1)) == 1 and path.stat().st_mtime > 1, "its use is noted"
    assert first < read(1, 2)
    os.utime(path, (1, 1))
    assert len(read(1, 2, 3)) == 2, "nothing has used the first for a week"
    monkeypatch.setattr(jpeg_module, "LIMIT_BYTES", 1)
    assert len(read(1, 2, 3, 4)) == 1, "what is needed is kept"


def test_kept_pixels_that_are_damaged_are_decoded_anew(tmp_path: Path) -> None:
    path = _write(tmp_path)
    keys = section(name="npz", path=str(path))
    first = load(keys, None, seed=1)
    for file in (tmp_path / "decoded").iterdir():
        file.write_bytes(file.read_bytes()[:200])
    again = load(keys, None, seed=1)
    assert np.array_equal(first.train.inputs, again.train.inputs)
    assert np.array_equal(first.test.inputs, again.test.inputs)


def test_pixels_that_cannot_be_kept_are_a_warning(tmp_path: Path) -> None:
    path = _write(tmp_path)
    (tmp_path / "decoded").write_text("in the way")
    dataset = load(section(name="npz", path=str(path)), None, seed=1)
    assert len(dataset.train) == 4
    assert all("are decoded again" in warning for warning in dataset.warnings)
    assert len(dataset.warnings) == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"offsets_train": np.array([0, 9, 5, 9, 9])}, "offsets that do not match"),
        ({"offsets_train": np.array([0, 1, 2, 3, 10**9])}, "offsets that do not match"),
        ({"offsets_train": np.array([-1, 1, 2, 3, 4])}, "offsets that do not match"),
        ({"offsets_train": np.zeros(0, int)}, "offsets that do not match"),
        ({"offsets_train": np.zeros(5)}, "offsets that do not match"),
        ({"offsets_train": np.array([0, 0, 0, 0, 0])}, "image 0 cannot be decoded"),
        ({"jpeg_train": np.zeros(10**5, np.uint8)}, "image 0 cannot be decoded"),
        ({"y_train": np.arange(3)}, "4 inputs but 3 labels"),
    ],
)
def test_what_is_wrong_with_the_file_is_told(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    path = _write(tmp_path, **keys)
    with pytest.raises(DataError) as caught:
        load(section(name="npz", path=str(path)), None, seed=1)
    assert message in caught.value.message
    assert str(path) in caught.value.message


def test_images_of_two_sizes_are_refused(tmp_path: Path) -> None:
    jpeg, offsets = _packed([np.zeros((8, 8, 3), np.uint8), np.zeros((8, 9, 3), np.uint8)])
    write_npz(tmp_path / "a.npz", jpeg_train=jpeg, offsets_train=offsets, y_train=np.arange(2))
    with pytest.raises(DataError, match=r"image 1 has shape \(8, 9, 3\), not \(8, 8, 3\)"):
        load(section(name="npz", path="a.npz"), tmp_path, seed=1)


def _writers(folder: Path, **arrays: Any) -> None:
    x = np.repeat([7.0, 7, 3, 3, 3, 9], 4)[:, None]
    write_npz(folder / "a.npz", x_train=x, y_train=np.arange(24) % 2, **arrays)


def test_writers_lie_beside_the_file_in_it_or_where_a_key_says(tmp_path: Path) -> None:
    writers = np.repeat([70, 70, 30, 30, 30, 90], 4).astype(np.int32)
    keys = {"name": "npz", "path": "a.npz", "test_share": 0.25}
    _writers(tmp_path, groups_train=writers)
    inside = load(section(**keys), tmp_path, seed=1)
    _writers(tmp_path)
    assert load(section(**keys), tmp_path, seed=1).groups is None
    write_npz(tmp_path / "who.npz", writer_train=writers)
    named = load(section(**keys, groups_file="who.npz"), tmp_path, seed=1)
    write_npz(tmp_path / "a_writers.npz", writer_train=writers, writer_test=writers)
    beside = load(section(**keys), tmp_path, seed=1)
    for dataset in (inside, named, beside):
        assert dataset.groups is not None
        wanted = np.searchsorted([3, 7, 9], dataset.train.inputs[:, 0])
        assert np.array_equal(dataset.groups, wanted)
        shards = deal(dataset, section(partition="natural", min_samples=1), 3, 0, seed=1)
        assert all(len(np.unique(shard.train.inputs)) == 1 for shard in shards)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"writer_train": np.zeros(23, int)}, "not one integer for each of 24"),
        ({"writer_train": np.zeros(24)}, "groups of type float64"),
        ({"other": np.zeros(24)}, "neither groups_train nor writer_train"),
    ],
)
def test_writers_that_do_not_fit_are_told(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    _writers(tmp_path)
    write_npz(tmp_path / "who.npz", **arrays)
    with pytest.raises(DataError) as caught:
        load(section(name="npz", path="a.npz", groups_file="who.npz"), tmp_path, seed=1)
    assert message in caught.value.message
    assert "who.npz" in caught.value.message


def test_a_file_may_have_coarse_labels(tmp_path: Path) -> None:
    _writers(tmp_path, coarse=np.array([4, 5]))
    dataset = load(section(name="npz", path="a.npz"), tmp_path, seed=1)
    assert dataset.coarse is not None
    shards = deal(dataset, section(partition="pachinko"), 3, 0, seed=1)
    assert sum(len(shard.train) for shard in shards) == len(dataset.train)
    _writers(tmp_path, coarse=np.array([4]))
    with pytest.raises(DataError, match="not one integer for each of 2 labels"):
        load(section(name="npz", path="a.npz"), tmp_path, seed=1)
