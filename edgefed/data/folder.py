"""Images in folders: ``folder/class/*.png``, one folder for each label.

A label's number is, in this order: the folder's line in ``folder/classes.txt`` (one name a line)
where there is such a file; the folder's name where all names are numbers; else its place in the
sorted names. Devices that hold different labels need one of the first two to agree on numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefed.data.checks import check_class_count, checked_samples
from edgefed.data.images import ImageOptions, image_files, read_images
from edgefed.data.limits import MAX_BYTES, MAX_NAMES_BYTES, check_file
from edgefed.data.options import SplitOptions
from edgefed.data.paths import require_folder, resolve
from edgefed.data.split import hold_out
from edgefed.data.types import Dataset
from edgefed.errors import DataError
from edgefed.files import storage_error
from edgefed.samples import Samples
from edgefed.seeds import generator

NAMES_FILE = "classes.txt"


@dataclass(frozen=True, eq=False)
class FolderContent:
    """What a folder of images holds.

    Attributes:
        samples: never empty.
        classes: how many labels there are, with or without images.
        warnings: what the user should know, such as files that were skipped.
        sorted_names: whether the labels' numbers follow from which folders there are.
    """

    samples: Samples
    classes: int
    warnings: tuple[str, ...]
    sorted_names: bool


@dataclass(frozen=True)
class _Labels:
    folders: dict[Path, int]
    classes: int
    sorted_names: bool = False


class FolderOptions(ImageOptions, SplitOptions):
    """Keys of ``name = "folder"``."""


def load_folder(options: FolderOptions, folder: Path | None) -> Dataset:
    """Return the images below ``options.path``, a share of them held out for testing.

    Raises:
        DataError: there are no images, or they differ in size and no size is set.
    """
    content = read_folder(resolve(options.path, folder), options, options.max_bytes)
    rng = generator(0, "data", "folder", "test")
    train, test = hold_out(content.samples, options.test_share, rng)
    return Dataset(train, test, content.classes, train.inputs.shape[1:], content.warnings)


def read_folder(folder: Path, options: ImageOptions, max_bytes: int = MAX_BYTES) -> FolderContent:
    """Return every readable image of ``folder/class/``, in [0, 1], (n, channels, height, width).

    Raises:
        DataError: there are no images, they differ in size and no size is set, or they are larger
            than is allowed.
        StorageError: the folder cannot be listed.
    """
    require_folder(folder)
    try:
        labels = _labels(folder)
        files = [
            (path, label) for sub, label in labels.folders.items() for path in image_files(sub)
        ]
    except OSError as error:
        raise storage_error(folder, error) from error
    paths = [path for path, _ in files]
    pixels, positions = read_images(paths, options, max_bytes)
    if not positions:
        raise _no_images(folder, len(files))
    targets = np.array([files[position][1] for position in positions], np.int64)
    samples = checked_samples(pixels, targets, str(folder))
    skipped = _skipped(folder, paths, positions)
    return FolderContent(samples, labels.classes, skipped, labels.sorted_names)


def _labels(folder: Path) -> _Labels:
    subs = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    names = folder / NAMES_FILE
    if names.is_file():
        labels = _listed(names, subs)
    elif subs and all(sub.name.isdecimal() for sub in subs):
        numbers = {sub: int(sub.name) for sub in subs}
        labels = _Labels(numbers, max(numbers.values()) + 1)
    else:
        labels = _Labels({sub: place for place, sub in enumerate(subs)}, len(subs), True)
    check_class_count(labels.classes, str(folder))
    return labels


def _listed(names: Path, subs: list[Path]) -> _Labels:
    check_file(names, MAX_NAMES_BYTES)
    try:
        lines = [line.strip() for line in names.read_text("utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise DataError(f"{names} is not text.", hint="one class name a line, in UTF-8") from error
    known = {line: number for number, line in enumerate(filter(None, lines))}
    unknown = [sub.name for sub in subs if sub.name not in known]
    if unknown or len(known) != sum(map(bool, lines)):
        what = f"lacks the folder '{unknown[0]}'" if unknown else "names a class twice"
        raise DataError(
            f"{names} {what}.",
            hint="list every class once, one a line, the same on every device",
        )
    return _Labels({sub: known[sub.name] for sub in subs}, len(known))


def _skipped(folder: Path, paths: list[Path], positions: list[int]) -> tuple[str, ...]:
    unread = sorted(set(range(len(paths))) - set(positions))
    if not unread:
        return ()
    example = paths[unread[0]].relative_to(folder)
    return (
        f"{len(unread)} of {len(paths)} image files in {folder} cannot be read"
        f" and were skipped, such as {example}",
    )


def _no_images(folder: Path, files: int) -> DataError:
    what = f"none of its {files} image files can be read" if files else "it has no image files"
    return DataError(
        f"{folder} holds no images: {what}.",
        code="data.empty",
        hint="put the images of each class into a folder of its own: FOLDER/CLASS/IMAGE.png",
    )
