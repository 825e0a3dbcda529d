"""Freed memory goes back to the system, also where a block in use lies at its end."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

CODE = """
from edgefed.process.memory import release_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

blocks = [bytes(2000 + number % 7) for number in range(40_000)]
last = bytes(2001)
whole = resident()
blocks.clear()
kept = whole - resident()
release_memory()
print(kept, whole - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_goes_back() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    kept, released = map(int, done.stdout.split())
    assert kept < 20e6, "the block at the end keeps what lies before it"
    assert released > 60e6
