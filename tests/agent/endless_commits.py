"""Commits answers of one run without end, and prints the index of each, until it is killed.

``python -m tests.agent.endless_commits FOLDER INDEX``; the first answer is the one after INDEX.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from device_agent.tasks.device_store import DeviceStore
from edgefed.wire.tensors import digest
from tests.agent.replies import reply
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram
from tests.transport.listening import wait_until


@contextmanager
def committing(folder: Path, index: int) -> Iterator[Path]:
    """Run this program until the block ends, and yield what it prints once something is there."""
    log = folder / f"printed-{index}"
    words = ["tests.agent.endless_commits", str(folder), str(index)]
    program = ForkedProgram(words, clean_environment(), log)
    try:
        wait_until(lambda: log.exists() and "\n" in log.read_text(), "the first commit")
        yield log
    finally:
        program.kill()
        program.wait()


def main(folder: Path, index: int) -> None:
    store = DeviceStore(folder, 2**30)
    while True:
        index += 1
        blob = index.to_bytes(4, "big") * 20000
        private: dict[str, dict[str, Any]] = {"state": {"index": np.full(20000, index, np.int64)}}
        groups: dict[str, dict[str, Any]] = {"lasting": {"index": np.full(20000, index, np.int32)}}
        entries = [{"index": index}]
        store.commit(reply(index, blob=blob), {digest(blob): blob}, private, groups, entries)
        store.forget("r-1", index - 5)
        sys.stdout.write(f"{index}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
