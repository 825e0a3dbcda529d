"""A program that starts a broker from a short-lived thread, prints its process id, and waits.

Run as ``python -m tests.broker.orphans KIND FOLDER PORT``.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from broker.address import LOOPBACK
from broker.start_broker import Kind, RunningBroker, start_broker
from edgefed.config.values.address import Address


def main(kind: Kind, folder: Path, port: int) -> None:
    started: list[RunningBroker] = []

    def start() -> None:
        started.append(start_broker(Address(LOOPBACK, port), folder, kind))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    sys.stdout.write(f"{started[0].pid}\n")
    sys.stdout.flush()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))  # type: ignore[arg-type]
