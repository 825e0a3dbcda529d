"""Natural noise is drawn once, and what a cache returns is always what a seed draws."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgefed.errors import DataError, UsageError
from edgefed.natural_noise.cache import NoiseCache, NoiseCacheEntry, NoiseFiles, drawn_by
from edgefed.natural_noise.shapes import noise_samples
from edgefed.natural_noise.types import Array, GeneratorName
from tests.base.test_files import files_up_to

SHAPE = (3, 16, 16)
MUCH = 1 << 20
ONE = 3 * 16 * 16
"""Bytes of a sample."""


def entry_of(seed: int) -> NoiseCacheEntry:
    return NoiseCacheEntry(seed, "white", SHAPE, drawn_by())


def plant(folder: Path, seed: int, count: int) -> Path:
    """Write a sound file of samples that no seed draws, so that one sees where samples are from."""
    before = set(folder.glob("*.noise"))
    NoiseFiles(folder, MUCH).write(entry_of(seed), np.zeros((count, *SHAPE), np.uint8))
    (path,) = set(folder.glob("*.noise")) - before
    return path


def drawn(seed: int, count: int) -> Array:
    return noise_samples(seed, count, SHAPE, kind="white")


@pytest.mark.parametrize(
    ("kind", "shape", "on_disk"),
    [("oriented", (3, 16, 16), True), ("spectrum", (28, 28), False), ("white", (5, 8, 8), True)],
)
def test_samples_are_those_of_the_seed_in_whatever_numbers_they_are_asked_for(
    tmp_path: Path, kind: GeneratorName, shape: tuple[int, ...], on_disk: bool
) -> None:
    expected = noise_samples(4, 5, shape, kind=kind)
    cache = NoiseCache(tmp_path if on_disk else None, MUCH)
    for count in (2, 5, 0, 3, 5):
        found = cache.samples(4, count, shape, kind)
        assert found.dtype == np.uint8
        assert np.array_equal(found, expected[:count])
    assert np.array_equal(NoiseCache(tmp_path, MUCH).samples(4, 4, shape, kind), expected[:4])


def test_seeds_generators_and_shapes_are_kept_apart(tmp_path: Path) -> None:
    cache = NoiseCache(tmp_path, MUCH)
    wanted: list[tuple[int, tuple[int, ...], GeneratorName]] = [
        (1, SHAPE, "white"),
        (2, SHAPE, "white"),
        (1, SHAPE, "spectrum"),
        (1, (16, 16), "white"),
        (1, (1, 16, 16), "white"),
    ]
    for _ in range(2):
        for seed, shape, kind in wanted:
            found = cache.samples(seed, 2, shape, kind)
            assert np.array_equal(found, noise_samples(seed, 2, shape, kind=kind))
    assert len(list(tmp_path.iterdir())) == len(wanted)


def test_only_what_a_file_lacks_is_drawn_and_it_grows(tmp_path: Path) -> None:
    plant(tmp_path, 1, 3)
    found = NoiseCache(tmp_path, MUCH).samples(1, 5, SHAPE, "white")
    assert not found[:3].any()
    assert np.array_equal(found[3:], drawn(1, 5)[3:])
    again = NoiseCache(tmp_path, MUCH).samples(1, 5, SHAPE, "white")
    assert np.array_equal(again, found)


def test_what_another_process_adds_is_read_and_memory_is_used_first(tmp_path: Path) -> None:
    cache = NoiseCache(tmp_path, MUCH)
    cache.samples(1, 2, SHAPE, "white")
    shutil.rmtree(tmp_path)
    plant(tmp_path, 1, 6)
    assert np.array_equal(cache.samples(1, 2, SHAPE, "white"), drawn(1, 2))
    assert not cache.samples(1, 6, SHAPE, "white").any()
    shutil.rmtree(tmp_path)
    assert not cache.samples(1, 6, SHAPE, "white").any()


def test_a_shorter_file_never_replaces_a_longer_one(tmp_path: Path) -> None:
    path = plant(tmp_path, 1, 6)
    NoiseFiles(tmp_path, MUCH).write(entry_of(1), drawn(1, 4))
    assert path.stat().st_size > 6 * ONE


@pytest.mark.parametrize("where", [0, 20, 60, 90, 130, -1])
def test_a_file_with_one_other_byte_is_drawn_again(tmp_path: Path, where: int) -> None:
    path = plant(tmp_path, 1, 3)
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)
    found = NoiseCache(tmp_path, MUCH).samples(1, 3, SHAPE, "white")
    assert np.array_equal(found, drawn(1, 3))
    found = NoiseCache(tmp_path, MUCH).samples(1, 3, SHAPE, "white")
    assert np.array_equal(found, drawn(1, 3))


@pytest.mark.parametrize("size", [0, 5, 80, 300, -ONE, -1])
def test_a_truncated_file_is_drawn_again_and_replaced(tmp_path: Path, size: int) -> None:
    path = plant(tmp_path, 1, 3)
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[:size])
    found = NoiseCache(tmp_path, MUCH).samples(1, 1, SHAPE, "white")
    assert np.array_equal(found, drawn(1, 1))
    assert path.stat().st_size == whole - 2 * ONE


def resealed(data: bytes, body: bytes) -> bytes:
    """A file's bytes with another body and its right digest."""
    return data.split(b"\n")[0] + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def test_a_sound_file_of_something_else_is_not_used(tmp_path: Path) -> None:
    path = plant(tmp_path, 1, 3)
    other = plant(tmp_path, 2, 3)
    shutil.copy(other, path)
    assert np.array_equal(NoiseCache(tmp_path, MUCH).samples(1, 3, SHAPE, "white"), drawn(1, 3))
    data = other.read_bytes()
    for body in (entry_of(2).line() + bytes(ONE + 1), b"", b"{}\n", b"x" * 3 * ONE):
        other.write_bytes(resealed(data, body))
        assert np.array_equal(NoiseCache(tmp_path, MUCH).samples(2, 2, SHAPE, "white"), drawn(2, 2))


def test_samples_that_other_versions_drew_are_not_used(tmp_path: Path) -> None:
    other = NoiseCacheEntry(1, "white", SHAPE, "another processor")
    NoiseFiles(tmp_path, MUCH).write(other, np.zeros((3, *SHAPE), np.uint8))
    assert np.array_equal(NoiseCache(tmp_path, MUCH).samples(1, 3, SHAPE, "white"), drawn(1, 3))


def test_results_are_read_only_and_so_is_what_they_show(tmp_path: Path) -> None:
    for cache in (NoiseCache(tmp_path, MUCH), NoiseCache(None, MUCH), NoiseCache(None, 0)):
        for count in (2, 2, 1):
            found = cache.samples(1, count, SHAPE, "white")
            with pytest.raises(ValueError, match="read-only"):
                found[0] = 0
            with pytest.raises(ValueError, match="WRITEABLE"):
                found.flags.writeable = True


def test_the_files_used_least_recently_are_removed_above_the_limit(tmp_path: Path) -> None:
    paths = [plant(tmp_path, seed, 3) for seed in range(1, 4)]
    size = paths[0].stat().st_size
    for number, path in enumerate(paths):
        os.utime(path, (number, number))
    (tmp_path / "notes.txt").write_bytes(bytes(10 * size))
    cache = NoiseCache(tmp_path, 3 * size)
    assert not cache.samples(1, 3, SHAPE, "white").any()  # the oldest file has been used now
    cache.samples(4, 3, SHAPE, "white")
    assert [path.exists() for path in paths] == [True, False, True]
    assert (tmp_path / "notes.txt").exists()
    cache.samples(5, 12, SHAPE, "white")  # more than fits
    assert [path.exists() for path in paths] == [True, False, True]


def test_memory_has_a_limit_and_drops_what_was_used_least_recently() -> None:
    cache = NoiseCache(None, 4 * ONE)
    first, second = (cache.samples(seed, 2, SHAPE, "white") for seed in (1, 2))
    assert cache.samples(1, 2, SHAPE, "white").base is first.base
    cache.samples(3, 2, SHAPE, "white")
    assert cache.samples(1, 2, SHAPE, "white").base is first.base
    again = cache.samples(2, 2, SHAPE, "white")
    assert again.base is not second.base
    assert np.array_equal(again, second)
    large = cache.samples(1, 5, SHAPE, "white")  # more than fits: what is kept stays
    assert np.array_equal(large, drawn(1, 5))
    assert cache.samples(2, 2, SHAPE, "white").base is again.base


def test_a_full_disk_costs_only_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = NoiseCache(tmp_path, MUCH)
    with files_up_to(100):
        for seed in (1, 2):
            assert np.array_equal(cache.samples(seed, 2, SHAPE, "white"), drawn(seed, 2))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert list(tmp_path.iterdir()) == []
    cache.samples(3, 2, SHAPE, "white")
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_folder_that_cannot_be_used_costs_only_the_files(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    if what == "file":
        (tmp_path / "here").write_bytes(b"mine")
        folder = tmp_path / "here" / "noise"
    else:
        folder = tmp_path
        path = plant(folder, 1, 1)
        path.unlink()
        path.mkdir()
    for _ in range(2):
        cache = NoiseCache(folder, MUCH)
        for count in (1, 2):
            assert np.array_equal(cache.samples(1, count, SHAPE, "white"), drawn(1, count))
    assert len(caplog.records) == 2  # once for each cache


READ_ONLY = """
import sys
from pathlib import Path
from edgefed.natural_noise.cache import NoiseCache
from tests.natural_noise.test_cache import MUCH, SHAPE
cache = NoiseCache(Path(sys.argv[1]), MUCH)
print(*(int(cache.samples(seed, 2, SHAPE, "white").sum()) for seed in (1, 2)))
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare here")
def test_a_read_only_disk_is_read_and_costs_only_the_files(tmp_path: Path) -> None:
    plant(tmp_path, 1, 2)
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs tmpfs {tmp_path}"
    if subprocess.run([*alone, mount], capture_output=True, check=False).returncode:
        pytest.skip("a process may not mount a disk of its own here")
    aside = f"{tmp_path}-copy"
    shutil.copytree(tmp_path, aside)
    steps = f"{mount} && cp {aside}/* {tmp_path} && mount -o remount,ro {tmp_path}"
    program = [*alone, f'{steps} && exec "$0" -c "$1" {tmp_path}', sys.executable, READ_ONLY]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", str(int(drawn(2, 2).sum()))]
    assert done.stderr.count("not kept on disk") == 1


AT_ONCE = """
import sys
from pathlib import Path
from edgefed.natural_noise.cache import NoiseCache
from tests.natural_noise.test_cache import ONE, SHAPE, drawn
own = int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for number in range(60):
    cache = NoiseCache(Path(sys.argv[1]), 20 * ONE)
    seed, count = (number * own) % 5, 1 + (number * 7 + own) % 6
    found = cache.samples(seed, count, SHAPE, "white")
    assert (found == drawn(seed, count)).all()
"""


def test_processes_share_a_folder(tmp_path: Path) -> None:
    words = [sys.executable, "-c", AT_ONCE, str(tmp_path)]
    processes = [
        subprocess.Popen(
            [*words, str(own)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for own in (1, 2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.communicate("\n")
        assert process.returncode == 0
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 20 * ONE
    found = NoiseCache(tmp_path, 20 * ONE).samples(1, 6, SHAPE, "white")
    assert np.array_equal(found, drawn(1, 6))


def test_what_is_no_noise_is_refused_even_where_samples_are_kept(tmp_path: Path) -> None:
    cache = NoiseCache(tmp_path, MUCH)
    cache.samples(1, 3, SHAPE, "white")
    with pytest.raises(DataError):
        cache.samples(1, 3, (3, 0, 16), "white")
    for seed, count, kind in [(-1, 3, "white"), (1, -1, "white"), (1, 3, "pink")]:
        with pytest.raises(UsageError):
            cache.samples(seed, count, SHAPE, kind)  # type: ignore[arg-type]
    assert len(list(tmp_path.iterdir())) == 1
