"""Images in folders: ``folder/class/*.png``, one folder for each label.

The folder's name is the name of the class. The label's number is the folder's line in
``folder/classes.txt`` (one name per line), if that file exists; otherwise the folder's name, if all
names are numbers; otherwise its position among the sorted names. Devices of one run may use other
numbers, because a run compares names; see `edgefed.data.base.class_names`.

``folder/columns.csv`` may add columns: its first line names them after ``file``, such as
``file,rotation,site``; each further line has an image's path below the folder, such as
``cat/0.png``, and a number for each column.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefed.config.recipes.class_names import normal
from edgefed.data.base.checks import check_class_count
from edgefed.data.base.class_names import checked_names
from edgefed.data.base.columns import with_columns
from edgefed.data.base.holdout import hold_out
from edgefed.data.base.limits import MAX_NAMES_BYTES, check_file
from edgefed.data.base.paths import DECODED, require_folder, resolve
from edgefed.data.base.types import Array, ClassNames, Dataset
from edgefed.data.images.image_cache import cached_images
from edgefed.data.images.image_options import ImageOptions
from edgefed.data.sets.folder_listing import Ignored, IgnoredFiles, list_folder
from edgefed.data.sets.options import SplitOptions
from edgefed.errors import DataError
from edgefed.files.samples import Samples, as_inputs
from edgefed.files.writing import storage_error
from edgefed.seeds import generator
from edgefed.terminal.units import counted

NAMES_FILE = "classes.txt"


@dataclass(frozen=True, eq=False)
class FolderContent:
    """The contents of a folder of images.

    Attributes:
        samples: never empty.
        class_names: names of the labels, with or without images; empty for a number that no folder
            has.
        ignored: the unused files, by reason.
    """

    samples: Samples
    class_names: ClassNames
    ignored: tuple[Ignored, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the user: a line for each reason."""
        return tuple(entry.warning for entry in self.ignored)

    @property
    def classes(self) -> int:
        """Number of labels."""
        return len(self.class_names)


@dataclass(frozen=True)
class _Labels:
    folders: dict[Path, int]
    class_names: ClassNames


class FolderOptions(ImageOptions, SplitOptions):
    """Keys of ``name = "folder"``."""


def load_folder(options: FolderOptions, folder: Path | None) -> Dataset:
    """Return the images below ``options.path``, a share of them held out for testing.

    Raises:
        DataError: there are no images, or they differ in size and no size is set.
    """
    images = resolve(options.path, folder)
    content = read_folder(images, options, (folder or images.parent) / DECODED)
    rng = generator(0, "data", "folder", "test")
    train, test = hold_out(content.samples, options.test_share, rng)
    return Dataset(
        train,
        test,
        content.classes,
        train.inputs.shape[1:],
        content.warnings,
        class_names=content.class_names,
    )


def read_folder(folder: Path, options: ImageOptions, decoded: Path) -> FolderContent:
    """Return every readable image of ``folder/class/``, uint8 (n, channels, height, width).

    Args:
        folder: of the classes' folders.
        options: how image files become inputs.
        decoded: keeps the decoded images of this and other folders.

    Raises:
        DataError: there are no images, they differ in size and no size is set, or they are larger
            than is allowed.
        StorageError: the folder cannot be listed, or the decoded images cannot be kept.
    """
    require_folder(folder)
    try:
        labels = _labels(folder)
    except OSError as error:
        raise storage_error(folder, error) from error
    listings = {sub: list_folder(sub) for sub in labels.folders}
    ignored = IgnoredFiles(folder, listings, list_folder(folder))
    files = [(path, labels.folders[sub]) for sub in listings for path in listings[sub].images]
    paths = [path for path, _ in files]
    cached = cached_images(decoded, folder, paths, options) if paths else None
    if cached is not None:
        ignored.note_problems({paths[at]: why for at, why in cached.problems.items()})
    if cached is None or cached.images is None:
        raise _no_images(folder, ignored, len(files))
    positions = cached.positions
    targets = np.array([files[position][1] for position in positions], np.int64)
    samples = Samples(as_inputs(cached.images), targets)
    try:
        columns = read_columns(folder, [paths[position] for position in positions])
    except OSError as error:
        raise storage_error(folder, error) from error
    samples = with_columns(samples, columns, str(folder / COLUMNS_FILE))
    return FolderContent(samples, labels.class_names, tuple(ignored.after_decoding()))


def _labels(folder: Path) -> _Labels:
    subs = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    names = folder / NAMES_FILE
    if names.is_file():
        return _listed(names, subs)
    if subs and all(sub.name.isdecimal() for sub in subs):
        return _numbered(folder, subs)
    check_class_count(len(subs), str(folder))
    named = checked_names([sub.name for sub in subs], str(folder))
    return _Labels({sub: place for place, sub in enumerate(subs)}, named)


def _numbered(folder: Path, subs: list[Path]) -> _Labels:
    numbers = {sub: int(sub.name) for sub in subs}
    check_class_count(max(numbers.values()) + 1, str(folder))
    names = [""] * (max(numbers.values()) + 1)
    for sub, number in numbers.items():
        if names[number]:
            raise DataError(
                f"{folder} has two folders for label {number}: {names[number]} and {sub.name}.",
                hint="keep one of them",
            )
        names[number] = sub.name
    return _Labels(numbers, tuple(names))


def _listed(names: Path, subs: list[Path]) -> _Labels:
    check_file(names, MAX_NAMES_BYTES)
    try:
        lines = [line.strip() for line in names.read_text("utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise DataError(f"{names} is not text.", hint="write a class per line, in UTF-8") from error
    known = checked_names([line for line in lines if line], str(names))
    check_class_count(len(known), str(names))
    unknown = [sub.name for sub in subs if normal(sub.name) not in known]
    if unknown:
        raise DataError(
            f"{names} lacks the folder '{unknown[0]}'.", hint="list every class once, one per line"
        )
    return _Labels({sub: known.index(normal(sub.name)) for sub in subs}, known)


def _no_images(folder: Path, ignored: IgnoredFiles, files: int) -> DataError:
    """Return the error of a folder of which nothing can be used."""
    loose, folders = len(ignored.loose.images), len(ignored.classes)
    subs = counted(folders, "folder")
    if files:
        what = f"none of the {counted(files, 'image file')} in its {subs} can be read"
    elif loose:
        where = f"none in its {subs}" if folders else "no folders"
        what = f"it holds {counted(loose, 'image file')} itself, and {where}"
    elif folders:
        what = f"it holds {subs}, and no image file in them"
    else:
        what = "it holds no folders and no image files"
    known = [
        entry
        for entry in (*ignored.without_image(), *ignored.before_decoding())
        if entry.reason != "unsorted" or not loose
    ]
    hints = [entry.hint for entry in known]
    return DataError(
        f"{folder} has no images in class folders: {'; '.join([what, *(e.what for e in known)])}.",
        code="data.empty",
        hint="; ".join(hints)
        or "put the images of each class into a separate folder: FOLDER/CLASS/IMAGE.png",
    )


COLUMNS_FILE = "columns.csv"
FILE = "file"
MAX_BYTES = 64 * MAX_NAMES_BYTES
"""Longest list of columns."""


def read_columns(folder: Path, images: Sequence[Path]) -> dict[str, Array]:
    """Return the columns of images (n,), by name; none where the folder has no such file.

    Args:
        folder: of the classes' folders.
        images: which, in the order of the samples; each must be listed.

    Raises:
        DataError: the file is not such a list, or lacks an image.
        OSError: it cannot be read.
    """
    path = folder / COLUMNS_FILE
    if not path.is_file():
        return {}
    check_file(path, MAX_BYTES)
    names, listed = _parsed(path)
    rows = []
    for image in images:
        row = listed.get(image.relative_to(folder).as_posix())
        if row is None:
            raise _damaged(path, f"it does not list {image.relative_to(folder)}")
        rows.append(row)
    values = np.array(rows, np.int64).reshape(len(images), len(names))
    return {name: values[:, place] for place, name in enumerate(names)}


def _parsed(path: Path) -> tuple[list[str], dict[str, list[int]]]:
    """Return the names of the columns, and the numbers of each file."""
    try:
        with path.open(encoding="utf-8", newline="") as text:
            lines = csv.reader(text)
            head = next(lines, [])
            if head[:1] != [FILE] or len(head) < 2 or len(set(head)) < len(head):
                raise _damaged(path, f"its first line is not '{FILE}' and names of columns")
            listed = {}
            for line in filter(None, lines):
                if len(line) != len(head) or not all(_is_number(cell) for cell in line[1:]):
                    raise _damaged(path, f"line {lines.line_num} is not a path and numbers")
                listed[line[0]] = [int(cell) for cell in line[1:]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise _damaged(path, f"it is not CSV in UTF-8 ({error})") from error
    return head[1:], listed


def _is_number(cell: str) -> bool:
    return cell.isascii() and cell.isdecimal() and len(cell) < 10


def _damaged(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} cannot be used: {reason}.",
        code="data.unreadable",
        hint=f"write '{FILE},NAME' and then a line such as 'cat/0.png,3' for each image",
    )
