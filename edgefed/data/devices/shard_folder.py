"""Write and read a folder of shards: one NPZ file for each device, written atomically.

The shards are written to a temporary folder beside it, which is renamed at the end. A full disk or
Ctrl-C therefore leaves the previous folder intact.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from edgefed.data.base.types import Shard
from edgefed.data.devices.report import holding, report
from edgefed.data.devices.shard_files import read_shard, write_shard
from edgefed.errors import DataError, UsageError
from edgefed.files.writing import make_folder, storage_error, write_output

INDEX = "split.json"
"""The description of the folder: the recipe's data section, the seed, the counts."""


def check_target(folder: Path, force: bool) -> None:
    """Raise unless a split may be written to ``folder``: absent, empty, or ``force``.

    Raises:
        UsageError: something is there.
        StorageError: the folder cannot be looked into.
    """
    try:
        if folder.is_dir() and (force or not any(folder.iterdir())):
            return
        taken = folder.exists()
    except OSError as error:
        raise storage_error(folder, error) from error
    if taken:
        is_folder = folder.is_dir()
        raise UsageError(
            f"{folder} is not empty." if is_folder else f"{folder} is a file, not a folder.",
            code="data.out",
            hint="--force replaces an earlier split" if is_folder else "name another folder",
        )


def write_split(
    folder: Path, shards: Iterable[tuple[str, Shard]], about: Mapping[str, Any], *, force: bool
) -> dict[str, Any]:
    """Write each device's shard as ``DEVICE.npz`` and their description as ``split.json``.

    Returns:
        The contents of ``split.json``.

    Args:
        folder: the target; its parents are made.
        shards: each device's name and shard.
        about: contents of ``split.json`` beside the counts.
        force: replace the shards of an earlier split there; files that are not its own stay.

    Raises:
        UsageError: the folder is not empty, and ``force`` is not set.
        StorageError: it cannot be written; the previous files are intact.
    """
    check_target(folder, force)
    folder = folder.resolve()
    beside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.part")
    make_folder(beside, private=False)
    try:
        holdings = []
        for device, shard in shards:
            write_shard(beside / f"{device}.npz", shard)
            holdings.append(holding(device, shard))
        index = {**about, **report(holdings)}
        write_output(beside / INDEX, (json.dumps(index) + "\n").encode())
        _put_in_place(beside, folder)
    except OSError as error:
        raise storage_error(folder, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return index


def read_split(folder: Path) -> Iterator[tuple[str, Shard]]:
    """Yield each device's name and shard, by name.

    Raises:
        DataError: the folder has no shards, or one is damaged or missing.
        StorageError: the folder cannot be read.
    """
    try:
        names = {path.name for path in folder.glob("*.npz")} | _listed(folder)
    except OSError as error:
        raise storage_error(folder, error) from error
    if not names:
        raise DataError(
            f"{folder} has no .npz files.",
            code="data.empty",
            hint="name a folder that edgefed data split wrote, or folder:FOLDER for images",
        )
    for name in sorted(names):
        yield Path(name).stem, read_shard(folder / name)


def _put_in_place(beside: Path, folder: Path) -> None:
    """Rename the finished folder to its name; an older one's other files move into it."""
    if not folder.is_dir():
        beside.rename(folder)
        return
    replaced = _listed(folder) | {path.name for path in beside.iterdir()}
    aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.old")
    folder.rename(aside)
    try:
        beside.rename(folder)
    except BaseException:
        aside.rename(folder)
        raise
    for path in aside.iterdir():
        if path.name not in replaced:
            path.rename(folder / path.name)
    shutil.rmtree(aside, ignore_errors=True)


def _listed(folder: Path) -> set[str]:
    """Return the names of the shards that the folder's index lists; none where it has none."""
    try:
        devices = json.loads((folder / INDEX).read_bytes())["devices"]
        return {f"{Path(device['device']).name}.npz" for device in devices}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()
