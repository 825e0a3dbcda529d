"""Training processes that are forked from an agent which was itself forked with torch in it.

They import nothing, and are otherwise as after ``python -m``: the agent's files are closed.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time

from broker.parent_death import execute_with_parent
from device_agent.tasks import training_process


class _Forked:
    """A forked process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def kill(self) -> None:
        """Send it SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """Return its exit code; negative for a signal."""
        end = time.monotonic() + timeout
        while self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                raise subprocess.TimeoutExpired("training", timeout)
            else:
                time.sleep(0.002)
        return self._code


def fork_training() -> None:
    """Have agents of this process fork their training processes."""
    vars(training_process)["start_child"] = _start_child


def _start_child(connection: int) -> _Forked:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return _Forked(pid)
    try:
        os.setsid()
        if sys.platform.startswith("linux"):
            execute_with_parent(parent, signal.SIGKILL)
        os.dup2(2, 1)
        os.closerange(3, connection)
        os.closerange(connection + 1, 1024)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        threading.current_thread().name = "main"
        importlib.import_module(training_process.MODULE).run(connection)
    finally:
        os._exit(1)
