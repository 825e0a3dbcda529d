"""Fill a disk until it is released again."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path


class Filler:
    """Takes all the room on a disk, and what is freed there too, until it is stopped."""

    def __init__(self, ballast: Path) -> None:
        self._ballast = ballast
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give the room back."""
        self._stopped.set()
        self._thread.join()
        self._ballast.unlink()

    def _run(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            while not self._stopped.wait(0.005):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(4096))
