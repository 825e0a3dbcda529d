"""An agent of a few lines, with which slots and trials are tested; ``MODE`` says what it breaks."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

MODE = "good"


def main() -> None:
    folder, home = Path(sys.argv[1]), Path(os.environ["EDGEFED_UPDATER"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if MODE == "exits":
        sys.exit("cannot start")
    if MODE == "hangs":
        time.sleep(600)
    if MODE == "damages":
        (folder / "agent.db").write_text("newer tables")
        (folder / "blobs" / "state").unlink(missing_ok=True)
    with (folder / "started").open("a") as file:
        file.write(f"{Path(__file__).parent.parent.parent.parent.parent.name}\n")
    problem = "the probe task failed" if MODE == "probe" else ""
    problem = "its store is damaged" if MODE == "damages" else problem
    signs = {"pid": os.getpid(), "store": True, "probe": MODE != "probe", "quiet": True}
    for beat in range(10**9):
        connected = MODE != "unconnected" and (home / "broker").exists()
        beats = {**signs, "beat": beat, "connected": connected, "problem": problem}
        (home / "agent.part").write_text(json.dumps(beats))
        (home / "agent.part").replace(home / "agent.json")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
