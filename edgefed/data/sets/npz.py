"""Data sets in NumPy's NPZ files, read without pickle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefed.data.base.archive import read_arrays
from edgefed.data.base.checks import (
    check_class_count,
    checked_numbers,
    checked_samples,
    checked_tokens,
    count_classes,
    require_samples,
    same_shape,
    same_targets,
)
from edgefed.data.base.class_names import checked_names
from edgefed.data.base.columns import TEST, TRAIN, columns_of, same_columns, with_columns
from edgefed.data.base.holdout import held_out_positions
from edgefed.data.base.limits import MAX_BYTES
from edgefed.data.base.paths import DECODED, resolve
from edgefed.data.base.preparation import normalized, read_preparation, scaled_by
from edgefed.data.base.types import (
    UNPREPARED,
    Array,
    ClassNames,
    Dataset,
    Indices,
    Preparation,
    take,
)
from edgefed.data.images.jpeg import unpacked
from edgefed.data.sets.options import SplitOptions
from edgefed.errors import DataError
from edgefed.files.samples import Samples
from edgefed.seeds import generator

GROUPS = ("groups_train", "writer_train")
KNOWN = (
    *("x_train", "y_train", "x_test", "y_test", "x", "y", "classes"),
    *("jpeg_train", "offsets_train", "jpeg_test", "offsets_test"),
    *GROUPS,
    *("coarse", "vocabulary", "preparation"),
)


@dataclass(frozen=True, eq=False)
class NpzContent:
    """The contents of an NPZ file.

    Attributes:
        train: never empty.
        test: None when the file has no test part; it may have an empty one.
        classes: the file's own ``classes``, or its highest label plus one; for numeric targets, the
            length of one.
        groups: origin of each training sample, such as its writer (n,); None if not stated.
        coarse: the coarse label of each label (classes,); None if not stated.
        preparation: preparation of the inputs before they were written.
        warnings: for the user.
        class_names: names of the labels; empty if not stated.
    """

    train: Samples
    test: Samples | None
    classes: int
    groups: Indices | None = None
    coarse: Indices | None = None
    preparation: Preparation = UNPREPARED
    warnings: tuple[str, ...] = ()
    class_names: ClassNames = ()


class NpzOptions(SplitOptions):
    """Keys of ``name = "npz"``."""

    groups_file: str = ""
    """NPZ file with ``groups_train`` or ``writer_train``: the origin of each training sample, for
    ``natural``. A relative path starts at the data's folder; empty for ``NAME_writers.npz`` beside
    ``NAME.npz``, if it exists."""


def npz_files(options: NpzOptions, folder: Path | None) -> list[Path]:
    """Return the files that `load_npz` reads, also one beside that may not exist."""
    path = resolve(options.path, folder)
    return [path, _groups_file(path, options)]


def load_npz(options: NpzOptions, folder: Path | None) -> Dataset:
    """Return the data set of one file; see `read_npz`.

    Raises:
        DataError: the file is missing, damaged or invalid.
    """
    path = resolve(options.path, folder)
    content = read_npz(path, folder, options.max_bytes)
    groups = _groups_beside(content, path, options)
    train, test = content.train, content.test
    if test is None:
        kept, held = held_out_positions(
            train.targets, options.test_share, generator(0, "data", "npz", "test")
        )
        train, test = take(train, kept), take(train, held)
        groups = None if groups is None else groups[kept]
    return Dataset(
        train,
        test,
        content.classes,
        train.inputs.shape[1:],
        content.warnings,
        groups=groups,
        coarse=content.coarse,
        preparation=content.preparation,
        class_names=content.class_names,
    )


def read_npz(path: Path, folder: Path | None = None, max_bytes: int = MAX_BYTES) -> NpzContent:
    """Return the samples of ``x_train, y_train[, x_test, y_test]`` or of ``x, y``.

    Targets of a float type are numbers, (n,) or (n, outputs), and not labels. uint8 inputs are
    images and are scaled to [0, 1], channels first; see `checked_samples`. ``jpeg_train`` and
    ``offsets_train`` stand for an ``x_train`` of images; see
    `edgefed.data.images.jpeg`. ``classes``,
    where present, is the number of labels or the list of their names. With ``vocabulary``, the
    number of tokens, inputs are tokens and stay integers. ``groups_train`` or ``writer_train``
    holds the origin of each training sample, ``coarse`` each label's coarse label, ``preparation``
    the description of the inputs by `edgefed.data.devices.shard_files`. ``column/NAME`` is a
    column of the
    training samples, ``column_test/NAME`` of the test samples.

    Args:
        path: the file.
        folder: keeps decoded images, and large arrays while they are used; None for the file's
            own folder.
        max_bytes: most memory that the arrays, or the decoded images, may take.

    Raises:
        DataError: the file is missing, damaged, too large or invalid.
    """
    decoded = (folder or path.parent) / DECODED
    arrays = read_arrays(path, KNOWN, max_bytes, (TRAIN, TEST), decoded)
    warnings = _unpack(arrays, path, decoded, max_bytes)
    first, second = ("x_train", "y_train") if "x_train" in arrays else ("x", "y")
    if first not in arrays or second not in arrays:
        raise _wrong_names(path, sorted(arrays))
    train = _part(arrays, first, second, path)
    train = with_columns(train, columns_of(arrays, TRAIN), str(path))
    require_samples(train, str(path))
    test = _test_part(path, arrays, train)
    classes = _classes(path, arrays, train, test)
    preparation = read_preparation(arrays, str(path))
    if preparation.mean:
        # Of images in bytes, what a shard says was done to its inputs is still to be done.
        known = normalized if arrays[first].dtype == np.uint8 else scaled_by
        train = known(train, preparation)
        test = None if test is None else known(test, preparation)
    return NpzContent(
        train,
        test,
        classes,
        _groups(arrays, len(train), path),
        _coarse(arrays, classes, path),
        preparation,
        warnings,
        _class_names(arrays, path) if train.has_labels else (),
    )


def _unpack(arrays: dict[str, Array], path: Path, cache: Path, max_bytes: int) -> tuple[str, ...]:
    """Put decoded images in place of packed ones; return warnings."""
    warnings = []
    for part in ("train", "test"):
        jpeg, offsets = arrays.pop(f"jpeg_{part}", None), arrays.pop(f"offsets_{part}", None)
        if jpeg is None or offsets is None:
            continue
        where = f"{path} (jpeg_{part})"
        arrays[f"x_{part}"], warning = unpacked(jpeg, offsets, cache, where, max_bytes)
        warnings += [warning] if warning else []
    return tuple(warnings)


def _part(arrays: dict[str, Array], first: str, second: str, path: Path) -> Samples:
    where = f"{path} ({first}, {second})"
    if "vocabulary" not in arrays:
        checked = checked_numbers if arrays[second].dtype.kind == "f" else checked_samples
        return checked(arrays[first], arrays[second], where)
    vocabulary = _whole(arrays["vocabulary"], "vocabulary", path)
    return checked_tokens(arrays[first], arrays[second], vocabulary, where)


def _groups_beside(content: NpzContent, path: Path, options: NpzOptions) -> Indices | None:
    """Return the origin of each training sample, from the file itself or one beside it."""
    source = _groups_file(path, options)
    if not options.groups_file and (content.groups is not None or not source.is_file()):
        return content.groups
    arrays = read_arrays(source, GROUPS, options.max_bytes)
    groups = _groups(arrays, len(content.train), source)
    if groups is None:
        raise DataError(
            f"{source} has neither groups_train nor writer_train.",
            hint="store one integer for each training sample, in the same order",
        )
    return groups


def _groups_file(path: Path, options: NpzOptions) -> Path:
    named = options.groups_file
    return resolve(named, path.parent) if named else path.with_name(f"{path.stem}_writers.npz")


def _groups(arrays: dict[str, Array], samples: int, path: Path) -> Indices | None:
    groups = arrays.get("groups_train", arrays.get("writer_train"))
    if groups is None:
        return None
    if groups.shape != (samples,) or groups.dtype.kind not in "iu":
        raise DataError(
            f"{path} has groups of type {groups.dtype} and shape {groups.shape},"
            f" not one integer for each of {samples} training samples.",
            hint="store one integer for each training sample, in the same order",
        )
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def _coarse(arrays: dict[str, Array], classes: int, path: Path) -> Indices | None:
    coarse = arrays.get("coarse")
    if coarse is None:
        return None
    if coarse.shape != (classes,) or coarse.dtype.kind not in "iu":
        raise DataError(
            f"{path} has `coarse` of type {coarse.dtype} and shape {coarse.shape},"
            f" not one integer for each of {classes} labels.",
            hint="store each label's coarse label, in the order of the labels",
        )
    return coarse.astype(np.int64)


def _test_part(path: Path, arrays: dict[str, Array], train: Samples) -> Samples | None:
    columns = columns_of(arrays, TEST)
    if "x_test" not in arrays and "y_test" not in arrays and not columns:
        return None
    if "x_test" not in arrays or "y_test" not in arrays:
        raise _wrong_names(path, sorted(arrays))
    test = _part(arrays, "x_test", "y_test", path)
    test = with_columns(test, columns, f"{path} (x_test)")
    same_columns(train, test, str(path))
    same_shape(train, test, str(path))
    same_targets(train, test, str(path))
    return test


def _classes(path: Path, arrays: dict[str, Array], train: Samples, test: Samples | None) -> int:
    needed = count_classes(str(path), train, *([test] if test else []))
    if "classes" not in arrays:
        return needed
    stated = arrays["classes"]
    count = len(stated) if stated.ndim else _whole(stated, "classes", path)
    if not train.has_labels and count != needed:
        raise DataError(
            f"{path} declares {count} outputs but its targets have {needed}.",
            hint="store the length of a target as `classes`, or omit it",
        )
    if count < needed:
        raise DataError(
            f"{path} declares {count} classes but contains label {needed - 1}.",
            hint="store the number of labels as `classes`, or omit it",
        )
    check_class_count(count, str(path))
    return count


def _class_names(arrays: dict[str, Array], path: Path) -> ClassNames:
    """Return the file's names of labels; a list of numbers only counts them."""
    stated = arrays.get("classes")
    if stated is None or stated.ndim != 1 or stated.dtype.kind != "U":
        return ()
    names = [str(name) for name in stated]
    if not all(name.strip() for name in names):
        raise DataError(
            f"{path} has a class without a name in `classes`.",
            hint="store one name for each label, label 0 first, as text",
        )
    return checked_names(names, str(path))


def _whole(stated: Array, name: str, path: Path) -> int:
    if stated.dtype.kind not in "iu" or stated.ndim:
        raise DataError(
            f"{path} has `{name}` of type {stated.dtype}, not an integer.",
            hint=f"store one integer as `{name}`, or omit it",
        )
    return int(stated)


def _wrong_names(path: Path, names: list[str]) -> DataError:
    return DataError(
        f"{path} lacks arrays: of the known ones it has {', '.join(names) or 'none'}.",
        hint="name them x_train and y_train (and x_test, y_test), or x and y",
    )
