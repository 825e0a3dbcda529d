"""Data sets are decoded once, and mapped from the cache from then on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from edgefed.api.simulate import simulate
from edgefed.data.base.types import Dataset, Preparation
from edgefed.data.devices import partition
from edgefed.data.images.image_cache import UNUSED_SECONDS
from edgefed.data.sets import dataset_cache
from edgefed.data.sets.dataset_cache import INDEX, SMALL_BYTES, CachedSource, cached
from edgefed.data.sets.datasets import load
from edgefed.errors import DataError
from edgefed.files.mapped import release
from edgefed.files.samples import PixelScale, Samples
from edgefed.testing.play import bits
from tests.base.test_files import files_up_to
from tests.data.helpers import section, write_mnist, write_npz

IMAGES = 1500
"""So many that the file is not small."""

NORMALIZED = section(name="npz", path="data.npz", normalize=True)


def _npz(folder: Path, seed: int = 0, images: int = IMAGES) -> Path:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (images, 28, 28), np.uint8)
    return write_npz(folder / "data.npz", x=pixels, y=np.arange(images) % 10)


def _entries(folder: Path) -> list[Path]:
    return sorted((folder / "decoded").glob("dataset-*"))


def _make_unreadable(path: Path) -> None:
    """Replace a file's content, so that only its name, size and time are as before."""
    status = path.stat()
    path.write_bytes(bytes(status.st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_the_second_time_no_source_is_opened_and_the_bits_are_the_same(tmp_path: Path) -> None:
    path = _npz(tmp_path)
    plain = load(section(name="npz", path=str(path), normalize=True), None, 1)
    first = load(NORMALIZED, tmp_path, 1)
    _make_unreadable(path)
    second = load(NORMALIZED, tmp_path, 1)
    assert bits(plain) == bits(first) == bits(second)
    with pytest.raises(DataError, match="cannot be read"):
        load(section(name="npz", path=str(path), normalize=True), None, 1)


def test_a_cached_array_is_mapped_and_writing_to_it_changes_no_file(tmp_path: Path) -> None:
    _npz(tmp_path)
    mapped, other = (load(NORMALIZED, tmp_path, 1).train.inputs for _ in range(2))
    assert isinstance(mapped.base, np.memmap)
    assert isinstance(other.base, np.memmap)
    before = other.copy()
    mapped[:] = 7
    assert np.array_equal(other, before)
    assert np.array_equal(load(NORMALIZED, tmp_path, 1).train.inputs, before)


def test_pages_of_the_cache_s_own_maps_are_released_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _npz(tmp_path)
    dataset = load(NORMALIZED, tmp_path, 1)
    mapped = dataset.train.inputs
    before = mapped.copy()
    at_once = partition.deal(dataset, section(), 2, 0, seed=1)[1].train
    mapped[0] = 7
    monkeypatch.setattr(partition, "MANY_DEVICES", 2)
    dealt = partition.deal(dataset, section(), 2, 0, seed=1)[1].train
    assert np.array_equal(dealt.inputs, at_once.inputs)
    assert np.array_equal(dealt.targets, at_once.targets)
    assert np.array_equal(mapped, before), "a shard that was read leaves no page"
    np.save(tmp_path / "own.npy", before)
    own = np.load(tmp_path / "own.npy", mmap_mode="c")
    own[0] = before[0] = 7
    for array in (own, np.asarray(own), before):
        release(array)
        assert (array[0] == 7).all()


def test_a_run_has_the_same_digest_with_and_without_the_cache(tmp_path: Path) -> None:
    path = _npz(tmp_path)
    data = {"name": "npz", "path": str(path), "partition": "iid", "limit": 40}
    recipe = {
        "data": data,
        "model": {"name": "mlp"},
        "rounds": {"count": 1, "min_devices": 1},
        "simulation": {"devices": 2, "workers": 1},
    }
    first = simulate(recipe, data_folder=tmp_path)
    assert len(_entries(tmp_path)) == 1
    second = simulate(recipe, data_folder=tmp_path)
    with files_up_to(500_000):
        uncached = simulate(recipe, data_folder=tmp_path / "other")
    assert not _entries(tmp_path / "other")
    assert first.weights_digest == second.weights_digest == uncached.weights_digest


def test_what_a_run_varies_needs_no_entry_of_its_own(tmp_path: Path) -> None:
    path = _npz(tmp_path)
    load(NORMALIZED, tmp_path, 1)
    _make_unreadable(path)
    keys = {"partition": "quantity", "alpha": 0.2, "parts_per_device": 3, "transform": "rotation"}
    varied = section(name="npz", path="data.npz", normalize=True, limit=100, **keys)
    dataset = load(varied, tmp_path, 2)
    assert len(dataset.train) == 100
    assert len(_entries(tmp_path)) == 1
    for key in ({"test_share": 0.5}, {"mean": (0.5,), "std": (0.5,)}, {"max_bytes": 2**25}):
        with pytest.raises(DataError):
            load(section(name="npz", path="data.npz", normalize=True, **key), tmp_path, 1)


def test_another_source_is_read_again_and_replaces_the_entry(tmp_path: Path) -> None:
    _npz(tmp_path)
    first = load(NORMALIZED, tmp_path, 1)
    arrays = len(list(_entries(tmp_path)[0].glob("*.npy")))
    _npz(tmp_path, seed=1)
    second = load(NORMALIZED, tmp_path, 1)
    assert bits(first.train) != bits(second.train)
    assert bits(second) == bits(load(NORMALIZED, tmp_path, 1))
    (entry,) = _entries(tmp_path)
    assert len(list(entry.glob("*.npy"))) == arrays


def test_a_source_that_changes_while_it_is_read_is_not_kept(tmp_path: Path) -> None:
    path = _npz(tmp_path)
    source = CachedSource(tmp_path / "decoded", ("a",), lambda: [path])

    def read() -> Dataset:
        os.utime(path, (1, 1))
        return _rich()

    cached(source, read)
    assert not list(source.folder.glob("*.npy"))


def test_small_files_are_not_cached(tmp_path: Path) -> None:
    _npz(tmp_path, images=100)
    load(NORMALIZED, tmp_path, 1)
    assert not (tmp_path / "decoded").exists()


def _rich() -> Dataset:
    """Return a data set that has all that a data set may have."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 1, 2, 2), np.uint8)
    scale = PixelScale((0.5,), (0.25,))
    train = Samples(
        images, np.arange(6) % 3, {"site": np.arange(6), "test": np.ones(6, int)}, scale
    )
    test = Samples(np.zeros((0, 1, 2, 2), np.float32), np.zeros(0, np.int64))
    preparation = Preparation((0.5,), (0.25,), 1, "zeros", True)
    return Dataset(
        train,
        test,
        3,
        (1, 2, 2),
        ("odd",),
        groups=np.arange(6) // 2,
        coarse=np.array([0, 0, 1]),
        preparation=preparation,
        class_names=("a", "b", "c"),
    )


def test_all_that_a_data_set_has_is_kept(tmp_path: Path) -> None:
    path = _npz(tmp_path)
    source = CachedSource(tmp_path / "decoded", ("a",), lambda: [path])
    cached(source, _rich)
    assert bits(cached(source, _never)) == bits(_rich())
    other = CachedSource(tmp_path / "decoded", ("b",), lambda: [path])
    with pytest.raises(AssertionError):
        cached(other, _never)


def _never() -> Dataset:
    raise AssertionError("the source was read")


def _cut(entry: Path) -> None:
    file = max(entry.glob("*.npy"), key=lambda path: path.stat().st_size)
    file.write_bytes(file.read_bytes()[:-1])


def _flip(entry: Path) -> None:
    file = max(entry.glob("*.npy"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def _lose(entry: Path) -> None:
    next(entry.glob("*.npy")).unlink()


def _reshape(entry: Path) -> None:
    file = max(entry.glob("*.npy"), key=lambda path: path.stat().st_size)
    array = np.load(file)
    np.save(file, array.reshape(len(array), 1, 14, 56))


def _garble(entry: Path) -> None:
    (entry / INDEX).write_text("{}")


@pytest.mark.parametrize("damage", [_cut, _flip, _lose, _reshape, _garble])
def test_a_damaged_entry_is_not_used_and_written_again(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    path = _npz(tmp_path)
    whole = bits(load(NORMALIZED, tmp_path, 1))
    damage(_entries(tmp_path)[0])
    assert bits(load(NORMALIZED, tmp_path, 1)) == whole
    _make_unreadable(path)
    assert bits(load(NORMALIZED, tmp_path, 1)) == whole


def _load_at_once(root: Path) -> None:
    """Load a data set once another process is about to, and note if it was read from its source."""

    def read() -> Dataset:
        _append(root / "reads")
        time.sleep(0.2)
        return _rich()

    source = CachedSource(root / "decoded", ("a",), lambda: [root / "data.npz"])
    _append(root / "starts")
    while (root / "starts").stat().st_size < 2:
        time.sleep(0.01)
    assert len(cached(source, read).train) == 6


def _append(path: Path) -> None:
    with path.open("a") as file:
        file.write("x")


def test_of_two_processes_at_once_one_reads(tmp_path: Path) -> None:
    _npz(tmp_path)
    processes = [get_context("fork").Process(target=_load_at_once, args=(tmp_path,)) for _ in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert (tmp_path / "reads").read_text() == "x"


def test_a_disk_that_takes_no_more_is_one_warning_and_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _npz(tmp_path)
    with files_up_to(2_000_000):
        first, second = (bits(load(NORMALIZED, tmp_path, 1)) for _ in range(2))
    assert first == second
    (record,) = caplog.records
    assert record.getMessage().startswith("decoded data are not cached, and each run reads them")
    assert not _entries(tmp_path)
    assert bits(load(NORMALIZED, tmp_path, 1)) == first
    assert len(_entries(tmp_path)) == 1


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare here")
def test_an_entry_leaves_half_of_the_free_disk_to_the_run(tmp_path: Path) -> None:
    path, disk = _npz(tmp_path), tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=8m tmpfs {disk}"  # an entry takes 4.7 MB of it
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*alone, mount], capture_output=True, check=False).returncode:
        pytest.skip("a process may not mount a disk of its own here")
    script = (
        "from pathlib import Path; from edgefed.data.sets.datasets import load\n"
        "from tests.data.helpers import section\n"
        f"dataset = load(section(name='npz', path={str(path)!r}), Path({str(disk)!r}), 1)\n"
        f"print(len(dataset.train), list(Path({str(disk)!r}).rglob('*.npy')))\n"
    )
    command = f'{mount} && exec {sys.executable} -c "{script}"'
    done = subprocess.run([*alone, command], capture_output=True, check=True, text=True)
    assert done.stdout == "1200 []\n"
    assert "not cached" in done.stderr


def test_entries_that_nothing_uses_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _npz(tmp_path)
    sources = [
        CachedSource(tmp_path / "decoded", (name,), lambda: [tmp_path / "data.npz"])
        for name in "abc"
    ]
    for source in sources:
        cached(source, _rich)
    old = (sources[0].folder / INDEX).stat().st_mtime - UNUSED_SECONDS - 60
    for path in (sources[0].folder, *sources[0].folder.iterdir()):
        os.utime(path, (old, old))
    cached(sources[1], _never)
    assert [source.folder.exists() for source in sources] == [False, True, True]
    monkeypatch.setattr(dataset_cache, "LIMIT_BYTES", 3000)
    cached(sources[2], _never)
    assert [source.folder.exists() for source in sources] == [False, False, True]
    monkeypatch.setattr(dataset_cache, "LIMIT_BYTES", 10)
    cached(sources[0], _rich)
    assert not list(sources[0].folder.glob("*.npy"))


def _writers(folder: Path, seed: int) -> None:
    _npz(folder)
    writers = np.arange(IMAGES) % (5 + seed)
    write_npz(folder / "data_writers.npz", writer_train=writers)


def _leaf(folder: Path, seed: int) -> None:
    for part, count in (("train", 300), ("test", 10 + seed)):
        rng = np.random.default_rng(0)
        user = {"x": rng.random((count, 784)).round(3).tolist(), "y": [1] * count}
        (folder / part).mkdir(exist_ok=True)
        content = {"users": ["w"], "user_data": {"w": user}}
        (folder / part / "a.json").write_text(json.dumps(content))


def _texts(folder: Path, seed: int) -> None:
    (folder / "roles").mkdir(exist_ok=True)
    (folder / "roles" / "long.txt").write_text("To be, or not to be. " * (SMALL_BYTES // 20))
    (folder / "roles" / "short.txt").write_text("ab"[seed] * 300)


def _vision(folder: Path, seed: int) -> None:
    shutil.rmtree(folder / "MNIST", ignore_errors=True)
    write_mnist(folder, IMAGES + seed)


@pytest.mark.parametrize(
    ("write", "keys"),
    [
        (_writers, {"name": "npz", "path": "data.npz", "test_share": 0.2}),
        (_leaf, {"name": "femnist", "path": "."}),
        (_texts, {"name": "shakespeare", "path": "roles", "stride": 1000}),
        (_vision, {"name": "mnist"}),
    ],
)
def test_each_file_of_a_data_set_counts(
    write: Callable[[Path, int], None], keys: dict[str, object], tmp_path: Path
) -> None:
    write(tmp_path, 0)
    first = bits(load(section(**keys), tmp_path, 1))
    assert len(_entries(tmp_path)) == 1
    assert bits(load(section(**keys), tmp_path, 1)) == first
    write(tmp_path, 1)
    second = bits(load(section(**keys), tmp_path, 1))
    assert second != first
    shutil.rmtree(tmp_path / "decoded")
    assert bits(load(section(**keys), tmp_path, 1)) == second
