"""The images of a folder are decoded once, and read from a file from then on."""

from __future__ import annotations

import contextvars
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from edgefed.data.base.holdout import hold_out
from edgefed.data.base.types import Array, joined, take
from edgefed.data.devices.sources import load_device
from edgefed.data.images.image_cache import UNUSED_SECONDS
from edgefed.data.images.image_decoding import read_pixels
from edgefed.data.images.image_index import INDEX, ImageIndex, read_index
from edgefed.data.images.image_options import ImageOptions
from edgefed.data.sets.folder import FolderContent, read_folder
from edgefed.errors import DataError, StorageError
from edgefed.files.samples import Samples, stored
from edgefed.files.stored_images import StoredImages
from edgefed.terminal.progress import Tell, tell_progress_to
from tests.base.test_files import files_up_to
from tests.memory_limit import bounded
from tests.processes import start_module

AS_IT_IS = ImageOptions()


def photos(folder: Path, count: int = 12, side: int = 16) -> Path:
    """Write so many photos of noise, half of them into each of two folders."""
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (side, side, 3), np.uint8)
        path = folder / ("cat" if number % 2 else "dog") / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder


def pixels_of(folder: Path) -> Array:
    """Return the pixels of a folder as Pillow has them."""
    files = [path for sub in sorted(folder.iterdir()) for path in sorted(sub.iterdir())]
    return np.stack([np.moveaxis(np.asarray(Image.open(path)), -1, 0) for path in files])


def images_of(samples: Samples) -> StoredImages:
    images = stored(samples.inputs)
    assert images is not None, "they were copied into memory"
    return images


def cache_of(root: Path) -> Path:
    (cache,) = root.iterdir()
    return cache


def steps_of(act: Callable[[], FolderContent]) -> tuple[FolderContent, list[tuple[int, int]]]:
    """Return what an act makes, and the progress that it tells of."""
    steps: list[tuple[int, int]] = []
    return telling(lambda what, done, total: steps.append((done, total)), act), steps


def telling(tell: Tell, act: Callable[[], FolderContent]) -> FolderContent:
    def told() -> FolderContent:
        tell_progress_to(tell)
        return act()

    return contextvars.copy_context().run(told)


# -- values ---------------------------------------------------------------------------------------


def test_inputs_are_the_pixels_divided_by_255_and_stay_in_the_file(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos")
    content = read_folder(folder, AS_IT_IS, tmp_path / "decoded")
    images = images_of(content.samples)
    assert images.shape == (12, 3, 16, 16) and len(images) == 12 and images.dtype == np.uint8
    assert np.array_equal(images, pixels_of(folder))
    expected = pixels_of(folder).astype(np.float32) / np.float32(255)
    assert content.samples.float_inputs().tobytes() == expected.tobytes()
    assert np.array_equal(images[3], pixels_of(folder)[3])
    assert np.array_equal(images[2:11:3], pixels_of(folder)[2:11:3])
    chosen = np.array([7, 8, 9, 1, 1, 0])
    assert np.array_equal(images[chosen], pixels_of(folder)[chosen])
    assert np.array_equal(images[np.arange(12) > 8], pixels_of(folder)[9:])


def test_parts_of_the_samples_are_not_copied(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos")
    samples = read_folder(folder, AS_IT_IS, tmp_path / "decoded").samples
    train, test = hold_out(samples, 0.25, np.random.default_rng(0))
    again = joined([take(test, np.array([2, 1, 0])), train])
    rows = images_of(again).rows
    assert images_of(again).file is images_of(samples).file
    assert sorted(rows) == list(range(12)) and rows[0] > rows[1]
    assert np.array_equal(again.inputs[:], pixels_of(folder)[rows])
    assert np.array_equal(again.targets, samples.targets[rows])


def test_samples_travel_to_another_process_as_the_name_of_their_file(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", side=200)
    samples = read_folder(folder, AS_IT_IS, tmp_path / "decoded").samples
    packed = pickle.dumps(samples)
    assert len(packed) < 10_000
    assert np.array_equal(pickle.loads(packed).inputs[:], pixels_of(folder))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "tif", "webp"])
def test_images_are_turned_upright(tmp_path: Path, orientation: int, suffix: str) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (6, 9, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(pixels).save(path, exif=exif, lossless=True)
    with Image.open(path) as image:
        upright = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    assert upright.shape == ((6, 9, 3) if orientation < 5 else (9, 6, 3))
    assert np.array_equal(read_pixels(path), upright)
    grey = read_pixels(path, size=4, greyscale=True)
    with Image.open(path) as image:
        plain = ImageOps.exif_transpose(image.convert("L"))
        plain = ImageOps.exif_transpose(image).convert("L") if suffix == "tif" else plain
        expected = plain.resize((4, 4), Image.Resampling.BILINEAR)
    assert np.array_equal(grey, np.asarray(expected))


def test_damaged_exif_does_not_lose_the_image(tmp_path: Path) -> None:
    path = tmp_path / "photos" / "cat" / "a.jpg"
    path.parent.mkdir(parents=True)
    Image.new("RGB", (8, 4), (9, 8, 7)).save(path, exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")
    content = read_folder(tmp_path / "photos", AS_IT_IS, tmp_path / "decoded")
    assert content.samples.inputs.shape == (1, 3, 4, 8) and content.warnings == ()


def test_grey_photos_in_a_folder_of_colour_have_three_channels(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", 4)
    Image.fromarray(np.full((16, 16), 7, np.uint8)).save(folder / "cat" / "grey.png")
    samples = read_folder(folder, AS_IT_IS, tmp_path / "decoded").samples
    assert samples.inputs.shape == (5, 3, 16, 16)
    assert (samples.inputs[2] == 7).all()


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_grey_values_of_16_bits_keep_their_upper_half(
    tmp_path: Path, suffix: str, order: str
) -> None:
    values = np.random.default_rng(1).integers(0, 2**16, (6, 9), np.uint16)
    path = tmp_path / f"a.{suffix}"
    if suffix == "pgm":
        path.write_bytes(b"P5 9 6 65535\n" + values.astype(">u2").tobytes())
    else:
        Image.fromarray(values.astype(f"{order}u2")).save(path)
    expected = values // 256
    assert np.array_equal(read_pixels(path, greyscale=True), expected)
    assert np.array_equal(read_pixels(path), np.stack([expected] * 3, axis=-1))


# -- when it is built -----------------------------------------------------------------------------


def test_images_are_decoded_once_and_again_when_a_file_changes(tmp_path: Path) -> None:
    folder, root = photos(tmp_path / "photos"), tmp_path / "decoded"
    _, steps = steps_of(lambda: read_folder(folder, AS_IT_IS, root))
    assert steps == [(done, 12) for done in range(13)]
    held, steps = steps_of(lambda: read_folder(folder, AS_IT_IS, root))
    assert steps == [], "nothing was decoded"
    old = pixels_of(folder)
    Image.new("RGB", (16, 16), (1, 2, 3)).save(folder / "cat" / "0001.png")
    content, steps = steps_of(lambda: read_folder(folder, AS_IT_IS, root))
    assert steps == [(11, 12), (12, 12)], "only the other file was decoded"
    assert np.array_equal(content.samples.inputs, pixels_of(folder))
    assert np.array_equal(held.samples.inputs, old), "who read the old file still does"


@pytest.mark.parametrize("change", ["added", "removed", "renamed", "touched"])
def test_whatever_happens_to_a_file_is_noticed(tmp_path: Path, change: str) -> None:
    folder, root = photos(tmp_path / "photos"), tmp_path / "decoded"
    read_folder(folder, AS_IT_IS, root)
    one = folder / "cat" / "0001.png"
    if change == "added":
        (folder / "cat" / "more.png").write_bytes(one.read_bytes())
    elif change == "removed":
        one.unlink()
    elif change == "renamed":
        one.rename(one.with_name("9999.png"))
    else:
        os.utime(one, ns=(1, 1))
    content, steps = steps_of(lambda: read_folder(folder, AS_IT_IS, root))
    assert bool(steps) == (change != "removed")
    assert np.array_equal(content.samples.inputs, pixels_of(folder))


def test_a_killed_build_resumes_where_it_was(tmp_path: Path) -> None:
    folder, root = photos(tmp_path / "photos", 120), tmp_path / "decoded"
    (folder / "cat" / "0005.png").write_bytes(b"no image")
    process = start_module("tests.data.image_build_process", str(folder), str(root))
    with process:
        try:
            index = _wait_for_progress(root)
        finally:
            process.kill()
    index = read_index(cache_of(root)) or index
    done = len(index.entries)
    assert 0 < done < 120, "it was killed in the middle"
    content, steps = steps_of(lambda: read_folder(folder, AS_IT_IS, root))
    assert steps[0] == (done, 120) and steps[-1] == (120, 120)
    fresh = read_folder(folder, AS_IT_IS, tmp_path / "fresh")
    assert np.array_equal(content.samples.inputs, fresh.samples.inputs)
    assert np.array_equal(content.samples.targets, fresh.samples.targets)
    assert np.array_equal(images_of(content.samples).digests, images_of(fresh.samples).digests)
    assert content.warnings == fresh.warnings != ()


def _wait_for_progress(root: Path) -> ImageIndex:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for cache in root.glob("*"):
            index = read_index(cache)
            if index is not None and len(index.entries) >= 20:
                return index
        time.sleep(0.005)
    raise AssertionError("the build told nothing")


def test_a_cut_cache_is_built_again_and_one_that_is_cut_while_it_is_read_says_so(
    tmp_path: Path,
) -> None:
    folder, root = photos(tmp_path / "photos"), tmp_path / "decoded"
    samples = read_folder(folder, AS_IT_IS, root).samples
    (pixels,) = cache_of(root).glob("pixels-*")
    with pixels.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(DataError, match="shorter than when it was opened") as raised:
        samples.float_inputs()
    assert raised.value.code == "data.cut_short" and str(pixels.parent) in raised.value.hint
    content, steps = steps_of(lambda: read_folder(folder, AS_IT_IS, root))
    assert steps[0] == (0, 12)
    assert np.array_equal(content.samples.inputs, pixels_of(folder))


def test_a_folder_that_shrinks_while_it_is_read_gives_what_is_left(tmp_path: Path) -> None:
    folder, root = photos(tmp_path / "photos", 60), tmp_path / "decoded"
    expected = pixels_of(folder)

    def shrink(what: str, done: int, total: int) -> None:
        if done == 10:
            for path in (folder / "dog").iterdir():
                path.unlink()

    content = telling(shrink, lambda: read_folder(folder, AS_IT_IS, root))
    rows = images_of(content.samples).rows
    assert 10 <= len(rows) < 60
    assert np.array_equal(content.samples.inputs, expected[rows])
    assert "of 60 image files" in content.warnings[0] and "skipped" in content.warnings[0]
    left = read_folder(folder, AS_IT_IS, root)
    assert len(left.samples) == 30 and [each.reason for each in left.ignored] == ["unusable"]


# -- disk and memory ------------------------------------------------------------------------------


def test_caches_that_nothing_needs_are_removed(tmp_path: Path) -> None:
    root = tmp_path / "decoded"
    folders = [photos(tmp_path / name, 4) for name in ("gone", "unused", "used", "open")]
    kept = []
    for folder in folders:
        before = set(root.glob("*"))
        content = read_folder(folder, AS_IT_IS, root)
        kept += [*set(root.glob("*")) - before]
        if folder.name == "open":
            held = content
    for path in (folders[0] / "cat", folders[0] / "dog"):
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    folders[0].rmdir()
    long_ago = time.time() - UNUSED_SECONDS - 60
    for cache in (kept[1], kept[3]):
        for path in (*cache.iterdir(), cache):
            os.utime(path, (long_ago, long_ago))
    read_folder(folders[2], ImageOptions(size=8), root)
    assert [cache.exists() for cache in kept] == [False, False, True, True]
    assert held.samples.inputs[:].any()


def test_a_disk_that_takes_no_more_is_one_error_and_leaves_nothing(tmp_path: Path) -> None:
    folder, root = photos(tmp_path / "photos"), tmp_path / "decoded"
    with files_up_to(5000), pytest.raises(StorageError) as raised:
        read_folder(folder, AS_IT_IS, root)
    assert raised.value.code == "storage.limit"
    assert not [*root.rglob("pixels-*"), *root.rglob(INDEX)]
    assert len(read_folder(folder, AS_IT_IS, root).samples) == 12


def test_images_that_the_disk_has_no_room_for_are_refused_at_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "photos" / "cat"
    folder.mkdir(parents=True)
    one = tmp_path / "photos" / "cat" / "0.png"
    Image.new("L", (8000, 8000)).save(one)
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    for number in range(1, free // (3 * 8000**2) + 2):
        (folder / f"{number}.png").symlink_to(one)
    with pytest.raises(StorageError, match="The disk is full: the decoded images of") as raised:
        load_device(f"folder:{folder.parent}?max_bytes={2**60}", 0.0, tmp_path)
    assert raised.value.code == "storage.full"
    with pytest.raises(DataError, match="on disk; at most") as refused:
        load_device(f"folder:{folder.parent}?max_bytes={2**28}", 0.0, tmp_path)
    assert refused.value.code == "data.too_large"


def test_a_folder_takes_no_more_memory_than_a_few_of_its_images(tmp_path: Path) -> None:
    for number in range(140):
        path = tmp_path / "photos" / "cat" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (1000, 1000), (number, 0, 0)).save(path, compress_level=1)
    prepare = (
        "from edgefed.data.devices.sources import load_device\nimport PIL.Image; PIL.Image.init()\n"
    )
    act = "print(load_device(sys.argv[1], 0.1, Path(sys.argv[2])).train.inputs.shape)"
    source = f"folder:{tmp_path / 'photos'}"
    ended = bounded(prepare, act, source, tmp_path, megabytes=300)
    assert (ended.said, ended.trouble) == ("(126, 3, 1000, 1000)\nok", ""), "420 MB of pixels"
