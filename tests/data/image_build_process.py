"""Build the cache of a folder of images slowly, to be killed: FOLDER ROOT."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from edgefed.data.images import image_build
from edgefed.data.images.image_options import ImageOptions
from edgefed.data.sets.folder import read_folder
from edgefed.terminal.progress import tell_progress_to


def main() -> None:
    image_build.SAVE_FILES = 20
    tell_progress_to(lambda what, done, total: time.sleep(0.01))
    read_folder(Path(sys.argv[1]), ImageOptions(), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
