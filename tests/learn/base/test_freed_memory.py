"""Memory that a step frees stays for the next one, where the C library is glibc."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

FAULTS = """
import json, resource, torch
from edgefed.learn.base.gradient_memory import keep_freed

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        held = [torch.ones(2 * 2**18) for _ in range(8)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
without = faults()
keep_freed(16 * 2**20)
faults()
print(json.dumps([without, faults()]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the rules are those of glibc")
def test_steps_that_free_several_models_map_no_memory_anew() -> None:
    command = [sys.executable, "-c", FAULTS]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    without, kept = json.loads(told.stdout)
    if without < 10 * 2**24 / 4096 / 2:
        pytest.skip("importing torch has already let this process keep what it frees")
    assert kept < without / 20
