"""Faults by a seeded schedule against a fleet of eight real agents while it trains.

Processes are killed and frozen, disks fill up, clocks jump, links are cut, slow and truncating, the
broker restarts, messages are repeated and reordered. Run follows run until all faults are over. At
the end nothing may be lost, nothing trained twice, and each run must have the digest of a run to
which nothing happened. See docs/chaos.md.

    python -m benchmarks.chaos [--algorithm NAME] [--faults 20] [--seed 1] [--rounds 12]
        [--plain] [--json]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

_ALONE = "CHAOS_OWN_MOUNTS"
_UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]


def with_own_mounts() -> None:
    """Become a process that may mount disks which only it sees, where the machine allows it."""
    probe = [*_UNSHARE, "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()]
    try:
        allowed = subprocess.run(probe, capture_output=True, check=False).returncode == 0
    except OSError:
        allowed = False
    if allowed:
        os.environ[_ALONE] = "1"
        words = [sys.executable, "-m", "benchmarks.chaos", *sys.argv[1:]]
        os.execvp(_UNSHARE[0], [*_UNSHARE, *words])


if __name__ == "__main__":
    if _ALONE not in os.environ:
        with_own_mounts()
    from benchmarks.chaos.command import main  # torch is imported once

    main(__doc__, disks=_ALONE in os.environ)
