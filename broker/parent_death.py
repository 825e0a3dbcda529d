"""Execute another program that ends when the process that started it ends (Linux).

Run it as a script: ``python parent_death.py PARENT SIGNAL COMMAND...``. The new process requests
the signal and then executes COMMAND, so that no code runs between fork and exec in a parent with
many threads. The kernel sends SIGNAL when the *thread* that started this process ends.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def execute_with_parent(parent: int, signal_number: int) -> None:
    """Ask the kernel for ``signal_number`` once the parent is gone; exit if it already is."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent has ended")


if __name__ == "__main__":
    execute_with_parent(int(sys.argv[1]), int(sys.argv[2]))
    os.execv(sys.argv[3], sys.argv[3:])
