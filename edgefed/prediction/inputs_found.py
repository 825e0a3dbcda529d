"""Find the inputs that the words of a command name: image files, folders of images, NPZ files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edgefed.config.recipes.class_names import normal
from edgefed.data.base.archive import read_arrays
from edgefed.data.base.limits import MAX_BYTES
from edgefed.data.base.preparation import PREPARATION, read_preparation
from edgefed.data.images.image_decoding import image_files
from edgefed.errors import DataError, MissingDataError
from edgefed.files.writing import storage_error
from edgefed.prediction.inputs import Array

PARTS = ("", "_test", "_train")
"""Endings of the names of an NPZ file's arrays; the first part that has rows is predicted."""


@dataclass(frozen=True)
class InputImage:
    """An image file.

    Attributes:
        path: the file.
        expected: the class that its folder names; empty where none is known.
    """

    path: Path
    expected: str = ""


@dataclass(frozen=True, eq=False)
class Archive:
    """The inputs of an NPZ file.

    Attributes:
        path: the file.
        inputs: one row each.
        expected: the class of each row; empty where none is known.
        is_scaled: whether the file states that its inputs were scaled.
    """

    path: Path
    inputs: Array
    expected: tuple[str, ...]
    is_scaled: bool = False


@dataclass(frozen=True)
class Found:
    """The inputs to be predicted.

    Attributes:
        images: files.
        archives: NPZ files.
        remarks: for the user.
    """

    images: list[InputImage] = field(default_factory=list)
    archives: list[Archive] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Number of inputs."""
        return len(self.images) + sum(len(archive.inputs) for archive in self.archives)


def find_inputs(words: Iterable[Path], labels: Sequence[str]) -> Found:
    """Return the inputs that words of a command line name.

    A folder stands for the images in it, and for those in its subfolders, whose names are the
    classes.

    Args:
        words: paths.
        labels: names of the model's classes; empty for a model that predicts numbers.

    Raises:
        MissingDataError: a path does not exist.
        DataError: ``data.empty``: there is nothing to predict; or as ``read_arrays``.
        StorageError: a folder cannot be listed.
    """
    inputs = Found()
    for path in (word.expanduser() for word in words):
        if path.is_dir():
            _add_folder(inputs, path, labels)
        elif not path.is_file():
            raise MissingDataError(
                f"{path} does not exist.", code="data.missing", hint="check the path"
            )
        elif path.suffix.lower() == ".npz":
            inputs.archives.append(_archive(path, labels))
        else:
            inputs.images.append(InputImage(path))
    if not inputs.count:
        raise DataError(
            "There is nothing to predict: the folders hold no image files, or the arrays no rows.",
            code="data.empty",
            hint="name images, a folder with images, or an NPZ file with inputs as x",
        )
    return inputs


def _add_folder(inputs: Found, folder: Path, labels: Sequence[str]) -> None:
    try:
        inputs.images.extend(map(InputImage, image_files(folder)))
        for sub in sorted(entry for entry in folder.iterdir() if entry.is_dir()):
            if sub.name.startswith("."):
                continue
            images = image_files(sub)
            name = class_of(sub.name, labels)
            if images and labels and not name:
                inputs.remarks.append(
                    f"the folder {sub} is no class of the model: its {len(images)} images do not"
                    " count towards the accuracy"
                )
            inputs.images.extend(InputImage(path, name) for path in images)
    except OSError as error:
        raise storage_error(folder, error) from error


def class_of(name: str, labels: Sequence[str]) -> str:
    """Return the class of a name, such as ``7`` for ``07``; empty for none."""
    if normal(name) in labels:
        return normal(name)
    number = str(int(name)) if name.isdecimal() else ""
    return number if number in labels else ""


def _archive(path: Path, labels: Sequence[str]) -> Archive:
    known = [f"{name}{part}" for part in PARTS for name in ("x", "y")]
    arrays = read_arrays(path, (*known, "classes", PREPARATION), MAX_BYTES)
    there = [part for part in PARTS if f"x{part}" in arrays]
    part = next((part for part in there if arrays[f"x{part}"].size), next(iter(there), None))
    if part is None:
        raise DataError(
            f"{path} has no inputs: it lacks x, x_test and x_train.",
            code="predict.input",
            hint="store the inputs as x, and their labels, if there are any, as y",
        )
    inputs = arrays[f"x{part}"]
    classes = tuple(_class_names(arrays.get("classes"), labels))
    expected = tuple(_expected(arrays.get(f"y{part}"), inputs, classes))
    return Archive(path, inputs, expected, bool(read_preparation(arrays, str(path)).mean))


def _class_names(stated: Array | None, labels: Sequence[str]) -> Iterator[str]:
    """Yield the model's class for each label of the file."""
    if stated is None or stated.ndim != 1 or stated.dtype.kind != "U":
        yield from labels
        return
    for name in stated:
        yield class_of(str(name), labels)


def _expected(targets: Array | None, inputs: Array, classes: tuple[str, ...]) -> Iterator[str]:
    """Yield the class of each row."""
    rows = len(inputs) if inputs.ndim else 0
    if targets is None or targets.shape != (rows,) or targets.dtype.kind not in "iu":
        yield from [""] * rows
        return
    for label in targets.astype(np.int64):
        yield classes[label] if 0 <= label < len(classes) else ""
