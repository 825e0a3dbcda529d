"""NPZ files: layouts, scales, and everything that can be wrong with them."""

from __future__ import annotations

import resource
import signal
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.fuzzing.file_targets import npy_header
from edgefed.data.base import archive
from edgefed.data.devices.sources import load_device
from edgefed.data.sets.datasets import load
from edgefed.data.sets.npz import read_npz
from edgefed.errors import DataError
from edgefed.files.mapped import release
from edgefed.wire import limits
from tests.data.bombs import repacked, write_members
from tests.data.helpers import section, write_npz

LABELS = np.array([0, 1, 2, 1])


@pytest.fixture(params=["in memory", "in mapped files"], autouse=True)
def arrays(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "in mapped files":
        monkeypatch.setattr(archive, "LARGE_BYTES", 1)
    return str(request.param)


@pytest.mark.parametrize(
    ("stored", "shape"),
    [
        ((4, 6, 5), (1, 6, 5)),
        ((4, 6, 5, 3), (3, 6, 5)),
        ((4, 6, 5, 1), (1, 6, 5)),
        ((4, 3, 6, 5), (3, 6, 5)),
        ((4, 7), (7,)),
    ],
)
def test_bytes_are_images_scaled_and_channels_first(
    tmp_path: Path, stored: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, stored, np.uint8)
    pixels[0] = 255
    content = read_npz(write_npz(tmp_path / "a.npz", x=pixels, y=LABELS.astype(np.uint8)))
    assert content.train.inputs.shape == (4, *shape)
    assert content.train.inputs.dtype == np.float32
    assert content.train.inputs[0].min() == content.train.inputs[0].max() == 1
    assert content.train.inputs.flags.c_contiguous
    assert content.train.targets.dtype == np.int64
    assert np.array_equal(content.train.targets, LABELS)


def test_a_pixel_keeps_its_place_when_channels_move(tmp_path: Path) -> None:
    pixels = np.zeros((1, 6, 5, 3), np.uint8)
    pixels[0, 4, 2, 1] = 51
    content = read_npz(write_npz(tmp_path / "a.npz", x=pixels, y=LABELS[:1]))
    assert content.train.inputs[0, 1, 4, 2] == np.float32(0.2)
    assert np.count_nonzero(content.train.inputs) == 1


def test_floats_keep_their_bits_and_their_layout(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
    content = read_npz(write_npz(tmp_path / "a.npz", x_train=values, y_train=LABELS[:, None]))
    assert content.train.inputs.tobytes() == values.tobytes()
    assert content.train.inputs.shape == (4, 2, 3)
    assert np.array_equal(content.train.targets, LABELS)


def test_only_large_arrays_are_in_mapped_files_which_nothing_names(
    tmp_path: Path, arrays: str
) -> None:
    values = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    path = write_npz(tmp_path / "a.npz", x=values, y=LABELS)
    content = read_npz(path)
    assert release(content.train.inputs) == (arrays == "in mapped files")
    assert np.array_equal(content.train.inputs, values)
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


def test_the_first_index_may_change_fastest_and_a_test_part_may_be_empty(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    fields = {"x_test": values[:0], "y_test": LABELS[:0], "y_train": LABELS}
    content = read_npz(write_npz(tmp_path / "a.npz", x_train=np.asfortranarray(values), **fields))
    assert np.array_equal(content.train.inputs, values)
    assert content.test is not None
    assert len(content.test) == 0


@pytest.mark.parametrize("more", [-8, 8, 2**20])
def test_a_large_array_that_ends_elsewhere_than_it_declares_is_refused(
    tmp_path: Path, arrays: str, more: int
) -> None:
    whole = npy_header("(4, 2)") + bytes(32 + max(more, 0))
    path = write_members(tmp_path / "a.npz", x=whole, y=npy_header("(4,)", "|u1") + bytes(4))
    raw = bytearray(path.read_bytes())
    for place, sizes in ((raw.index(b"PK\3\4"), 22), (raw.index(b"PK\1\2"), 24)):
        struct.pack_into("<I", raw, place + sizes, len(whole) + min(more, 0))
    path.write_bytes(raw)
    if arrays == "in memory" and more > 0:  # what follows the array is not read
        assert len(read_npz(path).train) == 4
        return
    with pytest.raises(DataError, match="cannot be read as an NPZ file"):
        read_npz(path)


def test_without_room_on_the_disk_arrays_are_in_memory(
    tmp_path: Path, arrays: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    path = write_npz(tmp_path / "a.npz", x=values, y=LABELS)
    large = 4 * sum(info.file_size for info in zipfile.ZipFile(path).infolist())
    for free in (large - 1, large):
        monkeypatch.setattr(archive, "free_bytes", lambda path, free=free: free)
        content = read_npz(path)
        assert release(content.train.inputs) == (arrays == "in mapped files" and free == large)
        assert np.array_equal(content.train.inputs, values)


def test_a_disk_that_fills_up_meanwhile_leaves_arrays_in_memory(tmp_path: Path) -> None:
    large = resource.getrlimit(resource.RLIMIT_FSIZE)
    values = np.random.default_rng(0).normal(size=(40_000, 2)).astype(np.float32)
    path = write_npz(tmp_path / "a.npz", x=values, y=np.arange(40_000) % 3)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write fails instead
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, large[1]))
        content = read_npz(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, large)
        signal.signal(signal.SIGXFSZ, previous)
    assert np.array_equal(content.train.inputs, values)


def test_a_file_with_a_test_part_keeps_it(tmp_path: Path) -> None:
    x, y = np.zeros((4, 2), np.float32), LABELS
    write_npz(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x[:2] + 1, y_test=y[:2] + 3)
    dataset = load(section(name="npz", path="a.npz"), tmp_path, seed=1)
    assert (len(dataset.train), len(dataset.test)) == (4, 2)
    assert dataset.test.inputs.min() == 1
    assert dataset.classes == 5
    assert dataset.shape == (2,)


def test_a_file_without_a_test_part_is_split_the_same_in_every_run(tmp_path: Path) -> None:
    x = np.arange(40, dtype=np.float32)[:, None]
    write_npz(tmp_path / "a.npz", x=x, y=np.arange(40) % 4)
    keys = section(name="npz", path=str(tmp_path / "a.npz"), test_share=0.25)
    one, other = (load(keys, None, seed=seed) for seed in (1, 2))
    assert np.array_equal(np.bincount(one.test.targets), [3, 3, 2, 2])
    assert np.array_equal(one.test.inputs, other.test.inputs)
    both = np.concatenate([one.train.inputs, one.test.inputs])
    assert np.array_equal(np.sort(both[:, 0]), x[:, 0])


@pytest.mark.parametrize(
    ("stated", "classes"), [(np.int64(7), 7), (np.array(["ant", "bee", "cat", "dog"]), 4)]
)
def test_the_file_may_know_more_classes_than_it_holds(
    tmp_path: Path, stated: Any, classes: int
) -> None:
    path = write_npz(tmp_path / "a.npz", x=np.zeros((4, 2)), y=LABELS, classes=stated)
    assert read_npz(path).classes == classes


def _bad(**changes: Any) -> dict[str, Any]:
    return {"x": np.zeros((4, 2), np.float32), "y": LABELS} | changes


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (_bad(x=np.zeros((0, 2)), y=LABELS[:0]), "holds no samples"),
        (_bad(y=LABELS[:3]), "4 inputs but 3 labels"),
        (_bad(y=LABELS > 0), "labels of type bool"),
        (_bad(y=np.array(["a", "b", "c", "d"])), "labels of type <U1"),
        (_bad(y=np.eye(4, dtype=np.int64)), "labels of type int64 and shape (4, 4)"),
        (_bad(y=LABELS - 1), "labels outside 0 to classes - 1, such as -1"),
        (_bad(y=np.array([0, 1, 2, 2**63], np.uint64)), "such as 9223372036854775808"),
        (_bad(y=LABELS + limits.MAX_ITEMS), "classes; at most"),
        (_bad(x=np.array([[0], [0], [np.nan], [0]])), "not a finite number, in sample 2"),
        (_bad(x=np.array([[0.0], [1e300], [0], [0]])), "not a finite number, in sample 1"),
        (
            _bad(x=np.append(np.zeros((4999, 1)), [[np.inf]], axis=0), y=LABELS[[0] * 5000]),
            "in sample 4999",
        ),
        (_bad(x=np.array([["a"]] * 4)), "inputs of type <U1, not numbers"),
        (_bad(x=np.zeros(4)), "inputs of shape (4,), not (samples, …)"),
        (_bad(x=np.zeros((4, 0))), "inputs of shape (4, 0)"),
        (_bad(x=np.zeros((4, *[1] * limits.MAX_DIMENSIONS))), "not (samples, …)"),
        (_bad(classes=np.int64(2)), "declares 2 classes but contains label 2"),
        (_bad(classes=np.float64(9)), "`classes` of type float64"),
        (_bad(classes=np.int64(10**6)), "needs 1000000 classes"),
        ({"x_train": np.zeros((4, 2)), "z": LABELS}, "it has x_train"),
        ({"images": np.zeros((4, 2))}, "it has none"),
        (_bad(x_test=np.zeros((4, 2))), "lacks arrays"),
        (_bad(x_test=np.zeros((4, 3)), y_test=LABELS), "training inputs of shape (2,) but test"),
    ],
)
def test_what_cannot_be_trained_on_is_named_with_its_file(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    path = write_npz(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError) as caught:
        read_npz(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"b\.npz does not exist") as caught:
        load(section(name="npz", path="b.npz"), tmp_path, seed=1)
    assert caught.value.code == "data.missing"
    with pytest.raises(DataError, match="is a folder, not a file"):
        read_npz(tmp_path)


def test_damaged_and_foreign_files_are_errors_of_ours(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz", x=np.zeros((4, 2)), y=LABELS)
    whole = path.read_bytes()
    for content in (b"", b"hello", whole[:-40], whole[:100], bytes(len(whole))):
        path.write_bytes(content)
        with pytest.raises(DataError, match="cannot be read as an NPZ file"):
            read_npz(path)


def test_lzma_members_hold_the_same_arrays(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(40, 800)).astype(np.float32)
    plain = write_npz(tmp_path / "a.npz", x=values, y=np.arange(40) % 3)
    packed = repacked(plain, tmp_path / "b.npz", zipfile.ZIP_LZMA)
    found, wanted = (load_device(f"npz:{path}", 0.1) for path in (packed, plain))
    assert np.array_equal(found.train.inputs, wanted.train.inputs)
    assert np.array_equal(found.train.targets, wanted.train.targets)


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).normal(size=(40, 8)), y=np.arange(40))
    damaged = bytearray(path.read_bytes())
    damaged[200] ^= 0x10
    path.write_bytes(damaged)
    with pytest.raises(DataError, match="cannot be read as an NPZ file"):
        read_npz(path)


def test_a_single_array_and_pickled_objects_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", LABELS)
    with pytest.raises(DataError, match="single array"):
        read_npz(tmp_path / "a.npy")
    objects = np.array([{}, [], None, 1], dtype=object)
    with pytest.raises(DataError, match="allow_pickle=False"):
        read_npz(write_npz(tmp_path / "b.npz", x=objects, y=LABELS))
