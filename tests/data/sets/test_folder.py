"""Images in folders, one for each label."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from edgefed.data.images.image_options import ImageOptions
from edgefed.data.sets import folder as folder_module
from edgefed.data.sets.datasets import load
from edgefed.data.sets.folder import FolderContent
from edgefed.data.sets.folder import read_folder as read_into
from edgefed.errors import DataError
from tests.data.helpers import section, write_image

AS_IT_IS = ImageOptions()


def read_folder(folder: Path, options: ImageOptions) -> FolderContent:
    return read_into(folder, options, folder / ".decoded")


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    for name, value in (("cat", 51), ("dog", 255)):
        for index in range(5):
            write_image(tmp_path / name / f"{index}.png", (6, 4, 3), value)
    return tmp_path


def test_each_folder_is_a_label_and_each_file_a_sample(pets: Path) -> None:
    (pets / "notes.txt").write_text("no image")
    (pets / "cat" / "notes.txt").write_text("no image")
    content = read_folder(pets, AS_IT_IS)
    assert content.samples.inputs.shape == (10, 3, 6, 4)
    assert content.samples.float_inputs().dtype == np.float32
    assert np.array_equal(content.samples.targets, [0] * 5 + [1] * 5)
    assert np.array_equal(
        content.samples.float_inputs()[:, 0, 0, 0], np.array([0.2] * 5 + [1] * 5, np.float32)
    )
    assert content.classes == 2
    assert content.warnings == ()


def test_size_and_greyscale_bring_images_into_one_shape(pets: Path) -> None:
    write_image(pets / "dog" / "large.jpg", (30, 20), 255)
    content = read_folder(pets, AS_IT_IS)
    assert [(each.reason, each.names) for each in content.ignored] == [
        ("unlike", ("dog/large.jpg",))
    ]
    for number in range(9):
        write_image(pets / "dog" / f"large-{number}.jpg", (30, 20), 255)
    for _ in range(2):
        with pytest.raises(DataError, match=r"large-0\.jpg is 20x30") as caught:
            read_folder(pets, AS_IT_IS)
        assert "size" in caught.value.hint
    content = read_folder(pets, ImageOptions(size=8, greyscale=True))
    assert content.samples.inputs.shape == (20, 1, 8, 8)
    assert content.samples.inputs[-1].min() == 255
    for path in pets.glob("*/*.png"):
        path.unlink()
    assert read_folder(pets, AS_IT_IS).samples.inputs.shape == (10, 3, 30, 20)


def test_a_data_set_is_split_in_proportion(pets: Path) -> None:
    keys = section(name="folder", path=pets.name, test_share=0.2, size=3)
    dataset = load(keys, pets.parent, seed=1)
    assert np.array_equal(np.bincount(dataset.train.targets), [4, 4])
    assert np.array_equal(np.bincount(dataset.test.targets), [1, 1])
    assert dataset.shape == (3, 3, 3)


def test_files_that_cannot_be_read_are_skipped_and_counted(pets: Path) -> None:
    whole = (pets / "cat" / "0.png").read_bytes()
    (pets / "cat" / "0.png").write_bytes(whole[:40])
    (pets / "cat" / "1.png").write_bytes(b"")
    (pets / "dog" / "a.jpg").write_bytes(b"hello")
    content = read_folder(pets, AS_IT_IS)
    assert np.array_equal(np.bincount(content.samples.targets), [3, 5])
    (warning,) = content.warnings
    assert warning.startswith(f"3 of 11 image files in {pets} cannot be read")
    assert str(Path("cat") / "0.png") in warning
    assert read_folder(pets, AS_IT_IS).warnings == (warning,), "also when nothing is decoded"
    told = load(section(name="folder", path=str(pets)), pets / "state", seed=1).warnings
    assert told == (warning,), "and of the coordinator's data set"


def test_a_class_whose_folder_goes_after_it_was_listed_has_no_images(
    pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = folder_module._labels

    def listed_before_it_goes(folder: Path) -> folder_module._Labels:
        labels = listing(folder)
        shutil.rmtree(folder / "cat")
        return labels

    monkeypatch.setattr(folder_module, "_labels", listed_before_it_goes)
    content = read_folder(pets, AS_IT_IS)
    assert np.array_equal(content.samples.targets, [1] * 5)
    assert content.class_names == ("cat", "dog")


def test_folders_named_by_numbers_are_those_labels(tmp_path: Path) -> None:
    for name in ("2", "10"):
        write_image(tmp_path / name / "a.png", (2, 2), 9)
    content = read_folder(tmp_path, AS_IT_IS)
    assert np.array_equal(content.samples.targets, [10, 2])
    assert content.classes == 11
    assert content.class_names == ("", "", "2", *[""] * 7, "10")


def test_a_list_of_classes_numbers_the_folders(pets: Path) -> None:
    (pets / "classes.txt").write_text("dog\n\nant\ncat\nelk\n")
    content = read_folder(pets, AS_IT_IS)
    assert np.array_equal(np.unique(content.samples.targets[:5]), [2])
    assert np.array_equal(np.unique(content.samples.targets[5:]), [0])
    assert content.classes == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"cat\n", "lacks the folder 'dog'"),
        (b"cat\ndog\ncat\n", "names the class 'cat' twice"),
        (b"\xff\xfe\xff", "is not text"),
    ],
)
def test_a_wrong_list_of_classes_is_refused(pets: Path, text: bytes, message: str) -> None:
    (pets / "classes.txt").write_bytes(text)
    with pytest.raises(DataError, match=message):
        read_folder(pets, AS_IT_IS)


def test_nothing_to_read_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="it holds no folders and no image files") as caught:
        read_folder(tmp_path, AS_IT_IS)
    assert caught.value.code == "data.empty"
    assert "FOLDER/CLASS/IMAGE.png" in caught.value.hint
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.png").write_bytes(b"hello")
    with pytest.raises(DataError, match="none of the 1 image file in its 1 folder can be read"):
        read_folder(tmp_path, AS_IT_IS)
    with pytest.raises(DataError, match="does not exist"):
        read_folder(tmp_path / "missing", AS_IT_IS)
    with pytest.raises(DataError, match="is a file, not a folder"):
        read_folder(tmp_path / "cat" / "a.png", AS_IT_IS)


def test_images_without_class_folders_are_told_as_what_they_are(tmp_path: Path) -> None:
    for index in range(3):
        write_image(tmp_path / f"{index}.png", (6, 4, 3), 51)
    with pytest.raises(DataError, match="it holds 3 image files itself, and no folders"):
        read_folder(tmp_path, AS_IT_IS)
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataError, match="3 image files itself, and none in its 1 folder"):
        read_folder(tmp_path, AS_IT_IS)


def test_class_folders_without_images_are_told_as_that(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
    with pytest.raises(DataError, match="it holds 2 folders, and no image file in them"):
        read_folder(tmp_path, AS_IT_IS)


def test_images_beside_the_class_folders_are_told_in_a_warning(pets: Path) -> None:
    write_image(pets / "stray.png", (6, 4, 3), 51)
    (warning,) = read_folder(pets, AS_IT_IS).warnings
    assert "in no class, are not used: 1, such as stray.png" in warning
