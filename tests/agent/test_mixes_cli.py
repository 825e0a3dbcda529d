"""``edgefed-agent mixes preview``: the picture, and what it says where there is none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from device_agent.commands.cli import app
from edgefed.data.base.types import Array
from edgefed.sharing.label_mixes import MixSettings
from edgefed.sharing.mix_accounting import mix_epsilon
from tests.data.helpers import write_image, write_npz

TILE, GAP, MARGIN, HEAD, BELOW = 96, 10, 12, 18, 28
"""Sides of a picture, in pixels: of an image, beside it, around all, and of the text."""

MOMENTS = "?normalize=true&mean=0.4,0.5,0.6&std=0.2,0.25,0.3"


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's settings, and a folder of the test's own."""
    for name in [name for name in os.environ if name.startswith("EDGEFED_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("EDGEFED_NO_CONFIG", "1")
    monkeypatch.setenv("EDGEFED_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def preview(*words: str | Path) -> tuple[int, str, str]:
    told = CliRunner().invoke(app, ["mixes", "preview", *map(str, words)])
    return told.exit_code, told.stdout, told.stderr


def pixels(file: Path) -> Array:
    with Image.open(file) as picture:
        assert (picture.format, picture.mode) == ("PNG", "RGB")
        return np.asarray(picture)


def tile(picture: Array, row: int, column: int, scale: int) -> Array:
    """One pixel for each pixel of an image in a picture: (height, width, 3)."""
    top = MARGIN + HEAD + row * (TILE + BELOW + GAP)
    left = MARGIN + column * (TILE + GAP)
    return picture[top : top + TILE : scale, left : left + TILE : scale]


def two_colours(file: Path) -> Path:
    """Eight images of 4 x 4: label 0 has one colour, label 1 another."""
    images = np.zeros((8, 4, 4, 3), np.uint8)
    images[:4], images[4:] = (200, 100, 0), (100, 20, 40)
    return write_npz(file, x=images, y=np.arange(8) // 4)


@pytest.mark.parametrize("options", ["", MOMENTS])
def test_a_row_shows_samples_and_the_mix_of_their_pixels(tmp_path: Path, options: str) -> None:
    source = f"npz:{two_colours(tmp_path / 'a.npz')}{options}"
    made = ["--width", "2", "--low", "0.75", "--high", "0.75", "--others", "other_classes"]
    file = tmp_path / "mixes.png"
    words = ["--data", source, "--label", "0", "--png", str(file), "--noise-scale", "0", *made]
    code, out, err = preview(*words, "--count", "2")
    assert (code, out) == (0, f"{file}\n")
    assert err == "noise 0: no formal guarantee: no finite epsilon bounds what the releases tell\n"
    picture = pixels(file)
    assert picture.shape[1] == 2 * MARGIN + 3 * TILE + 2 * GAP
    for row in (0, 1):
        # 0.75 (200, 100, 0) + 0.25 (100, 20, 40)
        for column, colour in enumerate([(200, 100, 0), (100, 20, 40), (175, 80, 10)]):
            assert (tile(picture, row, column, 24) == colour).all()


def test_four_scales_are_drawn_and_noise_grows_with_them(tmp_path: Path) -> None:
    images = np.full((6, 24, 24), 128, np.uint8)
    source = f"npz:{write_npz(tmp_path / 'a.npz', x=images, y=np.zeros(6, np.int64))}"
    file = tmp_path / "mixes.png"
    assert preview("--data", source, "--label", "0", "--png", file)[0] == 0
    picture = pixels(file)
    assert picture.shape[1] == 2 * MARGIN + 8 * TILE + 7 * GAP
    means = [
        np.abs(
            np.stack([tile(picture, row, 4 + column, 4) for row in range(4)]).astype(int) - 128
        ).mean()
        for column in range(4)
    ]
    # The mean magnitude of Laplace noise is its scale; of 64/255 a little is clipped.
    assert means[0] == 0
    assert means[1:3] == pytest.approx([8, 16], rel=0.1)
    assert 45 < means[3] < 60


def test_each_call_draws_anew_and_json_tells_what_the_mixes_are_made_of(tmp_path: Path) -> None:
    source = f"npz:{two_colours(tmp_path / 'a.npz')}"
    told: list[dict[str, Any]] = []
    for name in ("one.png", "two.png"):
        words = ["--data", source, "--label", "1", "--png", str(tmp_path / name), "--json"]
        code, out, err = preview(*words, "--count", "3", "--noise-scale", "16/255")
        assert (code, err) == (0, "")
        told.append(json.loads(out))
    assert told[0]["mixes"] != told[1]["mixes"]
    assert (tmp_path / "one.png").read_bytes() != (tmp_path / "two.png").read_bytes()
    assert told[0]["label"] == 1
    assert len(told[0]["mixes"]) == 3
    for mix in told[0]["mixes"]:
        assert mix["labels"][0] == 1
        assert len(mix["labels"]) == len(mix["weights"]) == 4
        assert sum(mix["weights"]) == pytest.approx(1, abs=1e-5)
        assert 0.5 <= mix["weights"][0] <= 0.75
    # One of the eight is held out for evaluation, so three of a label or of the other are left.
    (epsilon,) = told[0]["epsilon"]
    assert epsilon["noise_scale"] == 16 / 255
    held = [mix_epsilon(MixSettings(), 48, of, 7 - of) for of in (3, 4)]
    assert epsilon["per_mix"] in held


def test_a_label_may_be_named_and_a_missing_one_lists_those_there_are(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    for number in range(6):
        write_image(folder / "cat" / f"{number}.png", (4, 4, 3), 40 * number)
        write_image(folder / "dog" / f"{number}.png", (4, 4, 3), 30 * number)
    (folder / "classes.txt").write_text("dog\nbird\ncat\n")
    file = tmp_path / "mixes.png"
    for label in ("cat", "2"):
        words = ["--data", f"folder:{folder}", "--label", label, "--png", file, "--json"]
        code, out, _ = preview(*words)
        assert (code, json.loads(out)["label"]) == (0, 2)
    file.unlink()
    for label in ("bird", "1", "horse"):
        code, out, err = preview("--data", f"folder:{folder}", "--label", label, "--png", file)
        assert (code, out) == (2, "")
        assert f"This device has no sample of label '{label}'.  [mix.label]" in err
        assert "it has 0 dog, 2 cat" in err
    assert not file.exists()


REFUSED = [
    ("text:a.txt", [], "mix.pixels", "they are tokens of a text"),
    ("npz:table.npz", [], "mix.pixels", "an input of shape 5 is no image"),
    ("npz:two.npz", [], "mix.pixels", "Images of 2 channels cannot be drawn"),
    ("npz:a.npz", ["--width", "65"], "mix.settings", "of 65 samples"),
    ("npz:a.npz", ["--noise-scale", "nan"], "usage", "'nan' is not a noise scale"),
    ("npz:a.npz", ["--png", "nowhere/a.png"], "usage", "nowhere does not exist"),
    ("npz:large.npz", ["--count", "100"], "mix.sheet", "million pixels"),
    ("npz:none.npz", [], "data.missing", "none.npz does not exist"),
    ("", [], "data.unset", "This device has no data"),
]


@pytest.mark.parametrize(("source", "words", "code", "reason"), REFUSED)
def test_what_cannot_be_drawn_is_one_clear_line(
    tmp_path: Path, source: str, words: list[str], code: str, reason: str
) -> None:
    two_colours(tmp_path / "a.npz")
    labels = np.zeros(8, np.int64)
    (tmp_path / "a.txt").write_text("to be or not to be " * 20)
    write_npz(tmp_path / "table.npz", x=np.zeros((8, 5), np.float32), y=labels)
    write_npz(tmp_path / "two.npz", x=np.zeros((8, 2, 4, 4), np.float32), y=labels)
    write_npz(tmp_path / "large.npz", x=np.zeros((8, 300, 300), np.uint8), y=labels)
    data = ["--data", source] if source else []
    exit_code, out, err = preview("--png", "mixes.png", "--label", "0", *data, *words)
    assert exit_code != 0
    assert out == ""
    errors = [line for line in err.splitlines() if line.startswith("edgefed: error: ")]
    assert len(errors) == 1
    assert reason in errors[0] and f"[{code}]" in errors[0]
    assert not list(tmp_path.glob("*.png"))


def test_the_data_may_come_from_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEFED_DATA", f"npz:{two_colours(tmp_path / 'a.npz')}")
    assert preview("--label", "0", "--png", "mixes.png", "--quiet") == (
        0,
        f"{tmp_path / 'mixes.png'}\n",
        "",
    )
