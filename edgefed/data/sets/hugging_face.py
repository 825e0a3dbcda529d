"""Data sets of Hugging Face's ``datasets``: from the hub, a saved folder, or a file of a table.

The package is an optional extra, ``edgefed[huggingface]``. Code of a data set's author is never
run: only data in files is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, field_validator

from edgefed.data.base.checks import (
    check_class_count,
    checked_samples,
    count_classes,
    require_samples,
    same_shape,
)
from edgefed.data.base.holdout import hold_out
from edgefed.data.base.limits import VALUE_BYTES, check_bytes
from edgefed.data.base.paths import resolve
from edgefed.data.base.types import Array, ClassNames, Dataset
from edgefed.data.images.image_decoding import check_pixels
from edgefed.data.images.image_options import ImageOptions
from edgefed.data.sets.options import SplitOptions
from edgefed.errors import DataError, EdgeFedError, MissingDataError
from edgefed.files.samples import Samples
from edgefed.seeds import generator

BUILDERS = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".arrow": "arrow",
}
"""The builder that reads a file, by the file's suffix."""

CACHE = "huggingface"
"""Folder for downloads, beside other data."""

ColumnName = Annotated[str, Field(max_length=256)]


class ColumnOptions(ImageOptions):
    """Keys that select the columns of a table for inputs and labels."""

    image: ColumnName = ""
    """Column of images, which become inputs; see ``size`` and ``greyscale``."""

    features: Annotated[tuple[ColumnName, ...], Field(max_length=4096)] = ()
    """Columns of numbers, or of lists of numbers of one length, which become inputs."""

    @field_validator("features", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Return the names of an array, or of a text such as ``a,b``, as a source has them."""
        values = value.split(",") if isinstance(value, str) else value
        return tuple(values) if isinstance(values, list) else values

    label: ColumnName = "label"
    """Column of labels: whole numbers from 0, or names of classes."""

    config: ColumnName = ""
    """Configuration of a data set of the hub that has several."""

    split: Annotated[str, Field(min_length=1, max_length=256)] = "train"
    """Part of the data set to train on: ``train``, ``train[:10%]``."""


class HuggingFaceOptions(ColumnOptions, SplitOptions):
    """Keys of ``name = "huggingface"``."""

    path: Annotated[str, Field(min_length=1, max_length=4096)]
    """A folder written by ``save_to_disk``, a ``.parquet``, ``.json``, ``.csv`` or ``.arrow`` file,
    or a data set's name on the hub, such as ``ylecun/mnist``. A relative path starts at the
    recipe's folder."""

    test_split: Annotated[str, Field(max_length=256)] = ""
    """Part of the data set for the coordinator's test; empty to hold out ``test_share``."""


@dataclass(frozen=True, eq=False)
class HuggingFaceTable:
    """The contents of one split.

    Attributes:
        samples: its inputs and labels.
        class_names: names of its labels; empty where they are plain numbers.
    """

    samples: Samples
    class_names: ClassNames


def hugging_face_files(options: HuggingFaceOptions, folder: Path | None) -> list[Path]:
    """Return the files of a folder or a file; a path without a file for a name on the hub."""
    path = resolve(options.path, folder)
    return [path] if not path.is_dir() else sorted(f for f in path.rglob("*") if f.is_file())


def load_hugging_face(options: HuggingFaceOptions, folder: Path | None) -> Dataset:
    """Return the data set of the recipe's columns.

    Raises:
        MissingDataError: the package ``datasets`` is not installed.
        DataError: the data cannot be loaded, or the columns cannot be trained on.
    """
    table = read_table(options.path, options, options.split, options.max_bytes, folder)
    train, where = table.samples, options.path
    if options.test_split:
        other = read_table(
            options.path, options, options.test_split, options.max_bytes, folder, table.class_names
        )
        test = other.samples
        same_shape(train, test, where)
    else:
        train, test = hold_out(
            train, options.test_share, generator(0, "data", "huggingface", "test")
        )
    classes = len(table.class_names) or count_classes(where, train, test)
    shape = tuple(train.inputs.shape[1:])
    return Dataset(train, test, classes, shape, class_names=table.class_names)


def read_table(
    path: str,
    columns: ColumnOptions,
    split: str,
    max_bytes: int,
    folder: Path | None = None,
    class_names: ClassNames = (),
) -> HuggingFaceTable:
    """Return the samples of one split.

    Args:
        path: a folder, a file, or a name on the hub.
        columns: which columns are used.
        split: which part.
        max_bytes: most memory that the inputs may take.
        folder: where relative paths start and downloads are kept; None for the working folder.
        class_names: of another split, by which names of classes are numbered.

    Raises:
        MissingDataError, DataError: as `load_hugging_face`.
    """
    rows = _loaded(path, columns.config, split, folder)
    where = f"The split '{split}' of {path}"
    wanted = [columns.image, *columns.features, columns.label]
    missing = [name for name in wanted if name and name not in rows.column_names]
    if missing:
        raise DataError(
            f"{where} has no column '{missing[0]}'.",
            code="data.column",
            hint=f"its columns: {', '.join(rows.column_names)}",
        )
    if bool(columns.image) == bool(columns.features):
        raise DataError(
            f"{where}: name either a column of images or columns of features.",
            code="data.column",
            hint="set data.image or data.features",
        )
    labels, names = _labels(rows, columns.label, class_names, where)
    inputs = _inputs(rows, columns, max_bytes, where)
    samples = checked_samples(inputs, labels, where)
    require_samples(samples, where)
    return HuggingFaceTable(samples, names)


def _loaded(path: str, config: str, split: str, folder: Path | None) -> Any:
    """Return the rows of a split.

    Raises:
        MissingDataError, DataError: as `load_hugging_face`.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingDataError(
            "The data set 'huggingface' needs the package datasets, which is not installed.",
            code="data.missing",
            hint="pip install 'edgefed[huggingface]'",
        ) from error
    local = resolve(path, folder)
    # Releases before 4 run scripts of a data set's author unless this is off.
    datasets.config.HF_DATASETS_TRUST_REMOTE_CODE = False
    datasets.disable_progress_bars()
    cache = None if folder is None else str(folder / CACHE)
    try:
        if local.is_dir() and (
            (local / "state.json").exists() or (local / "dataset_dict.json").exists()
        ):
            return _part(datasets.load_from_disk(str(local)), split)
        if local.is_file():
            builder, files = BUILDERS[local.suffix.lower()], {"train": str(local)}
            return datasets.load_dataset(builder, data_files=files, split=split, cache_dir=cache)
        name = str(local) if local.is_dir() else path
        return datasets.load_dataset(name, config or None, split=split, cache_dir=cache)
    except EdgeFedError:
        raise
    except Exception as error:  # of a dozen packages that read, decode and download
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(".")
        raise DataError(
            f"The data set {path} cannot be loaded: {reason}.",
            code="data.unreadable",
            hint="name a folder of save_to_disk, a parquet, json, csv or arrow file, or a data set"
            " of the hub",
        ) from error


def _part(saved: Any, split: str) -> Any:
    """Return a split of a saved folder, which holds one table or several by name."""
    if not isinstance(saved, Mapping):
        if split != "train":
            raise DataError(
                f"The folder holds one table, and no split '{split}'.",
                code="data.unreadable",
                hint='leave out split, or set it to "train"',
            )
        return saved
    if split not in saved:
        raise DataError(
            f"The folder has no split '{split}'.",
            code="data.unreadable",
            hint=f"its splits: {', '.join(saved)}",
        )
    return saved[split]


def _labels(
    rows: Any, column: str, class_names: ClassNames, where: str
) -> tuple[Array, ClassNames]:
    """Return numbers of labels and their names."""
    values = list(rows[column])
    names = class_names or tuple(getattr(rows.features[column], "names", None) or ())
    if values and all(isinstance(value, str) for value in values):
        names = names or tuple(sorted(set(values)))
        check_class_count(len(names), where)
        numbers = {name: number for number, name in enumerate(names)}
        unknown = sorted(set(values) - numbers.keys())
        if unknown:
            raise DataError(
                f"{where} has a class '{unknown[0]}', which the training part lacks.",
                hint="use splits with the same classes",
            )
        values = [numbers[value] for value in values]
    labels = np.asarray(values)
    return labels if len(labels) else np.zeros(0, np.int64), names


def _inputs(rows: Any, columns: ColumnOptions, max_bytes: int, where: str) -> Array:
    """Return uint8 images (n, height, width[, 3]) or float32 numbers (n, …)."""
    if columns.image:
        return _images(rows.select_columns([columns.image]), columns, max_bytes, where)
    check_bytes(len(rows) * len(columns.features) * VALUE_BYTES, max_bytes, where)
    parts = []
    for name in columns.features:
        try:
            part = np.asarray([_numbers(value) for value in rows[name]], np.float32)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{where}: the column '{name}' is not numbers, or lists of one length.",
                code="data.column",
                hint="choose other columns of numbers",
            ) from error
        parts.append(part[:, None] if part.ndim == 1 else part)
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _numbers(value: Any) -> Any:
    """Return a number or a list; NumPy would also take an image for an array."""
    if not isinstance(value, (int, float, list)):
        raise TypeError(type(value).__name__)
    return value


def _images(
    rows: Iterable[Mapping[str, Any]], columns: ColumnOptions, max_bytes: int, where: str
) -> Array:
    images: list[Array] = []
    needed = 0
    for number, row in enumerate(rows):
        pixels = pixels_of(row[columns.image], columns, f"{where}, image {number},")
        if images and pixels.shape != images[0].shape:
            raise DataError(
                f"{where} has images of {images[0].shape[1]}x{images[0].shape[0]} and of"
                f" {pixels.shape[1]}x{pixels.shape[0]} pixels.",
                hint="scale them all: set size",
            )
        needed += pixels.size * VALUE_BYTES
        check_bytes(needed, max_bytes, where)
        images.append(pixels)
    return np.stack(images) if images else np.zeros((0, 1, 1), np.uint8)


def pixels_of(value: object, columns: ColumnOptions, where: str) -> Array:
    """Return an image's pixels: uint8 (height, width[, 3]), turned as its camera was held.

    Raises:
        DataError: it is no image, or too large a one.
    """
    from PIL import Image, ImageOps

    if not isinstance(value, Image.Image):
        raise DataError(
            f"{where} is {type(value).__name__}, not an image.",
            code="data.column",
            hint="choose a column of images, or name columns of numbers as features",
        )
    check_pixels(value.size, where)
    image = ImageOps.exif_transpose(value).convert("L" if columns.greyscale else "RGB")
    if columns.size:
        image = image.resize((columns.size, columns.size), Image.Resampling.BILINEAR)
    return np.asarray(image)
