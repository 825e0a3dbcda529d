"""The peak memory of a process and all its descendants, shared pages counted once."""

from __future__ import annotations

import threading
from types import TracebackType

import psutil


class PeakMemory:
    """Samples, until it is left, the sum of the proportional set sizes (PSS) of a process tree.

    Attributes:
        megabytes: the largest sum so far.
    """

    def __init__(self, pid: int, period: float = 0.25) -> None:
        self.megabytes = 0.0
        self._root = pid
        self._period = period
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(self._period):
            self.megabytes = max(self.megabytes, _family(self._root) / 2**20)


def _family(pid: int) -> float:
    """Return the bytes of a process and its descendants; those that are gone count nothing."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0.0
    return float(sum(_pss(process) for process in family))


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.Error, OSError):
        return 0
