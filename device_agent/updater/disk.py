"""Durable changes of files: after a power loss at any moment there is the old state or the new one.

The updater imports the standard library, tuf and a few small modules, so that little can break it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Replace a file; it is on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    rename(beside, path)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a file by an object as JSON."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True))


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a file; an empty one if there is none that can be read."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def rename(source: Path, target: Path) -> None:
    """Rename a file or folder; a file replaces another one."""
    source.replace(target)
    _sync(target.parent)


def point(link: Path, target: str) -> None:
    """Make a symbolic link, in place of the one that there is."""
    if link.is_symlink() and str(link.readlink()) == target:
        return
    beside = link.with_name(f".{link.name}.part")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    rename(beside, link)


def copy_folder(
    source: Path, target: Path, leave_out: Callable[[str, list[str]], set[str]]
) -> None:
    """Copy a folder; ``target`` is there only once it is whole and on the disk."""
    part = target.with_name(f"{target.name}.part")
    remove(part)
    remove(target)
    shutil.copytree(source, part, symlinks=True, ignore=leave_out)
    os.sync()
    rename(part, target)


def remove(path: Path) -> None:
    """Delete a file or folder, if there is one; parts of a folder that stay harm nothing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def keep(source: Path, target: Path) -> None:
    """Keep a file under another name too; it does not change."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        os.link(source, part)
    except OSError:  # another file system
        shutil.copyfile(source, part)
    rename(part, target)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal; empty if it cannot be read."""
    made = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(2**20):
                made.update(block)
    except OSError:
        return ""
    return made.hexdigest()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
