"""Folders of images that grow: only new files are decoded, and none of them stops the others."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgefed.data.images import image_cache
from edgefed.data.images.image_index import INDEX
from edgefed.data.images.image_options import ImageOptions
from edgefed.data.sets.folder import FolderContent, read_folder
from tests.base.test_files import files_up_to
from tests.data.bombs import write_png
from tests.data.images.test_image_cache import cache_of, photos, pixels_of, steps_of

ROW = 16 * 16 * 3
"""Bytes of an image of ``photos``."""


def ignored(content: FolderContent) -> dict[str, tuple[str, ...]]:
    return {entry.reason: entry.names for entry in content.ignored}


def read(tmp_path: Path, **options: int) -> FolderContent:
    return read_folder(tmp_path / "photos", ImageOptions(**options), tmp_path / "decoded")


def test_files_of_all_bad_kinds_are_named_and_looked_at_again_when_they_change(
    tmp_path: Path,
) -> None:
    folder = photos(tmp_path / "photos")
    cat = folder / "cat"
    write_png(cat / "bomb.png", 50_000, 50_000)
    whole = (cat / "0001.png").read_bytes()
    (cat / "half.png").write_bytes(whole[: len(whole) // 2])
    (cat / "lost.png").symlink_to("nowhere.png")
    (cat / "loop.png").symlink_to("loop.png")
    os.mkfifo(cat / "pipe.png")
    Image.new("RGB", (16, 8)).save(cat / "wide.png")
    content = read(tmp_path)
    assert np.array_equal(content.samples.inputs, pixels_of(photos(tmp_path / "again")))
    bad = tuple(f"cat/{name}.png" for name in ("half", "loop", "lost", "pipe"))
    assert ignored(content) == {
        "unreadable": bad,
        "too_large": ("cat/bomb.png",),
        "unlike": ("cat/wide.png",),
    }
    assert content.warnings[1].startswith(
        f"1 of 18 image files in {folder} have more than 67108864"
    )
    assert read(tmp_path).warnings == content.warnings, "also when nothing is decoded"
    (cat / "half.png").write_bytes(whole)
    (cat / "nowhere.png").write_bytes(whole)
    content = read(tmp_path)
    assert len(content.samples) == 15
    assert ignored(content)["unreadable"] == ("cat/loop.png", "cat/pipe.png")


def test_a_cache_that_has_no_room_keeps_the_oldest_images(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos")
    read(tmp_path, max_bytes=13 * ROW)
    added = [folder / "cat" / f"{number}.png" for number in range(3)]
    for age, path in enumerate(added):
        path.write_bytes((folder / "dog" / "0000.png").read_bytes())
        os.utime(path, (2_000_000_000 - age,) * 2)
    content = read(tmp_path, max_bytes=13 * ROW)
    assert len(content.samples) == 13 and ignored(content) == {"room": ("cat/0.png", "cat/1.png")}
    with files_up_to(13 * ROW + 1):
        content = read(tmp_path)
    assert ignored(content) == {"room": ("cat/0.png", "cat/1.png")}, "nor has the disk"
    content = read(tmp_path)
    assert len(content.samples) == 15 and ignored(content) == {}
    assert np.array_equal(content.samples.inputs, pixels_of(folder))


def test_pixels_of_files_that_have_gone_are_dropped_when_they_are_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_cache, "FEW", 2)
    folder = photos(tmp_path / "photos")
    before, expected = read(tmp_path), pixels_of(folder)
    for number in range(8):
        next(folder.glob(f"*/{number:04d}.png")).unlink()
    content, steps = steps_of(lambda: read(tmp_path))
    assert steps == []
    files = cache_of(tmp_path / "decoded").glob("pixels-*")
    assert sorted(path.stat().st_size for path in files) == [4 * ROW, 12 * ROW]
    assert np.array_equal(content.samples.inputs, pixels_of(folder))
    opened = pickle.loads(pickle.dumps(before.samples))
    assert np.array_equal(opened.inputs, expected), "who reads them keeps them, also by name"
    del before, opened
    photos(folder, 3)
    assert np.array_equal(read(tmp_path).samples.inputs, pixels_of(folder))
    (pixels,) = cache_of(tmp_path / "decoded").glob("pixels-*")
    assert pixels.stat().st_size == 7 * ROW


@pytest.mark.parametrize(
    "damage", [b'["cat/0001.png", 3', b'{"image": [16, 16, 3]}', b"\0" * 100, b"[1]\n"]
)
def test_an_index_whose_end_is_damaged_is_used_up_to_there(tmp_path: Path, damage: bytes) -> None:
    folder = photos(tmp_path / "photos")
    read(tmp_path)
    with (cache_of(tmp_path / "decoded") / INDEX).open("ab") as file:
        file.write(damage)
    for new in (1, 2):
        Image.new("RGB", (16, 16), (new, 0, 0)).save(folder / "cat" / f"new-{new}.png")
        content, steps = steps_of(lambda: read(tmp_path))
        assert steps == [(11 + new, 12 + new), (12 + new, 12 + new)], "only the new file"
        assert np.array_equal(content.samples.inputs, pixels_of(folder))
