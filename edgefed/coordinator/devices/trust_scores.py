"""The devices' trust scores and quarantines; kept across runs and restarts.

A score is from 0 to 1 and begins at 1. A reply that a check refuses lowers it, an accepted one
raises it more slowly; the recipe's ``[checks]`` table states by how much. Missing replies and those
in which devices decline change nothing. With L = ``quarantine_below`` and H = ``trusted_from``:

    trusted -> suspect            after a refusal, below H
    suspect -> trusted            at H or above
    trusted, suspect -> quarantined    after a refusal, below L; or by an operator
    quarantined -> suspect        by an operator only, with a score of 0.6

If at least half of the replies to one question are refused, the cause is more likely the recipe,
such as a learning rate at which all devices diverge, and no score falls.

The effect of an exchange on a score is stored with its id before the exchange is merged. After a
kill in between, the same exchange is put again, and is not counted twice.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgefed.algorithms.interface.member import Roster
from edgefed.config.recipes.checks_section import ChecksSection
from edgefed.coordinator.devices.announced_samples import ANNOUNCED, MEDIANS, SampleExclusions
from edgefed.database.database import Database, DatabaseTable, Schema
from edgefed.errors import StorageError, UnknownNameError, UsageError
from edgefed.events.base.coordinator_states import QUARANTINED
from edgefed.events.base.snapshot import Standing

RELEASED = 0.6
"""The score of a device after its release."""

ORDERED = "ordered by "
"""How the reason of a quarantine begins that an operator has ordered, before the operator's name;
it is ``by the operator`` where an earlier version has stored it."""

_UNNAMED = "by the operator"

_SETTING = re.compile(r"\((checks\.\w+)\)$")
"""The setting of the check at the end of a reason."""

FILE = "device-trust.db"

_SCHEMA = Schema(
    2,
    {
        "trust": DatabaseTable(
            {
                "device": "text not null",
                "score": "real not null",
                "standing": "text not null",
                "reason": "text not null",
                "since": "text not null",
                "exchange": "text not null",
            },
            ("device",),
        ),
        "announced": ANNOUNCED,
        "medians": MEDIANS,
    },
    "the database of trust scores",
    extends=1,
)


@dataclass(frozen=True)
class Trust:
    """The trust record of one device.

    Attributes:
        score: 0 to 1.
        reason: of its last refused reply, or of its quarantine.
        since: UTC time since when it has this standing.
        exchange: the last one that was counted.
    """

    device: str
    score: float = 1.0
    standing: Standing = "trusted"
    reason: str = ""
    since: str = ""
    exchange: str = ""

    def fields(self) -> dict[str, Any]:
        """Return its fields of a ``device`` event."""
        return {
            "device": self.device,
            "trust": round(self.score, 6),
            "standing": self.standing,
            "trust_reason": self.reason,
            "trust_since": self.since,
            "quarantined_by": self.quarantined_by,
        }

    @property
    def is_ordered(self) -> bool:
        """Whether an operator has quarantined the device."""
        ordered = self.reason == _UNNAMED or self.reason.startswith(ORDERED)
        return ordered and self.standing == "quarantined"

    @property
    def quarantined_by(self) -> str:
        """The operator that has quarantined the device, or the setting of the check."""
        if self.standing != "quarantined":
            return ""
        if self.is_ordered:
            return self.reason.removeprefix(ORDERED) if self.reason != _UNNAMED else "an operator"
        setting = _SETTING.search(self.reason)
        return setting.group(1) if setting else "checks"


@dataclass(frozen=True)
class Judged:
    """The outcome of the replies to one exchange.

    Attributes:
        exchange: its id.
        accepted: devices whose replies were accepted.
        refused: devices whose replies a check refused, and why.
    """

    exchange: str
    accepted: Collection[str]
    refused: Mapping[str, str] = field(default_factory=dict)


class TrustScores:
    """The scores of all devices; safe from any thread.

    Args:
        folder: the coordinator's state directory; None to keep nothing, as in simulations.

    Attributes:
        announced: the devices excluded for the samples that they announce.

    Raises:
        StorageError: the file cannot be used, or is damaged.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._lock = threading.RLock()
        self._db = None if folder is None else Database(folder / FILE, _SCHEMA)
        rows = () if self._db is None else self._db.rows("trust")
        self._known = {str(row[0]): _read(row) for row in rows}
        self._changed: dict[str, bool] = {}
        self.announced = SampleExclusions(self._db)

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()

    def of(self, device: str) -> Trust:
        """Return the record of a device."""
        with self._lock:
            return self._known.get(device, Trust(device))

    def all(self) -> list[Trust]:
        """Return all records, sorted by device; a device that never failed may be missing."""
        with self._lock:
            return [self._known[device] for device in sorted(self._known)]

    def is_quarantined(self, device: str, exchange: str = "", below: float = 0.0) -> bool:
        """Whether a device must not be asked.

        Args:
            device: its id.
            exchange: the one that is being judged. Its own effect does not count: when it is judged
                again after a restart, its outcome must be the same.
            below: the run's ``checks.quarantine_below``. A score that runs with a lower one have
                left below it quarantines the device as well, unless it was released since.
        """
        known = self.of(device)
        if known.standing != "quarantined":
            return known.score < below and bool(known.reason)
        return not exchange or known.exchange != exchange or known.is_ordered

    def judge(self, judged: Judged, section: ChecksSection, now: str) -> None:
        """Update the scores from an exchange's replies, once for each exchange."""
        with self._lock:  # else what an operator orders meanwhile would be lost
            count = len(judged.accepted) + len(judged.refused)
            loss = 0.0 if 2 * len(judged.refused) >= count else section.trust_loss
            after = [
                *(_refused(self.of(d), judged, loss, section, now) for d in sorted(judged.refused)),
                *(_accepted(self.of(d), section, now) for d in sorted(judged.accepted)),
            ]
            changed = [
                replace(trust, exchange=judged.exchange)
                for trust in after
                if self.of(trust.device).exchange != judged.exchange
                and trust != self.of(trust.device)
            ]
            self._write(changed)

    def exclusions(self, known: Roster, section: ChecksSection) -> dict[str, str]:
        """Return the devices that a run does not ask, regardless of their data, with reasons.

        Args:
            known: all devices of the fleet, also those that are lost.
            section: the run's.
        """
        below = section.quarantine_below
        quarantined = {m.device for m in known if self.is_quarantined(m.device, below=below)}
        others = [member for member in known if member.device not in quarantined]
        announced = self.announced.reasons(others, section.announced_median_factor)
        return announced | dict.fromkeys(quarantined, QUARANTINED)

    def not_admitted(
        self, devices: Set[str], section: ChecksSection, now: Callable[[], str]
    ) -> set[str]:
        """Return the devices that a run must not ask; a score too low for it quarantines one."""
        with self._lock:
            judged = [known for known in self._known.values() if known.device in devices]
            below = section.quarantine_below
            out = [known for known in judged if self.is_quarantined(known.device, below=below)]
            moved = [
                _moved(one, "quarantined", now()) for one in out if one.standing != "quarantined"
            ]
            with suppress(StorageError):  # a full disk: it is written the next time
                self._write(moved)
            return {known.device for known in out}

    def quarantine(self, device: str, operator: str, now: str) -> None:
        """Quarantine a device by an operator's order.

        Raises:
            UsageError: ``device.quarantined``: it is already.
        """
        with self._lock:
            known = self.of(device)
            if known.standing == "quarantined":
                raise UsageError(
                    f"Device {device} is quarantined already.",
                    code="device.quarantined",
                    hint=f"edgefed device show {device}",
                )
            reason = f"{ORDERED}{operator}"
            self._write([replace(known, standing="quarantined", reason=reason, since=now)])

    def release(self, device: str, now: str) -> None:
        """End a quarantine; the device is suspect until its replies were accepted for a while.

        A device with a refused reply is released as well: runs with a higher ``quarantine_below``
        than its score do not ask it.

        Raises:
            UnknownNameError: ``device.not_quarantined``: it is not quarantined, and no reply of
                it was refused since its last release.
        """
        with self._lock:
            known = self.of(device)
            if known.standing != "quarantined" and known.reason:
                self._write([replace(known, score=max(known.score, RELEASED), reason="")])
                return
            if known.standing != "quarantined":
                raise UnknownNameError(
                    f"Device {device} is neither quarantined nor excluded for its samples.",
                    code="device.not_quarantined",
                    hint="edgefed device list shows which are",
                )
            self._write([replace(known, score=RELEASED, standing="suspect", reason="", since=now)])

    def restore(self, known: Iterable[Trust]) -> None:
        """Take the records of a simulation that goes on."""
        with self._lock:
            self._known = {trust.device: trust for trust in known}

    def changes(self) -> list[dict[str, Any]]:
        """Return the fields of a ``device`` event for each that changed since the last call.

        ``moved`` is among them if its standing changed.
        """
        with self._lock:
            changed, self._changed = self._changed, {}
            return [
                {**self._known[device].fields(), **({"moved": True} if moved else {})}
                for device, moved in changed.items()
            ]

    def _write(self, changed: list[Trust]) -> None:
        with self._lock:
            if self._db is not None and changed:
                with self._db.transaction():
                    for trust in changed:
                        self._db.put("trust", *_row(trust))
            for trust in changed:
                moved = self.of(trust.device).standing != trust.standing
                self._known[trust.device] = trust
                self._changed[trust.device] = moved or self._changed.get(trust.device, False)


def _refused(known: Trust, judged: Judged, loss: float, section: ChecksSection, now: str) -> Trust:
    """Return a device's standing after a refused reply."""
    if not loss or known.standing == "quarantined":
        return known
    score, reason = max(0.0, known.score - loss), judged.refused[known.device]
    standing: Standing = known.standing
    if score < section.quarantine_below:
        standing = "quarantined"
    elif score < section.trusted_from:
        standing = "suspect"
    return _moved(replace(known, score=score, reason=reason), standing, now)


def _accepted(known: Trust, section: ChecksSection, now: str) -> Trust:
    """Return a device's standing after an accepted reply."""
    score = min(1.0, known.score + section.trust_gain)
    if known.standing == "suspect" and score >= section.trusted_from:
        return _moved(replace(known, score=score, reason=""), "trusted", now)
    return replace(known, score=score)


def _moved(known: Trust, standing: Standing, now: str) -> Trust:
    return known if standing == known.standing else replace(known, standing=standing, since=now)


def _row(known: Trust) -> tuple[str | float, ...]:
    since, exchange = known.since, known.exchange
    return (known.device, known.score, known.standing, known.reason, since, exchange)


def _read(row: tuple[Any, ...]) -> Trust:
    device, score, standing, reason, since, exchange = row
    return Trust(device, score, standing, reason, since, exchange)
