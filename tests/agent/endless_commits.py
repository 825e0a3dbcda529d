"""Commits answers of one run without end, and prints the index of each, until it is killed.

``python -m tests.agent.endless_commits FOLDER INDEX``; the first answer is the one after INDEX.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from device_agent.tasks.device_store import DeviceStore
from edgefed.wire.tensors import digest
from tests.agent.replies import reply


def main(folder: Path, index: int) -> None:
    store = DeviceStore(folder, 2**30)
    while True:
        index += 1
        blob = index.to_bytes(4, "big") * 20000
        private = {"state": {"index": np.full(20000, index, np.int64)}}
        groups = {"lasting": {"index": np.full(20000, index, np.int32)}}
        entries = [{"index": index}]
        store.commit(reply(index, blob=blob), {digest(blob): blob}, private, groups, entries)
        store.forget("r-1", index - 5)
        sys.stdout.write(f"{index}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
