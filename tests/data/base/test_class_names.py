"""Names of classes: where data have them, and labels numbered after a recipe's list."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.config.recipes.recipe import DataSection
from edgefed.data.base.class_names import checked_names, in_words, numbered
from edgefed.data.devices.partition import deal
from edgefed.data.devices.shard_files import read_shard, write_shard
from edgefed.data.devices.sources import load_device
from edgefed.data.images.image_options import ImageOptions
from edgefed.data.sets.datasets import load
from edgefed.data.sets.folder import read_folder
from edgefed.errors import DataError
from tests.data.helpers import section, write_image, write_npz

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2])
PETS = np.array(["cat", "dog", "eel"])


def pets(folder: Path, **more: Any) -> Path:
    return write_npz(folder / "pets.npz", x_train=X, y_train=Y, x_test=X[:3], y_test=Y[:3], **more)


def test_a_recipes_list_renumbers_named_labels(tmp_path: Path) -> None:
    path = pets(tmp_path, classes=PETS, coarse=np.array([7, 8, 9]))
    keys = section(name="npz", path=str(path), classes=["ant", "eel", "cat", "dog"])
    dataset = load(keys, None, seed=1)
    assert dataset.train.targets.tolist() == [2, 3, 1, 2, 3, 1]
    assert dataset.test.targets.tolist() == [2, 3, 1]
    assert (dataset.classes, dataset.class_names) == (4, ("ant", "eel", "cat", "dog"))
    assert dataset.coarse is not None
    assert dataset.coarse.tolist()[1:] == [9, 7, 8]


def test_without_a_list_names_are_the_datas_own(tmp_path: Path) -> None:
    path = pets(tmp_path, classes=PETS)
    dataset = load(section(name="npz", path=str(path)), None, seed=1)
    assert dataset.class_names == ("cat", "dog", "eel")
    assert load_device(f"npz:{path}", 0).class_names == ("cat", "dog", "eel")
    unnamed = pets(tmp_path, classes=np.int64(5))
    assert load_device(f"npz:{unnamed}", 0).class_names == ()


def test_a_list_names_the_labels_of_data_without_names(tmp_path: Path) -> None:
    keys = section(name="npz", path=str(pets(tmp_path)), classes=["a", "b", "c", "d"])
    dataset = load(keys, None, seed=1)
    assert np.array_equal(dataset.train.targets, Y)
    assert (dataset.classes, dataset.class_names) == (4, ("a", "b", "c", "d"))


def test_a_number_states_how_many_classes_there_are(tmp_path: Path) -> None:
    keys = section(name="npz", path=str(pets(tmp_path)), classes=5)
    assert load(keys, None, seed=1).classes == 5


@pytest.mark.parametrize(
    ("stored", "classes", "message"),
    [
        (PETS, ["cat", "dog"], "does not list: 'eel'"),
        (PETS, 5, "has 3 classes, `classes` has 5"),
        (np.int64(3), ["a", "b"], "has 3 classes, `classes` has 2"),
        (np.int64(3), 2, "has 3 classes, `classes` has 2"),
    ],
)
def test_a_list_that_does_not_fit_the_data_set_is_refused(
    tmp_path: Path, stored: Any, classes: Any, message: str
) -> None:
    path = pets(tmp_path, classes=stored)
    with pytest.raises(DataError, match=message) as caught:
        load(section(name="npz", path=str(path), classes=classes), None, seed=1)
    assert caught.value.code == "data.classes"


def test_targets_that_are_numbers_have_no_names(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "n.npz", x=X, y=X, classes=np.array(["left", "right"]))
    assert load_device(f"npz:{path}", 0).class_names == ()
    with pytest.raises(DataError, match="no classes to name"):
        load(section(name="npz", path=str(path), classes=["left", "right"]), None, seed=1)
    with pytest.raises(DataError, match="2 numbers, `classes` says 3"):
        load(section(name="npz", path=str(path), classes=3), None, seed=1)


def test_shards_keep_the_names(tmp_path: Path) -> None:
    keys = section(name="npz", path=str(pets(tmp_path, classes=PETS)), partition="iid")
    for shard in deal(load(keys, None, seed=1), keys, 2, 0.0, seed=1):
        write_shard(tmp_path / "one.npz", shard)
        assert read_shard(tmp_path / "one.npz").class_names == ("cat", "dog", "eel")
        assert load_device(f"npz:{tmp_path / 'one.npz'}", 0).classes == 3


def test_folders_keep_their_names_in_one_form_of_unicode(tmp_path: Path) -> None:
    composed = unicodedata.normalize("NFC", "caf\u00e9")
    write_image(tmp_path / unicodedata.normalize("NFD", composed) / "a.png", (2, 2), 9)
    (tmp_path / "classes.txt").write_text(f"bar\n{composed}\n", "utf-8")
    content = read_folder(tmp_path, ImageOptions(), tmp_path / ".decoded")
    assert content.class_names == ("bar", composed)
    assert content.samples.targets.tolist() == [1]
    assert section(name="none", classes=["cafe\u0301 "]).class_names == (composed,)


def test_two_folders_for_one_number_are_refused(tmp_path: Path) -> None:
    for name in ("7", "07"):
        write_image(tmp_path / name / "a.png", (2, 2), 9)
    with pytest.raises(DataError, match="two folders for label 7"):
        read_folder(tmp_path, ImageOptions(), tmp_path / ".decoded")


@pytest.mark.parametrize(
    "names", [["cat", "cat"], ["a\x1b[2Jb"], ["x" * 129], [f"{n:0128d}" for n in range(600)]]
)
def test_names_that_cannot_be_sent_are_refused(names: list[str]) -> None:
    with pytest.raises(DataError, match=r"where names the class|where has class names"):
        checked_names(names, "where")
    with pytest.raises(ValueError, match="classes"):
        DataSection.model_validate({"classes": names})


def test_numbers_for_names_are_plain_integers() -> None:
    assert numbered(())
    assert numbered(("0", "", "02"))
    assert not numbered(("1", "0"))
    assert not numbered(("cat",))
    assert in_words([str(n) for n in range(10)]).endswith("'7' and 2 more")
