"""Listeners receive events in the order of their numbers, from any thread."""

from __future__ import annotations

import sys
import threading
import time

from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.process.clock import SystemClock


def test_listeners_hear_events_in_order() -> None:
    journal = EventJournal("fleet", SystemClock())
    heard: list[int] = []

    def listen(_: object, number: int) -> None:
        time.sleep(0)  # lets another thread run in between
        heard.append(number)

    journal.listen(listen)

    def speak() -> None:
        for _ in range(300):
            journal.emit("note", level="info", text="-")

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=speak) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert heard == list(range(1, 1201))
