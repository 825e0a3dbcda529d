"""FEMNIST by writer, from the JSON files that LEAF's scripts write.

Each file holds ``users``, and ``user_data`` with each user's inputs ``x`` and labels ``y``.
LEAF: A Benchmark for Federated Settings (Caldas et al., 2018).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from edgefed.data.base.checks import checked_samples, count_classes, require_samples, same_shape
from edgefed.data.base.holdout import held_out_positions
from edgefed.data.base.limits import MAX_BYTES, check_bytes, check_file
from edgefed.data.base.paths import resolve
from edgefed.data.base.types import Array, Dataset, Indices, no_samples, take
from edgefed.data.sets.options import SplitOptions
from edgefed.errors import DataError, MissingDataError
from edgefed.files.samples import Samples
from edgefed.files.writing import storage_error
from edgefed.seeds import generator

ASCII_BYTES, UNICODE_BYTES = 2, 5
"""Memory of a byte of a JSON text, as it was read and as characters."""

ITEM_BYTES, CONTAINER_BYTES = 40, 80
"""Memory of a number with its place in a list in Python, and of a list or an object."""

CLASSES = 62
"""Ten digits, 26 capital and 26 small letters."""


class FemnistOptions(SplitOptions):
    """Keys of ``name = "femnist"``."""

    test_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Fraction of each writer's samples for the coordinator's test, without a folder ``test``."""


def femnist_files(options: FemnistOptions, folder: Path | None) -> list[Path]:
    """Return the files that `load_femnist` reads."""
    path = resolve(options.path, folder)
    train, test = path / "train", path / "test"
    parts = [part for part in (train, test) if part.is_dir()] if train.is_dir() else [path]
    return [file for part in parts for file in _files(part)]


def load_femnist(options: FemnistOptions, folder: Path | None) -> Dataset:
    """Return the samples of all writers, each with its writer's number.

    Folders ``train`` and ``test`` in the folder are the two parts; without them, a share of every
    writer's samples is held out. Inputs of 784 values become (1, 28, 28), like other squares.

    Raises:
        DataError: there are no such files, or one is damaged.
        StorageError: the folder cannot be read.
    """
    path = resolve(options.path, folder)
    if (path / "train").is_dir():
        train, groups = read_leaf(path / "train", options.max_bytes)
        has_test = (path / "test").is_dir()
        test = read_leaf(path / "test", options.max_bytes)[0] if has_test else None
    else:
        together, writers = read_leaf(path, options.max_bytes)
        train, test, groups = _split_writers(together, writers, options.test_share)
    test = no_samples(train.inputs.shape[1:]) if test is None else test
    same_shape(train, test, str(path))
    classes = max(CLASSES, count_classes(str(path), train, test))
    return Dataset(train, test, classes, train.inputs.shape[1:], groups=groups)


def read_leaf(path: Path, max_bytes: int = MAX_BYTES) -> tuple[Samples, Indices]:
    """Return all samples of LEAF's JSON files and their writers, numbered in order of appearance.

    Args:
        path: a folder of ``*.json`` files, or one file.
        max_bytes: most memory that the values of one file, or the inputs of all, may take.

    Raises:
        DataError: there are no such files, or one is damaged or too large.
        StorageError: the folder cannot be read.
    """
    needed = 0
    numbers: dict[str, int] = {}
    inputs, labels, groups = [], [], []
    for file in _files(path):
        for user, x, y in _users(file, max_bytes):
            samples = _samples(x, y, f"{file} (user {user[:80]})")
            if not len(samples):
                continue
            needed += samples.inputs.nbytes
            check_bytes(needed, max_bytes, str(path))
            inputs.append(samples.inputs)
            labels.append(samples.targets)
            groups.append(np.full(len(samples), numbers.setdefault(user, len(numbers)), np.int64))
    shapes = {array.shape[1:] for array in inputs}
    if len(shapes) > 1:
        raise DataError(
            f"{path} has inputs of different shapes: {', '.join(map(str, sorted(shapes)))}.",
            hint="prepare all files in the same way",
        )
    samples = Samples(np.concatenate(inputs), np.concatenate(labels)) if inputs else no_samples()
    require_samples(samples, str(path))
    return samples, np.concatenate(groups)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    try:
        files = sorted(path.glob("*.json"))
    except OSError as error:
        raise storage_error(path, error) from error
    if not files:
        raise MissingDataError(
            f"{path} has no .json files." if path.is_dir() else f"{path} does not exist.",
            code="data.missing",
            hint="create them with LEAF's preprocess.sh, and name their folder",
        )
    return files


def _users(file: Path, max_bytes: int) -> Iterator[tuple[str, Any, Any]]:
    """Yield each writer of a file with its inputs and labels, as lists."""
    try:
        check_file(file, max_bytes // ASCII_BYTES)
        text = file.read_bytes()
        check_bytes(_parsed_bytes(text), max_bytes, str(file))
        content = json.loads(text)
    except OSError as error:
        raise storage_error(file, error) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(file, f"it is no JSON ({str(error)[:200]})") from error
    data = content.get("user_data") if isinstance(content, dict) else None
    users = content.get("users") if isinstance(content, dict) else None
    if not isinstance(data, dict) or not isinstance(users, list):
        raise _damaged(file, "it lacks users or user_data")
    for user in users:
        record = data.get(user) if isinstance(user, str) else None
        if not isinstance(record, dict) or "x" not in record or "y" not in record:
            raise _damaged(file, f"user_data lacks x and y of user {str(user)[:80]}")
        yield user, record["x"], record["y"]


def _parsed_bytes(text: bytes) -> int:
    """Return about the most memory that a JSON text takes when it is parsed."""
    items, containers = text.count(b","), text.count(b"[") + text.count(b"{")
    characters = len(text) * (ASCII_BYTES if text.isascii() else UNICODE_BYTES)
    return characters + items * ITEM_BYTES + containers * CONTAINER_BYTES


def _numbers(values: Any) -> Array:
    """Return an array of numbers.

    Raises:
        TypeError: they are something else; of texts, NumPy would make all as long as the longest.
    """
    loose = np.array(values, dtype=object)
    if not all(isinstance(value, (int, float)) for value in loose.flat):
        raise TypeError("they are not all numbers")
    return np.array(values)


def _samples(x: Any, y: Any, where: str) -> Samples:
    try:
        inputs, labels = np.asarray(x, np.float32), _numbers(y)
        if not inputs.ndim or not labels.ndim:
            raise TypeError("they are not lists")
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(
            f"{where} has inputs or labels that are not equally long lists of numbers.",
            code="data.unreadable",
            hint="create the file again with LEAF's preprocess.sh",
        ) from error
    if not len(inputs) and not len(labels):
        return no_samples()
    return checked_samples(_square(inputs), labels, where)


def _square(inputs: Array) -> Array:
    """Return flat inputs of a square number of values as images of one channel."""
    side = round(inputs.shape[-1] ** 0.5) if inputs.ndim == 2 else 0
    return inputs.reshape(-1, 1, side, side) if side and side**2 == inputs.shape[1] else inputs


def _split_writers(
    samples: Samples, groups: Indices, share: float
) -> tuple[Samples, Samples, Indices]:
    """Return (train, test, train's groups): the share of each writer's samples held out."""
    kept, held = [], []
    for group in range(int(groups.max()) + 1):
        own = np.flatnonzero(groups == group)
        rng = generator(0, "data", "femnist", "test", group)
        stay, leave = held_out_positions(samples.targets[own], share, rng)
        kept.append(own[stay])
        held.append(own[leave])
    train, test = np.concatenate(kept), np.concatenate(held)
    return take(samples, train), take(samples, test), groups[train]


def _damaged(file: Path, reason: str) -> DataError:
    return DataError(
        f"{file} is not a LEAF file: {reason}.",
        code="data.unreadable",
        hint="create it again with LEAF's preprocess.sh",
    )
