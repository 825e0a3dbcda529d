"""Decode a folder of images onto a disk that fills up meanwhile: FOLDER DISK."""

from __future__ import annotations

import sys
from pathlib import Path

from edgefed.data.images.image_options import ImageOptions
from edgefed.data.sets.folder import read_folder
from edgefed.errors import EdgeFedError
from edgefed.terminal.progress import tell_progress_to
from tests.coordinator.full_disk import fill


def main() -> None:
    folder, disk = map(Path, sys.argv[1:])
    ballast = disk / "ballast"

    def fill_disk(what: str, done: int, total: int) -> None:
        if done == 10:
            fill(ballast)

    tell_progress_to(fill_disk)
    try:
        read_folder(folder, ImageOptions(), disk / "decoded")
    except EdgeFedError as error:
        sys.stdout.write(f"{error.code} {error.message}\n")
    files = [path for path in disk.rglob("*") if path.is_file() and path != ballast]
    sys.stdout.write(f"{[path.name for path in files if path.stat().st_size]}\n")


if __name__ == "__main__":
    main()
