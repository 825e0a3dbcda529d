"""Run the tests that failed once more, alone: ``python -m tests.second_attempt EXIT_CODE``.

Tests of real processes share two cores with each other, and one in ten thousand may wait in vain.
A test that fails twice fails the suite; one that passes on the second attempt is named, since an
unsteady test is a fault to mend. More than five failures are never put down to chance.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST = 5
"""Failed tests that get a second attempt."""

TESTS_FAILED = 1
"""Pytest's exit code for failed tests; others are errors of collection, or an interruption."""


def tell(text: str) -> None:
    """Write at once, before the output of the next process."""
    sys.stdout.write(f"\n{text}")
    sys.stdout.flush()


def second_attempt(exit_code: int, root: Path) -> int:
    """Return the exit code of the suite after the second attempt.

    Args:
        exit_code: of the first run.
        root: the folder in which pytest ran; its cache names the failed tests.
    """
    cache = root / ".pytest_cache" / "v" / "cache" / "lastfailed"
    if exit_code != TESTS_FAILED or not cache.is_file():
        return exit_code
    failed = [name for name, has_failed in json.loads(cache.read_text()).items() if has_failed]
    if not 0 < len(failed) <= MOST:
        return exit_code
    names = "".join(f"  {name}\n" for name in failed)
    tell(f"{len(failed)} failed; each runs once more, alone:\n{names}")
    again = subprocess.run([sys.executable, "-m", "pytest", *failed], cwd=root, check=False)
    if again.returncode == 0:
        tell(f"unsteady, passed on the second attempt:\n{names}")
    return again.returncode


if __name__ == "__main__":
    sys.exit(second_attempt(int(sys.argv[1]), Path.cwd()))
