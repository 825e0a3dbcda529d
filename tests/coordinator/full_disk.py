"""Runs on a disk that fills up and is freed again, in their own process on its own disk.

``python -m tests.coordinator.full_disk FOLDER CASE …`` prints what became of the run of each case,
as JSON. A case says before which write of round 2 the disk fills up: ``merge`` (the commit),
``scored`` (the next exchange), ``evaluate`` (the round's row) or ``last`` (the model). It is freed
once the run has said that it waits; or an order is given, as in ``merge:abort`` or ``merge:stop``.
With ``half`` as the order the disk takes half of the state before it is full.
With ``rubbish`` as the order there are blobs that nobody needs, and nothing is freed. With
``restart`` the engine ends there, and the disk is full when the next one takes the run up.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgefed.coordinator.rounds.engine import Engine
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.events.base.model import Event
from edgefed.learn.base.processors import set_threads
from tests.coordinator.big_model import STATE_BYTES, big_recipe
from tests.run_fixture import World

RUBBISH = 1 << 20
NO_DISK = 3
"""The exit code where a process may not mount a disk of its own."""


def mount_own(disk: Path, size: str = "14m") -> None:
    """Mount a disk in memory that only this process sees."""
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    new_user, new_mounts = 0x10000000, 0x00020000
    try:
        if libc.unshare(new_user | new_mounts):
            raise OSError(ctypes.get_errno(), "unshare")
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {user} 1"),
            ("gid_map", f"0 {group} 1"),
        ):
            Path("/proc/self", name).write_text(text)
        if libc.mount(b"tmpfs", bytes(disk), b"tmpfs", 0, f"size={size}".encode()):
            raise OSError(ctypes.get_errno(), "mount")
    except (AttributeError, OSError) as error:  # elsewhere than on Linux, there is no unshare
        sys.stderr.write(str(error))
        sys.exit(NO_DISK)


def fill(ballast: Path, leave: int = 0) -> None:
    """Take all the room that is left, but for so many bytes."""
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
        file.truncate(file.tell() - leave)


class Patient(RunControls):
    """Sees what everybody is told while the run waits for space, then makes room.

    Args:
        ballast: what fills the disk.
        order: given instead of room, if any.
    """

    def __init__(self, here: World, ballast: Path, order: str) -> None:
        super().__init__()
        self._here = here
        self._ballast = ballast
        self._order = order
        self.waits = 0
        self.engine: Engine | None = None
        self.shown: dict[str, Any] = {}
        self.files: list[str] = []

    def wait(self, seconds: float) -> bool:
        del seconds
        self.waits += 1
        if self.waits == 1 and self.engine is not None:
            record = self.engine._deps.store.run(self._here.run)
            event = self._here.seen("run")[-1]
            self.shown = {
                "row": [record.status, record.reason],
                "event": [event["status"], event["reason"]],
            }
            folder = self._here.folder / "runs" / self._here.run
            self.files = sorted(path.name for path in folder.glob("*state-*"))
        elif self.waits == 2:
            return self._end()
        return self.interrupted()

    def _end(self) -> bool:
        if self._order in ("abort", "stop"):
            self.stop_process() if self._order == "stop" else self.order(self._order)
            return self.interrupted()
        self._ballast.unlink()
        return False


def is_time(when: str, event: Event, here: World) -> bool:
    """Whether the disk fills up at this event."""
    phase = event.fields.get("phase") if event.kind == "exchange" else None
    if when == "scored":
        return event.kind == "scored" and event.fields["round"] == 2
    if when == "last":
        return event.kind == "scored" and event.fields["round"] == 3
    return phase == when and len(here.rows) == 1


def stop_early(here: World, when: str) -> None:
    """Run until the process is to end in round 2."""
    controls = RunControls()

    def listener(event: Event) -> None:
        if is_time(when, event, here):
            controls.stop_process()

    here.engine(controls=controls, listener=listener).run()
    here.stores[-1].shrink()


def played(folder: Path, when: str, order: str) -> dict[str, Any]:
    """Return what became of one case's run."""
    here = World(folder / "state", big_recipe(), durable=True)
    ballast = folder / "ballast"
    rubbish = "" if order != "rubbish" else here.cache.put(bytes(RUBBISH))
    patient = Patient(here, ballast, order)

    def listener(event: Event) -> None:
        if is_time(when, event, here) and not ballast.exists():
            if not rubbish:
                here.cache.shed()
                here.stores[-1].shrink()
            fill(ballast, leave=STATE_BYTES // 2 if order == "half" else 0)

    engine = here.engine(controls=patient, listener=listener)
    if order == "restart":
        stop_early(here, when)
        engine = here.engine(controls=patient)
        fill(ballast)
    patient.engine = engine
    ended = engine.run()
    shown = engine._deps.store.run(here.run)
    filled = ballast.exists()
    if filled:
        ballast.unlink()
        resumed = here.engine().run()
    else:
        resumed = ended
    told = {
        "waits": patient.waits,
        "shown": patient.shown,
        "files": patient.files,
        "rubbish": bool(rubbish) and here.cache.has(rubbish),
        "was_full": filled,
        "ended": asdict(ended),
        "row": asdict(shown),
        "resumed": asdict(resumed),
        "rounds": [row["replies"] for row in here.rows],
        "notes": [event["text"] for event in here.seen("note")],
    }
    here.close()
    return told


def main(disk: Path, cases: list[str]) -> None:
    """Play the cases one after another on an empty disk."""
    mount_own(disk)
    set_threads(1)
    told = {}
    for case in cases:
        when, _, order = case.partition(":")
        told[case] = played(disk / "case", when, order)
        shutil.rmtree(disk / "case")
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
