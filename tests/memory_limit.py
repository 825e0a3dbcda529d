"""Run code in its own process with a memory limit."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from tests.processes import clean_environment
from tests.programs.forked_programs import ended

MEGABYTE = 2**20

_BEFORE = """
import resource, sys
from pathlib import Path

def limit(extra):
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + extra, now + extra))
"""

_GUARDED = """
from edgefed.errors import EdgeFedError
limit({extra})
try:
    {act}
    print("ok")
except EdgeFedError as error:
    print("refused", error.code, error.message, "try:", error.hint)
"""


@dataclass(frozen=True)
class Ended:
    """What the process printed on its one line, and all that went wrong in it."""

    said: str
    trouble: str


def bounded(prepare: str, act: str, *arguments: object, megabytes: int = 256) -> Ended:
    """Run ``prepare``, then ``act`` with at most so much more memory; both see ``sys.argv``.

    An ``EdgeFedError`` is said in one line that begins with "refused".
    """
    code = _BEFORE + prepare + _GUARDED.format(extra=megabytes * MEGABYTE, act=act)
    words = ["tests.memory_limit", code, *map(str, arguments)]
    done = ended(words, clean_environment())
    return Ended(done.stdout.strip(), done.stderr)


if __name__ == "__main__":
    exec(sys.argv.pop(1), {})
