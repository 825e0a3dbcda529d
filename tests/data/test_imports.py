"""Loading plain files needs no torch, so that tools which only look at data start quickly."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import edgefed.data.sets.datasets, edgefed.data.devices.partition
import edgefed.data.devices.shard_files, edgefed.data.devices.sources
from edgefed.data.sets.digits import DigitsOptions, load_digits
print(len(load_digits(DigitsOptions(), None).train))
print(sorted({"torch", "torchvision", "sklearn", "PIL"} & set(sys.modules)))
"""


def test_importing_the_package_and_loading_digits_import_no_heavy_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1437", "[]"]
