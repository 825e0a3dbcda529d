"""``edgefed noise preview``: a sheet and arrays of natural noise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from edgefed.natural_noise.generators import noise_images
from tests.cli.commands import Told, edgefed


def preview(*words: str | Path) -> Told:
    return edgefed("noise", "preview", "--size", "32", *words)


def test_arrays_are_the_seeds_images(tmp_path: Path) -> None:
    file = tmp_path / "noise.npz"
    told = preview("--npz", file, "--seed", "9", "--count", "5")
    assert (told.code, told.out, told.err) == (0, f"{file}\n", "")
    with np.load(file) as held:
        assert held.files == ["images"]
        assert np.array_equal(held["images"], noise_images(9, 5, size=32))


def test_a_sheet_shows_each_image_enlarged(tmp_path: Path) -> None:
    file = tmp_path / "noise.png"
    told = preview("--png", file, "--count", "5", "--generator", "white", "--json")
    expected = {"seed": 1, "count": 5, "size": 32, "generator": "white", "png": str(file)}
    assert told.json == expected
    images = noise_images(1, 5, kind="white", size=32).transpose(0, 2, 3, 1)
    with Image.open(file) as picture:
        assert (picture.format, picture.mode) == ("PNG", "RGB")
        pixels = np.asarray(picture)
    assert pixels.shape == (2 * 100 + 4, 3 * 100 + 4, 3)
    for number, image in enumerate(images):
        top, left = (4 + 100 * place for place in divmod(number, 3))
        assert np.array_equal(pixels[top : top + 96 : 3, left : left + 96 : 3], image)
    assert (pixels[104:, 204:] == 255).all()


def test_both_files_may_be_written_at_once(tmp_path: Path) -> None:
    told = preview("--png", tmp_path / "a.png", "--npz", tmp_path / "a.npz", "--count", "2")
    assert told.out.splitlines() == [str(tmp_path / "a.png"), str(tmp_path / "a.npz")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "a.png"]


def test_what_cannot_be_drawn_is_told_in_a_line(tmp_path: Path) -> None:
    preview().failed(2, "usage", "--png FILE or --npz FILE")
    file = tmp_path / "noise.png"
    edgefed("noise", "preview", "--png", file, "--size", "50").failed(2, "noise.settings", "50")
    preview("--png", file, "--seed", "-1").failed(2, "noise.settings", "-1")
    preview("--png", tmp_path / "new" / "a.png").failed(2, "noise.folder", "new")
    preview("--png", tmp_path).failed(1, "storage.failed", str(tmp_path))
    assert preview("--png", file, "--count", "0").code == 2
    assert list(tmp_path.iterdir()) == []


def test_noise_is_drawn_without_torch(tmp_path: Path) -> None:
    words = ["noise", "preview", "--size", "32", "--count", "1", "--png", str(tmp_path / "a.png")]
    script = f"""
import sys
from edgefed.cli.main import app
try:
    app({words!r})
except SystemExit as ended:
    assert not ended.code
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
