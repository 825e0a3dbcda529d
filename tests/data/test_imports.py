"""Loading plain files needs no torch, so that tools which only look at data start quickly."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import edgefed.data.sets.datasets, edgefed.data.devices.partition
import edgefed.data.devices.shard_files, edgefed.data.devices.sources
print(sorted({"torch", "torchvision", "sklearn", "PIL"} & set(sys.modules)))
"""


def test_importing_the_package_imports_no_heavy_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
