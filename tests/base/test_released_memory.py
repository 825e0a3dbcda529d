"""Freed memory goes back to the system, also where a block in use lies at its end."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

RESIDENT = """
import sys
from edgefed.process.memory import map_large_blocks, release_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
"""

SMALL = """
blocks = [bytes(2000 + number % 7) for number in range(40_000)]
last = bytes(2001)
whole = resident()
blocks.clear()
kept = whole - resident()
release_memory()
print(kept, whole - resident())
"""


LARGE = """
if sys.argv[1] == "mapped":
    map_large_blocks()
before = resident()
b"x" * (len(sys.argv) * 15 * 2**20)  # once freed, it raises the limit
blocks = [b"x" * (5 * 2**20 + place) for place in range(16)]
last = b"x" * 2**17
blocks.clear()
print(resident() - before)
"""

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")


def _numbers(code: str, *words: str) -> list[int]:
    command = [sys.executable, "-c", RESIDENT + code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_large_blocks_go_back_once_they_are_mapped() -> None:
    (kept,), (mapped,) = (_numbers(LARGE, word) for word in ("kept", "mapped"))
    assert kept > 60e6, "a block at the end keeps them"
    assert mapped < 2e6


def test_freed_memory_goes_back() -> None:
    kept, released = _numbers(SMALL)
    assert kept < 20e6, "the block at the end keeps what lies before it"
    assert released > 60e6
