"""Columns of samples: read, refused, and carried along wherever samples go."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.data.base.class_names import renumbered
from edgefed.data.base.columns import MAX_COLUMNS
from edgefed.data.base.pixel_range import to_pixels
from edgefed.data.base.types import UNPREPARED, Dataset
from edgefed.data.devices.partition import deal
from edgefed.data.devices.report import holding, report
from edgefed.data.devices.shard_files import read_shard, write_shard
from edgefed.data.devices.sources import load_device
from edgefed.data.images.image_options import ImageOptions
from edgefed.data.partitioners.registry import PARTITIONERS
from edgefed.data.sets.datasets import load
from edgefed.data.sets.folder import read_folder
from edgefed.data.sets.npz import read_npz
from edgefed.data.transforms.rotation import rotate
from edgefed.errors import DataError
from edgefed.files.samples import Samples
from tests.data.helpers import section, write_image, write_npz

COUNT = 24


def _tagged(count: int = COUNT, channels: int = 1) -> Samples:
    """Return images whose column ``tag`` is also the value of their first pixel, by 100."""
    rng = np.random.default_rng(count)
    inputs, tags = rng.random((count, channels, 4, 4), np.float32), rng.permutation(count)
    inputs[:, 0, 0, 0] = tags / 100
    return Samples(inputs, np.arange(count) % 4, {"tag": tags})


def _in_step(samples: Samples) -> bool:
    return np.array_equal(samples.columns["tag"], np.rint(samples.inputs[:, 0, 0, 0] * 100))


def _file(path: Path, **more: Any) -> Path:
    samples = _tagged()
    arrays = {"x": samples.inputs, "y": samples.targets, "column/tag": samples.columns["tag"]}
    return write_npz(path / "a.npz", **{**arrays, **more})


def test_a_file_s_columns_go_with_its_samples(tmp_path: Path) -> None:
    path = _file(tmp_path, **{"column/site": np.zeros(COUNT, np.uint8)})
    held = load_device(f"npz:{path}", holdout=0.25)
    dataset = load(section(name="npz", path=str(path), limit=9), None, seed=1)
    for part in (held.train, held.test, dataset.train, dataset.test):
        assert _in_step(part)
        assert {name: each.dtype.str for name, each in part.columns.items()} == {
            "site": "<i8",
            "tag": "<i8",
        }
    assert (len(held.test), len(dataset.train)) == (6, 9)


@pytest.mark.parametrize(
    ("name", "column", "why"),
    [
        ("tag", np.arange(COUNT - 1), r"shape \(23,\), not one integer for each of 24 samples"),
        ("tag", np.zeros((COUNT, 1), np.int64), r"shape \(24, 1\)"),
        ("tag", np.zeros(COUNT), "type float64"),
        ("tag", np.arange(COUNT) - 1, "from -1 to 22"),
        ("tag", np.full(COUNT, 4096), "from 4096 to 4096, not within 0 to 4095"),
        ("label", np.zeros(COUNT, np.int64), "cannot be named 'label'"),
        ("device", np.zeros(COUNT, np.int64), "cannot be named 'device'"),
        ("a b", np.zeros(COUNT, np.int64), "cannot be named 'a b'"),
        ("a" * 65, np.zeros(COUNT, np.int64), "cannot be named"),
    ],
)
def test_what_is_no_column_is_refused(tmp_path: Path, name: str, column: Any, why: str) -> None:
    path = _file(tmp_path, **{f"column/{name}": column})
    with pytest.raises(DataError, match=why) as caught:
        read_npz(path)
    assert str(path) in caught.value.message


def test_columns_are_few_and_counted_before_they_are_read(tmp_path: Path) -> None:
    many = {f"column/c{number}": np.zeros(COUNT, np.uint8) for number in range(MAX_COLUMNS)}
    with pytest.raises(DataError, match="17 columns; at most 16"):
        read_npz(_file(tmp_path, **many))
    needed = sum(each.nbytes for each in (_tagged().inputs, _tagged().targets)) + 8 * COUNT
    path = _file(tmp_path, **{"column/tag": np.zeros(COUNT, np.uint8)})
    read_npz(path, max_bytes=needed)
    with pytest.raises(DataError) as caught:
        read_npz(path, max_bytes=needed - 1)
    assert caught.value.code == "data.too_large"


def test_both_parts_of_a_file_have_the_same_columns(tmp_path: Path) -> None:
    test = {"x_test": np.zeros((2, 1, 4, 4), np.float32), "y_test": np.zeros(2, np.int64)}
    column = {"column_test/tag": np.array([3, 5])}
    content = read_npz(_file(tmp_path, **test, **column))
    assert content.test is not None
    assert content.test.columns["tag"].tolist() == [3, 5]
    with pytest.raises(DataError, match="no column 'tag' for the test samples"):
        read_npz(_file(tmp_path, **test))
    with pytest.raises(DataError, match="no column 'site' for the training samples"):
        read_npz(_file(tmp_path, **test, **column, **{"column_test/site": np.zeros(2, np.int64)}))
    with pytest.raises(DataError, match="lacks arrays"):
        read_npz(_file(tmp_path, **column))


@pytest.mark.parametrize(
    ("partition", "transform"),
    [
        *((name, "none") for name in PARTITIONERS if name != "histograms"),
        ("iid", "permutation"),
        ("iid", "greyscale"),
    ],
)
def test_shards_keep_columns(tmp_path: Path, partition: str, transform: str) -> None:
    samples = _tagged(200, channels=3)
    dataset = Dataset(
        *(samples, samples, 4, (3, 4, 4)), groups=np.arange(200) % 5, coarse=np.arange(4) // 2
    )
    keys = section(
        partition=partition, transform=transform, grey_shares=(0.0,), classes_per_device=2
    )
    for shard in deal(dataset, keys, 2, holdout=0.25, seed=1):
        write_shard(tmp_path / "a.npz", shard)
        for each in (shard, read_shard(tmp_path / "a.npz"), pickle.loads(pickle.dumps(shard))):
            assert _in_step(each.train)
            assert _in_step(each.test)
            assert len(each.test.columns["tag"]) == len(shard.test) > 0


def test_a_rotation_tells_its_angles() -> None:
    plain = load(section(name="digits"), None, seed=1)
    keys = section(name="digits", partition="iid", transform="rotation", angles=4)
    turned = load(keys, None, seed=1)
    black = np.zeros(1, np.float32)
    angles = turned.test.columns["rotation"]
    assert np.array_equal(turned.test.inputs, rotate(plain.test.inputs, angles, 4, black))
    assert set(angles.tolist()) == {0, 1, 2, 3}
    still = {bytes(each) for each in plain.train.inputs}
    for shard in deal(turned, keys, 3, holdout=0.2, seed=1):
        for part in (shard.train, shard.test):
            back = rotate(part.inputs, (4 - part.columns["rotation"]) % 4, 4, black)
            assert all(bytes(each) in still for each in back)
    tagged = replace(plain, train=replace(plain.train, columns={"site": plain.train.targets}))
    shard = deal(tagged, keys, 3, holdout=0, seed=1)[0]
    assert np.array_equal(shard.train.columns["site"], shard.train.targets)
    assert shard.train.columns["rotation"].dtype == np.int64


def test_new_numbers_and_pixels_keep_columns(tmp_path: Path) -> None:
    samples = _tagged()
    other = renumbered(samples, ("a", "b", "c", "d"), ("d", "c", "b", "a"))
    assert np.array_equal(other.targets, 3 - samples.targets)
    assert _in_step(other)
    assert _in_step(to_pixels(samples, UNPREPARED))
    source = f"npz:{_file(tmp_path)}?normalize=true&mean=0.5&std=0.5"
    device = load_device(source, holdout=0)
    assert np.array_equal(device.train.columns["tag"], samples.columns["tag"])


def test_a_report_counts_the_categories_that_all_devices_have(tmp_path: Path) -> None:
    device = load_device(f"npz:{_file(tmp_path)}", holdout=0.25)
    one = holding("one", device)
    two = replace(one, device="two", columns={"tag": 40, "site": 2})
    assert one.columns == {"tag": COUNT}
    assert report([one, two])["columns"] == {"tag": 40}


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    for name in ("cat", "dog"):
        for index in range(3):
            write_image(tmp_path / name / f"{index}.png", (4, 4), 0)
    return tmp_path


def test_images_in_folders_have_the_columns_of_a_list(pets: Path) -> None:
    lines = [f"{name}/{index}.png,{index},7" for index in range(3) for name in ("dog", "cat")]
    (pets / "columns.csv").write_text("\n".join(["file,site,angle", *lines, "bird/1.png,1,1"]))
    (pets / "cat" / "1.png").write_bytes(b"no image")
    samples = read_folder(pets, ImageOptions(), pets / ".decoded").samples
    assert samples.columns["site"].tolist() == [0, 2, 0, 1, 2]
    assert samples.columns["angle"].tolist() == [7] * 5
    held = load_device(f"folder:{pets}", holdout=0.4)
    assert [len(part.columns["site"]) for part in (held.train, held.test)] == [3, 2]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "first line"),
        (b"name,site\n", "first line"),
        (b"file\n", "first line"),
        (b"file,site,site\n", "first line"),
        (b"file,site\ncat/0.png,1\n", r"does not list cat/1\.png"),
        (b"file,site\ncat/0.png,-1\n", "line 2 is not a path and numbers"),
        (b"file,site\ncat/0.png,1,2\n", "line 2"),
        (b"file,site\ncat/0.png,1e3\n", "line 2"),
        (b"file,site\n\xff,1\n", "not CSV in UTF-8"),
    ],
)
def test_a_wrong_list_of_columns_is_refused(pets: Path, text: bytes, why: str) -> None:
    (pets / "columns.csv").write_bytes(text)
    with pytest.raises(DataError, match=why) as caught:
        read_folder(pets, ImageOptions(), pets / ".decoded")
    assert caught.value.code == "data.unreadable"
