"""Columns of images in folders: ``columns.csv`` beside the folders of the classes.

Its first line names the columns after ``file``, such as ``file,rotation,site``; each further line
has an image's path below the folder, such as ``cat/0.png``, and a number for each column.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgefed.data.limits import MAX_NAMES_BYTES, check_file
from edgefed.data.types import Array
from edgefed.errors import DataError

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
