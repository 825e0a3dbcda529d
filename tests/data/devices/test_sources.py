"""What a real device trains on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgefed.data.devices.sources import load_device, parse_source
from edgefed.errors import EdgeFedError, RecipeError, UsageError
from tests.data.helpers import write_image, write_mnist, write_npz


def test_a_source_names_kind_path_and_options() -> None:
    source = parse_source("folder:some/where:else?size=64&greyscale=true")
    assert source.kind == "folder"
    assert source.path == Path("some/where:else")
    assert source.options == {"size": "64", "greyscale": "true"}
    assert parse_source("npz:~/a.npz").path == Path.home() / "a.npz"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "No data is named", "npz:FILE, folder:FOLDER, text:FILE or mnist:FOLDER"),
        ("data.npz", "'data.npz' does not name a path", "npz:FILE"),
        ("npz:", "'npz:' does not name a path", "npz:FILE"),
        ("nzp:a.npz", "no kind of data 'nzp'", "did you mean 'npz'?"),
    ],
)
def test_what_is_no_source_is_explained(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_source(text)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.code == "data.source"


def test_a_file_is_split_in_proportion_and_the_same_at_every_start(tmp_path: Path) -> None:
    x = np.arange(50, dtype=np.float32)[:, None]
    path = write_npz(tmp_path / "yard.npz", x=x, y=np.where(np.arange(50) < 30, 2, 5))
    one, again = (load_device(f"npz:{path}", holdout=0.1) for _ in range(2))
    assert np.array_equal(one.test.targets, [2, 2, 2, 5, 5])
    assert np.array_equal(one.test.inputs, again.test.inputs)
    both = np.concatenate([one.train.inputs, one.test.inputs])
    assert np.array_equal(np.sort(both[:, 0]), x[:, 0])
    assert (one.classes, one.shape, one.name, one.warnings) == (6, (1,), "yard", ())


def test_a_file_with_a_test_part_is_not_split(tmp_path: Path) -> None:
    x, y = np.zeros((4, 2)), np.arange(4)
    path = write_npz(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x[:1], y_test=y[:1])
    data = load_device(f"npz:{path}", holdout=0.5)
    assert (len(data.train), len(data.test)) == (4, 1)


def test_too_few_samples_to_evaluate_on_is_a_warning(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz", x=np.zeros((1, 2)), y=np.array([3]))
    data = load_device(f"npz:{path}", holdout=0.1)
    assert (len(data.train), len(data.test)) == (1, 0)
    assert "no samples for evaluation" in data.warnings[0]
    assert load_device(f"npz:{path}", holdout=0).warnings == ()


def test_a_folder_is_scaled_and_its_troubles_are_warnings(tmp_path: Path) -> None:
    for index in range(4):
        write_image(tmp_path / "cat" / f"{index}.png", (4 + index, 4), 10)
    (tmp_path / "cat" / "bad.png").write_bytes(b"hello")
    data = load_device(f"folder:{tmp_path}?size=5&greyscale=1", holdout=0.25)
    assert data.train.inputs.shape == (3, 1, 5, 5)
    assert len(data.test) == 1
    assert data.shape == (1, 5, 5)
    (skipped,) = data.warnings
    assert skipped.startswith("1 of 5 image files")
    assert data.class_names == ("cat",)
    (tmp_path / "classes.txt").write_text("ant\nbee\ncat\n")
    data = load_device(f"folder:{tmp_path}?size=5", holdout=0.25)
    assert np.array_equal(np.unique(data.train.targets), [2])
    assert (data.classes, data.warnings) == (3, (skipped,))
    assert data.class_names == ("ant", "bee", "cat")


def test_mnist_brings_its_own_test_part(tmp_path: Path) -> None:
    write_mnist(tmp_path, 30)
    data = load_device(f"mnist:{tmp_path}", holdout=0.5)
    assert (len(data.train), len(data.test), data.classes) == (30, 30, 10)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("folder:{}?sise=5", "no key 'sise'"),
        ("folder:{}?size=big", "'size' cannot be used"),
        ("npz:{}?size=5", "no key 'size'"),
        ("mnist:{}?size=5", "no key 'size'"),
    ],
)
def test_options_are_checked(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_device(text.format(tmp_path), holdout=0.1)
    assert message in caught.value.message


@pytest.mark.parametrize("text", ["npz:{}/a.npz", "folder:{}/a", "npz:{}", "folder:{}"])
def test_what_is_not_there_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(EdgeFedError, match=str(tmp_path)):
        load_device(text.format(tmp_path), holdout=0.1)
