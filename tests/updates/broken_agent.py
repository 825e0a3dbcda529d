"""The entry of a version of the agent that is broken in another way on each device."""

from __future__ import annotations

import shutil
import sqlite3
import sys
import time
from pathlib import Path

from device_agent.tasks import probe_task
from edgefed.process.startup import begin


def main() -> None:
    words = sys.argv
    state = Path(words[words.index("--state") + 1])
    way = state.name
    if way == "exits":
        sys.exit("cannot start")
    if way == "hangs":
        time.sleep(600)
    if way == "unconnected":
        words[words.index("--broker") + 1] = "mqtt://127.0.0.1:1"
    if way == "probe":
        probe_task._SETTINGS["server"] = "unknown"
    if way == "damages":
        (database,) = state.rglob("agent.db")
        with sqlite3.connect(database) as tables:
            tables.execute("PRAGMA user_version = 9999")
        shutil.rmtree(database.parent / "blobs", ignore_errors=True)
    begin("device_agent.commands.cli")


if __name__ == "__main__":
    main()
