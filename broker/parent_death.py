"""Execute another program that ends when the process that started it ends (Linux).

Run it as a script: ``python parent_death.py PARENT SIGNAL OPEN_FILES NICE COMMAND...``. The new
process requests the signal, limits itself, and then executes COMMAND, so that no code runs between
fork and exec in a parent with many threads. The kernel sends SIGNAL when the *thread* that started
this process ends.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys

PR_SET_PDEATHSIG = 1


def execute_with_parent(parent: int, signal_number: int) -> None:
    """Request ``signal_number`` from the kernel at the end of the parent; exit if it has ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent has ended")


def limit(open_files: int, nice: int) -> None:
    """Bound the open files of this process, where not 0, and lower its priority."""
    if open_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    os.nice(nice)


if __name__ == "__main__":
    execute_with_parent(int(sys.argv[1]), int(sys.argv[2]))
    limit(int(sys.argv[3]), int(sys.argv[4]))
    os.execv(sys.argv[5], sys.argv[5:])
