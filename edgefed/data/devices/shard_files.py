"""Shard files: the samples of a virtual device as a file that a real agent can train on."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from edgefed.data.base.columns import TEST, TRAIN
from edgefed.data.base.preparation import PREPARATION, stored_preparation
from edgefed.data.base.types import UNPREPARED, Array, Shard, no_samples
from edgefed.data.sets.npz import read_npz
from edgefed.files.samples import Samples
from edgefed.files.writing import write_output


def write_shard(path: Path, shard: Shard) -> None:
    """Write ``shard`` as an NPZ file atomically; every bit can be read back.

    Images in bytes stay bytes; a reader scales them as training does.

    Raises:
        StorageError: the file cannot be written.
    """
    buffer = io.BytesIO()
    arrays: dict[str, Array] = {
        "x_train": _inputs(shard.train),
        "y_train": shard.train.targets,
        "x_test": _inputs(shard.test),
        "y_test": shard.test.targets,
        "classes": _classes(shard),
        **{f"{TRAIN}{name}": column for name, column in shard.train.columns.items()},
        **{f"{TEST}{name}": column for name, column in shard.test.columns.items()},
    }
    if shard.train.inputs.dtype.kind == "i":
        # The next character is one of the alphabet that the tokens are from.
        arrays["vocabulary"] = np.array(shard.classes, np.int64)
    if shard.preparation != UNPREPARED:
        arrays[PREPARATION] = stored_preparation(shard.preparation)
    np.savez(buffer, **arrays)  # type: ignore[arg-type] # numpy's stub takes a bool among them
    write_output(path, buffer.getvalue())


def read_shard(path: Path) -> Shard:
    """Return the shard in ``path``, bit-identical to the one written.

    Raises:
        DataError: the file is missing, damaged, or no shard.
    """
    content = read_npz(path)
    test = no_samples(content.train.inputs.shape[1:]) if content.test is None else content.test
    return Shard(
        content.train,
        test,
        content.classes,
        content.preparation,
        class_names=content.class_names,
    )


def _inputs(samples: Samples) -> Array:
    """Return inputs as a file has them: images in bytes with the channels last."""
    return np.moveaxis(samples.inputs[:], 1, -1) if samples.has_images else samples.inputs


def _classes(shard: Shard) -> Array:
    """Return the names of the labels, or how many there are where they have none."""
    # A list with gaps, whose names are its numbers, says no more than their count.
    named = shard.class_names and all(shard.class_names)
    return np.array(shard.class_names) if named else np.array(shard.classes, np.int64)
