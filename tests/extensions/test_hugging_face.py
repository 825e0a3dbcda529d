"""Data sets of Hugging Face's ``datasets``: saved folders and files, and the package's absence."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgefed.config.recipes.recipe import DataSection
from edgefed.data.devices.sources import load_device
from edgefed.data.sets.dataset_reader import DatasetReader
from edgefed.data.sets.datasets import load
from edgefed.data.sets.hugging_face import (
    ColumnOptions,
    HuggingFaceOptions,
    load_hugging_face,
    pixels_of,
)
from edgefed.errors import DataError
from edgefed.testing.datasets import check_dataset

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("datasets") is None, reason="the extra huggingface is not installed"
)

ABSENT = """
import sys
sys.modules["datasets"] = None
from edgefed.config.recipes.recipe import DataSection
from edgefed.data.sets.datasets import load
from edgefed.errors import MissingDataError
try:
    load(DataSection(name="huggingface", path="photos"), None, 1)
except MissingDataError as error:
    print(error.message, error.hint)
"""


def section(**keys: Any) -> DataSection:
    return DataSection(name="huggingface", **keys)


def images(count: int, seed: int, side: int = 6) -> list[Image.Image]:
    rng = np.random.default_rng(seed)
    return [Image.fromarray(rng.integers(0, 256, (side, side, 3), np.uint8)) for _ in range(count)]


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two splits of labelled photos."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    kinds = datasets.Features(
        {"photo": datasets.Image(), "kind": datasets.ClassLabel(names=["cat", "dog", "owl"])}
    )
    splits = {
        name: datasets.Dataset.from_dict(
            {"photo": images(count, count), "kind": [k % 3 for k in range(count)]}, features=kinds
        )
        for name, count in (("train", 12), ("test", 5))
    }
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "photos"))
    return tmp_path


COLUMNS = {"path": "photos", "image": "photo", "label": "kind"}


@needs_package
def test_a_saved_folder_of_images(saved: Path) -> None:
    found = load(section(**COLUMNS, test_split="test"), saved, 1)
    assert (len(found.train), len(found.test), found.classes) == (12, 5, 3)
    assert found.class_names == ("cat", "dog", "owl")
    assert found.shape == (3, 6, 6)
    assert found.train.targets.tolist() == [k % 3 for k in range(12)]
    wanted = np.stack([np.asarray(each) for each in images(12, 12)]).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found.train.float_inputs(), wanted / np.float32(255), rtol=1e-6)


@needs_package
def test_without_a_test_split_the_same_samples_are_held_out(saved: Path) -> None:
    first, second = (load(section(**COLUMNS, test_share=0.25), saved, seed) for seed in (1, 2))
    assert (len(first.train), len(first.test)) == (9, 3)
    assert np.array_equal(first.test.inputs, second.test.inputs)


@needs_package
def test_images_are_scaled_made_grey_and_turned_as_their_camera_was_held(tmp_path: Path) -> None:
    import datasets

    upright = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4) * 20)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: the pixels are to be rotated by 90 degrees
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    upright.save(tmp_path / "upright.png")
    files = [str(tmp_path / name) for name in ("upright.png", "turned.png")]
    table = datasets.Dataset.from_dict({"image": files, "label": [0, 1]})
    table.cast_column("image", datasets.Image()).save_to_disk(str(tmp_path / "t"))
    keys = {"path": "t", "image": "image", "greyscale": True, "size": 2, "test_share": 0.0}
    found = load(section(**keys), tmp_path, 1).train
    assert found.inputs.shape == (2, 1, 2, 2)
    assert np.array_equal(found.inputs[0], found.inputs[1])


def test_an_image_that_the_package_leaves_turned_is_put_upright(tmp_path: Path) -> None:
    upright = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4) * 20)
    exif = Image.Exif()
    exif[0x0112] = 6
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as turned:
        assert turned.size == (3, 4)
        found = pixels_of(turned, ColumnOptions(greyscale=True), "it")
    assert np.array_equal(found, np.asarray(upright))


@needs_package
def test_names_of_classes_are_numbered_as_in_the_training_part(tmp_path: Path) -> None:
    import datasets

    kinds = {"train": ["cat", "owl", "cat"], "test": ["owl"], "strange": ["dog"]}
    splits = {
        name: datasets.Dataset.from_dict({"x": [float(k) for k in range(len(own))], "label": own})
        for name, own in kinds.items()
    }
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "t"))
    found = load(section(path="t", features=["x"], test_split="test"), tmp_path, 1)
    assert (found.class_names, found.test.targets.tolist()) == (("cat", "owl"), [1])
    with pytest.raises(DataError, match="a class 'dog', which the training part lacks"):
        load(section(path="t", features=["x"], test_split="strange"), tmp_path, 1)


@needs_package
@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_a_file_of_numbers_with_names_of_classes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    columns = {
        "width": [1.0, 2.0, 3.0, 4.0],
        "height": [5, 6, 7, 8],
        "kind": ["owl", "cat", "owl", "cat"],
    }
    getattr(datasets.Dataset.from_dict(columns), f"to_{kind}")(str(tmp_path / f"birds.{kind}"))
    keys = {"path": f"birds.{kind}", "features": ["width", "height"], "label": "kind"}
    found = load(section(**keys, test_share=0.0), tmp_path, 1)
    assert found.train.inputs.tolist() == [[1, 5], [2, 6], [3, 7], [4, 8]]
    assert found.train.targets.tolist() == [1, 0, 1, 0]
    assert found.class_names == ("cat", "owl")


@needs_package
def test_a_device_reads_a_saved_folder(saved: Path) -> None:
    found = load_device(f"huggingface:{saved / 'photos'}?image=photo&label=kind", 0.25)
    assert (len(found.train), len(found.test), found.classes) == (9, 3, 3)
    assert found.class_names == ("cat", "dog", "owl")


@needs_package
def test_it_holds_the_contract(saved: Path) -> None:
    reader = DatasetReader("Hugging Face", HuggingFaceOptions, load_hugging_face)
    check_dataset(reader, COLUMNS, saved)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"image": "picture"}, "has no column 'picture'"),
    ({"image": ""}, "name either a column of images or columns of features"),
    ({"split": "validation"}, "has no split 'validation'"),
    ({"path": "nowhere"}, "nowhere cannot be loaded"),
    ({"image": "", "features": ["photo"]}, "'photo' is not numbers"),
    ({"image": "kind"}, "is int, not an image"),
]


@needs_package
@pytest.mark.parametrize(("keys", "said"), WRONG)
def test_what_cannot_be_read_is_said(keys: dict[str, Any], said: str, saved: Path) -> None:
    with pytest.raises(DataError) as caught:
        load(section(**{**COLUMNS, **keys}), saved, 1)
    assert said in caught.value.message
    assert caught.value.hint


@needs_package
def test_images_of_two_sizes_are_said(tmp_path: Path) -> None:
    import datasets

    table = datasets.Dataset.from_dict(
        {"image": [*images(1, 1, 4), *images(1, 2, 6)], "label": [0, 1]},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")}),
    )
    table.save_to_disk(str(tmp_path / "t"))
    with pytest.raises(DataError, match="images of 4x4 and of 6x6"):
        load(section(path="t", image="image"), tmp_path, 1)


def test_without_the_package_it_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ABSENT], capture_output=True, text=True, check=True
    )
    assert "needs the package datasets, which is not installed" in done.stdout
    assert "pip install 'edgefed[huggingface]'" in done.stdout
