"""The updater's settings, its stored state, and the files through which it talks to the agent.

    HOME/offer.json      of the agent: the last offer of the coordinator
    HOME/incoming/       of the agent: the blobs that it received, named by their SHA-256
    HOME/agent.json      of the agent: its signs of life
    HOME/state.json      of the updater: ``UpdaterState``; its ``needs`` are fetched by the agent
    HOME/order.json      of the owner: ``approve`` or ``rollback``
    HOME/order.taken     of the updater: that order, until its consequence is stored
    HOME/slots/RELEASE/  virtual environments; HOME/current points to the one that runs
    HOME/store/          the verified wheels of the slots

Their names and fields are read by older and newer versions: they are only ever added to.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from device_agent.updater.disk import read_json, write_json

BASE = "base"
"""The slot without wheels of its own: EdgeFed as it was installed on the board."""

Phase = Literal["idle", "waiting", "fetching", "installing", "ready", "trial", "restoring"]


@dataclass(frozen=True)
class TrialLimits:
    """Times in seconds by which a new version is judged.

    Attributes:
        start: until it has opened its store.
        probe: until it has trained the probe task.
        connect: without a connection while the broker answers.
        stay: of an unbroken connection, after which it has passed.
        silence: without a sign of life.
    """

    start: float = 180.0
    probe: float = 900.0
    connect: float = 180.0
    stay: float = 60.0
    silence: float = 90.0


@dataclass(frozen=True)
class UpdaterSettings:
    """The decisions of the device's owner.

    Attributes:
        home: the updater's folder.
        folder: the agent's state.
        root: the pinned root metadata.
        mode: ``off``, ``ask`` or ``auto``.
        hours: local time in which versions are changed, ``HH:MM-HH:MM``; empty for any.
        host, port: of the broker.
        words: arguments of ``edgefed-agent``.
        limits: of a trial.
    """

    home: Path
    folder: Path
    root: Path
    mode: str
    hours: str
    host: str
    port: int
    words: tuple[str, ...]
    limits: TrialLimits = field(default_factory=TrialLimits)

    @classmethod
    def of(cls, read: dict[str, Any]) -> UpdaterSettings:
        """Return settings from plain values."""
        paths = {name: Path(read[name]) for name in ("home", "folder", "root")}
        limits = TrialLimits(**read.get("limits", {}))
        return cls(**{**read, **paths, "words": tuple(read["words"]), "limits": limits})

    def allows_change(self, now: time.struct_time) -> bool:
        """Whether a local time is within the maintenance hours, which may span midnight."""
        if not self.hours:
            return True
        begin, end = self.hours.split("-")
        at = f"{now.tm_hour:02}:{now.tm_min:02}"
        return begin <= at < end if begin <= end else at >= begin or at < end


@dataclass(frozen=True)
class UpdaterState:
    """The stored state of the updater.

    Attributes:
        current, previous: names of the slots that run now, and before the last change.
        number: highest release number that has passed its trial; a lower one is refused.
        phase: of the change at work, of release ``release`` with number ``release_number``.
        wheels: SHA-256 of the files of that release, by name.
        sizes: bytes of these files, by SHA-256.
        needs: the part of ``sizes`` that the agent is to fetch.
        offer: id of the last offer that was looked at.
        during_run: whether that offer may interrupt a run.
        trials: how often the trial was begun again.
        reason: the outcome of the last change, or why the one at work waits.
        signed_at: the latest time of a verified signature.
    """

    current: str = BASE
    previous: str = ""
    number: int = 0
    phase: Phase = "idle"
    release: str = ""
    release_number: int = 0
    wheels: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    needs: dict[str, int] = field(default_factory=dict)
    offer: str = ""
    during_run: bool = False
    trials: int = 0
    reason: str = ""
    signed_at: str = ""

    @property
    def running(self) -> str:
        """The slot whose agent is to run."""
        return self.release if self.phase == "trial" else self.current


class StateFile:
    """The stored state; every change is on the disk before it counts."""

    def __init__(self, home: Path) -> None:
        self._path = home / "state.json"
        known = {item.name for item in fields(UpdaterState)}
        read = {name: value for name, value in read_json(self._path).items() if name in known}
        self.state = UpdaterState(**read)

    def change(self, **changes: Any) -> None:
        """Store changed fields."""
        made = replace(self.state, **changes)
        if made != self.state or not self._path.exists():
            write_json(self._path, asdict(made))
            self.state = made
