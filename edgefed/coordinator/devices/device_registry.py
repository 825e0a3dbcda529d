"""The devices that are connected, from births and last wills, with their reported state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from edgefed.algorithms.interface.member import Member, Roster
from edgefed.coordinator.devices.device_pauses import DevicePauses
from edgefed.coordinator.devices.device_reports import (
    DeviceReports,
    birth_fields,
    data_fields,
    news_of_data,
)
from edgefed.coordinator.devices.sender_limits import everybody
from edgefed.coordinator.devices.trust_scores import TrustScores
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.errors import NotAllowedError, UnknownNameError
from edgefed.events.base.coordinator_states import (
    CONNECTION_BROKE,
    SILENT,
    pause_in_words,
)
from edgefed.events.base.device_columns import roster_parts
from edgefed.process.clock import Clock, timestamp
from edgefed.trust.certificates import Certificate
from edgefed.wire.messages import Birth, Progress, Task, Telemetry

REPORT_EVERY = 0.5
"""Seconds between two progress events of one device that is in one state."""

MOST_CHANGES = 50
"""Changes of devices' states in a second that are events of their own. Further ones are reported
together: a thousand devices make four thousand in a round."""

MEASURED_EVERY = 1.0
"""Seconds between two events about one device's health."""

_PROGRESS = {"state", "fraction", "exchange", "reason"}

_RESTING = ("idle", "done", "late", "rejected", "failed")
"""States of a device that has not begun the task that it was sent since."""

DOUBT = 150.0
"""Seconds in which a device that only a retained birth speaks for has to be heard of: more than
an agent waits at most before it connects again to a broker that was away."""


@dataclass(frozen=True)
class _Entry:
    birth: Birth
    online: bool
    progress: Progress
    asked: str = ""
    farewell: str = ""
    resumes_at: str = ""
    reported: float = field(default=-1e9)
    measured: float = field(default=-1e9)
    doubted: float | None = None
    lost: float = field(default=-1e9)
    steady: float = field(default=-1e9)
    certificate: bytes = b""
    silent: bool = False


class DeviceRegistry:
    """The devices of a fleet; safe from any thread.

    Args:
        journal: receives the changes.
        clock: for the interval between reports.
        trust: the trust scores of the devices.
        enrolled: whether a device is enrolled; one that is not any more is not in the roster.
        pauses: the devices that operators have paused; they are not in the roster.
        site_of: returns the gateway that speaks for a device; empty for one without.
    """

    def __init__(
        self,
        journal: EventJournal,
        clock: Clock,
        trust: TrustScores | None = None,
        enrolled: Callable[[str], bool] = everybody,
        pauses: DevicePauses | None = None,
        site_of: Callable[[str], str] = lambda device: "",
    ) -> None:
        self._site_of = site_of
        self._enrolled = enrolled
        self._journal = journal
        self._trust = trust or TrustScores()
        self._pauses = pauses or DevicePauses()
        self._absent: set[str] = set()  # known from disk alone
        for known in self._trust.all():
            if known.standing != "trusted":
                self._tell_of_absent(known.device, known.fields())
        for pause in self._pauses.all():
            self._tell_of_absent(pause.device, pause.fields())
        self._clock = clock
        self._reports = DeviceReports(journal.emit, clock)
        self._entries: dict[str, _Entry] = {}
        self._heard: dict[str, float] = {}
        self._changed = threading.Condition()
        self._listeners: list[Callable[[str], None]] = []
        self._second, self._changes = 0.0, 0

    def _tell_of_absent(self, device: str, fields: dict[str, Any]) -> None:
        """Tell of a device that has not been heard of since the start, unless it was removed."""
        if self._enrolled(device):
            self._absent.add(device)
            self._journal.emit("device", **{**fields, "device": device})

    def due(self) -> None:
        """Emit the devices' collected reports, if it is time."""
        if self._reports.next_due is not None:
            self._reports.due()

    @property
    def next_due(self) -> float | None:
        """The monotonic second at which ``due`` has something to emit; None for never."""
        return self._reports.next_due

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with every device that comes, is lost or may train again or not."""
        self._listeners.append(listener)

    def roster(self) -> Roster:
        """Return the devices that are there and not paused, sorted by id."""
        with self._changed:
            return tuple(
                _member(device, entry.birth)
                for device, entry in sorted(self._entries.items())
                if entry.online and not self._is_paused(device, entry) and self._enrolled(device)
            )

    def known(self) -> Roster:
        """Return all devices that have been born, also those that are lost, sorted by id."""
        with self._changed:
            return tuple(
                _member(device, entry.birth)
                for device, entry in sorted(self._entries.items())
                if self._enrolled(device)
            )

    def _is_paused(self, device: str, entry: _Entry) -> bool:
        """Whether a device has paused or may not train, or an operator has paused it."""
        progress = entry.progress
        return progress.state == "paused" or not progress.may_train or device in self._pauses

    def paused(self) -> dict[str, str]:
        """Return why devices that are there are paused, by device."""
        with self._changed:
            entries = [*self._entries.items()]
        return {
            device: by
            if (by := self._pauses.fields(device)["paused_by"])
            else pause_in_words(entry.progress.reason, entry.resumes_at)
            for device, entry in sorted(entries)
            if entry.online and self._is_paused(device, entry)
        }

    def is_enrolled(self, device: str) -> bool:
        """Whether a device is enrolled; in a fleet without an authority every device is."""
        return self._enrolled(device)

    def knows(self, device: str) -> bool:
        """Whether a device has joined, and was not forgotten; it may be lost."""
        return device in self._entries

    def __len__(self) -> int:
        return len(self._entries.keys() | self._absent)

    def online(self, device: str) -> bool:
        """Whether a device is there."""
        with self._changed:
            entry = self._entries.get(device)
            return entry is not None and entry.online

    def session(self, device: str) -> str:
        """Return the current life of a device; empty when it is not there."""
        with self._changed:
            entry = self._entries.get(device)
            return entry.birth.session if entry is not None and entry.online else ""

    def announced(self, device: str) -> tuple[Birth, Progress] | None:
        """Return a device's announcement with its present status, and its progress.

        The progress of a lost device says why, and that of one that an operator has paused says so.
        None for an unknown device.
        """
        with self._changed:
            entry = self._entries.get(device)
            if entry is None:
                return None
            there = entry.online and self._enrolled(device)
        status: Literal["online", "lost"] = "online" if there else "lost"
        progress, paused = entry.progress, self._pauses.fields(device)
        if status == "lost":
            reason = entry.farewell or CONNECTION_BROKE
            progress = Progress(session=progress.session, state="lost", reason=reason)
        elif device in self._pauses:
            reason = f"paused at its site by {paused['paused_by']}"
            progress = Progress(session=progress.session, state="paused", reason=reason)
        return entry.birth.model_copy(update={"status": status}), progress

    def devices(self) -> list[str]:
        """Return the names of all devices that have joined and were not forgotten."""
        with self._changed:
            return list(self._entries)

    def lost_since(self, devices: Iterable[str], start: float) -> dict[str, float]:
        """Return which of ``devices`` are not there, and since when, but not before ``start``."""
        with self._changed:
            entries = ((device, self._entries.get(device)) for device in devices)
            return {
                device: start if entry is None else max(start, entry.lost)
                for device, entry in entries
                if entry is None or not entry.online
            }

    def steady_since(self, devices: Iterable[str], start: float) -> frozenset[str]:
        """Return which of ``devices`` could work without a break since ``start``.

        They are there, in the life in which they were then, have not paused, nor has an operator
        paused them, and the broker was there.
        """
        with self._changed:
            entries = ((device, self._entries.get(device)) for device in devices)
            return frozenset(
                device
                for device, entry in entries
                if entry is not None
                and entry.online
                and entry.doubted is None
                and entry.steady <= start
                and not self._is_paused(device, entry)
                and self._enrolled(device)
            )

    def working_on(self, device: str, exchange: str) -> bool:
        """Whether a device has said that it is working on an exchange, and has not given up."""
        with self._changed:
            entry = self._entries.get(device)
            if entry is None or not entry.online:
                return False
            return entry.progress.exchange == exchange and entry.progress.state != "failed"

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        """Wait until so many devices with samples are there, or time is up, or ``stop``."""
        with self._changed:
            self._changed.wait_for(
                lambda: stop() or sum(m.samples > 0 for m in self.roster()) >= devices, timeout
            )
            return self.roster()

    def wake(self) -> None:
        """Make waiting threads look at ``stop`` again."""
        with self._changed:
            self._changed.notify_all()

    def addressed(self, task: Task) -> Task:
        """Return a task as it is sent now: to the current life of its device.

        In a signed fleet it carries the certificates of the devices for which the reply may
        encrypt something.
        """
        with self._changed:
            entry = self._entries.get(task.device)
            known = {device: self._entries.get(device) for device in task.receivers}
            certificates = {
                device: other.certificate
                for device, other in known.items()
                if other is not None and other.certificate
            }
        session = "" if entry is None else entry.birth.session
        return task.model_copy(update={"session": session, "certificates": certificates})

    def take_birth(
        self,
        device: str,
        birth: Birth,
        signer: Certificate | None = None,
        *,
        live: bool = True,
    ) -> bool:
        """Take a birth or a will; return whether a new life of the device began.

        A birth of the current life tells of other data if its revision is greater.

        A will of another life than the current one is stale: MQTT orders messages per topic only,
        and a will can overtake a rebirth. A birth that the broker kept (not ``live``) is believed
        for a while only, since the will of a device that died with its broker never comes.
        """
        now = self._clock.monotonic()
        with self._changed:
            before = self._entries.get(device)
            known = before is not None and before.birth.session == birth.session and before.online
            if birth.status == "lost":
                if before is None or not known:
                    return False
                self._entries[device] = replace(before, online=False, asked="", lost=now)
            elif before is not None and known:
                renewed = birth.revision > before.birth.revision
                self._entries[device] = replace(
                    before,
                    birth=birth if renewed else before.birth,
                    doubted=None if live else before.doubted,
                    certificate=before.certificate if signer is None else signer.der,
                )
                if not renewed:
                    return False
            else:
                self._absent.discard(device)
                self._entries[device] = _born(birth, signer, now, live=live)
                self._heard[device] = now
            self._changed.notify_all()
        if known and birth.status == "online":
            self._journal.emit("device", device=device, renewed=True, **data_fields(birth))
            return False
        self._reports.drop(device)
        if birth.status == "lost":
            reason = (before.farewell if before is not None else "") or CONNECTION_BROKE
            self._emit_lost(device, reason)
        else:
            self._emit_born(device, birth, returned=before is not None)
        self._tell(device)
        return birth.status != "lost"

    def _emit_born(self, device: str, birth: Birth, *, returned: bool) -> None:
        described = {**birth_fields(device, birth), **self._trust.of(device).fields()}
        described |= self._pauses.fields(device)
        described |= {"site": site} if (site := self._site_of(device)) else {}
        described |= {"returned": True} if returned else {}
        self._journal.emit("device", **described)

    def doubt(self) -> None:
        """Note that the broker was away: a device that is not heard of soon has died meanwhile."""
        now = self._clock.monotonic()
        with self._changed:
            self._heard = dict.fromkeys(self._heard, now)
            for device, entry in self._entries.items():
                self._entries[device] = replace(entry, doubted=now, steady=now)

    def hear(self, device: str) -> None:
        """Note that a device has said something, which ends its silence."""
        with self._changed:
            entry = self._entries.get(device)
            if entry is None:
                return
            self._heard[device] = self._clock.monotonic()
            if entry.doubted is None and not entry.silent:
                return
            self._entries[device] = after = replace(entry, doubted=None, silent=False)
        if entry.silent and entry.online:
            self._journal.emit("device", **_state(after, device), heard=True)

    def unheard_since(self, device: str, now: float) -> float | None:
        """Return when a connected device was last heard of; None if it is known to be silent."""
        with self._changed:
            entry = self._entries.get(device)
            if entry is None or not entry.online or entry.silent:
                return None
            return self._heard.setdefault(device, now)

    def expire(self) -> list[str]:
        """Give up the devices that were not heard of for too long, and return them."""
        now = self._clock.monotonic()
        before = now - DOUBT
        with self._changed:
            silent = [
                device
                for device, entry in self._entries.items()
                if entry.online and entry.doubted is not None and entry.doubted <= before
            ]
            for device in silent:
                entry = self._entries[device]
                gone = replace(entry, online=False, asked="", lost=now, farewell=SILENT)
                self._entries[device] = gone
            if silent:
                self._changed.notify_all()
        for device in silent:
            self._reports.drop(device)
            self._emit_lost(device, SILENT)
            self._tell(device)
        return silent

    def _emit_lost(self, device: str, reason: str) -> None:
        self._journal.emit("device", device=device, state="lost", fraction=0.0, reason=reason)

    def take_farewell(self, device: str, progress: Progress) -> None:
        """Take the last message of an agent, which says why it leaves; its will may follow.

        An agent that cannot begin, such as for its data, sends nothing else. It is ignored where
        another agent of its name is connected.
        """
        with self._changed:
            entry = self._entries.get(device)
            if entry is not None and entry.online:
                if entry.birth.session == progress.session:
                    self._entries[device] = replace(entry, farewell=progress.reason)
                return
            if entry is None:
                self._absent.add(device)
        self._emit_lost(device, progress.reason)

    # -- awaited devices ------------------------------------------------------------------------

    def ask(self, devices: Iterable[str], exchange: str) -> None:
        """Note that devices were sent their tasks of an exchange, which they are ``asked`` for."""
        with self._changed:
            rows = []
            for device in devices:
                entry = self._entries.get(device)
                if entry is not None and entry.online:
                    self._entries[device] = entry = replace(entry, asked=exchange)
                    rows += [_state(entry, device)] if _is_asked(entry) else []
        for row in rows:
            self._reports.drop(row["device"], *_PROGRESS)
        for part in roster_parts(rows):
            self._journal.emit("roster", **part)

    def end_asking(self, device: str) -> None:
        """Note that a device's answer is not waited for any more."""
        with self._changed:
            entry = self._entries.get(device)
            if entry is None or not entry.asked:
                return
            self._entries[device] = after = replace(entry, asked="")
        if _is_asked(entry):
            self._journal.emit("device", **_state(after, device))

    def note_silent(self, device: str, seconds: float) -> None:
        """Tell that a device, last heard of so many seconds ago, does not answer a ping."""
        with self._changed:
            entry = self._entries.get(device)
            if entry is None:
                return
            self._entries[device] = replace(entry, silent=True)
        self._reports.drop(device)
        since = timestamp(self._clock.now() - timedelta(seconds=seconds))
        self._journal.emit("device", device=device, state="silent", state_since=since)

    def forget(self, device: str) -> None:
        """Forget a lost device; it is there again once it is born again.

        Raises:
            UnknownNameError: there is no such device.
            NotAllowedError: it is online.
        """
        with self._changed:
            entry = self._entries.get(device)
            if entry is None and device not in self._absent:
                raise UnknownNameError(
                    f"No device {device}.", code="device.unknown", hint="edgefed device list"
                )
            if entry is not None and entry.online:
                raise NotAllowedError(
                    f"Device {device} is online.",
                    code="device.online",
                    hint="stop its agent first; a device that is online rejoins at once",
                )
            self._entries.pop(device, None)
            self._heard.pop(device, None)
            self._absent.discard(device)
        self._note_removal()
        self._reports.drop(device)
        self._journal.emit("device", device=device, forgotten=True)

    def remove(self, device: str) -> None:
        """Forget a device that is no longer a member, online or not, and wake waiting threads."""
        with self._changed:
            if self._entries.pop(device, None) is None and device not in self._absent:
                return
            self._heard.pop(device, None)
            self._absent.discard(device)
            self._changed.notify_all()
        self._note_removal()
        self._reports.drop(device)
        self._journal.emit("device", device=device, forgotten=True)
        self._tell(device)

    def _note_removal(self) -> None:
        self._trust.announced.removed(len(self))

    def lost(self) -> list[str]:
        """Return the devices that are known and not there, sorted by id."""
        with self._changed:
            away = {device for device, entry in self._entries.items() if not entry.online}
            return sorted(away | self._absent)

    def _tell(self, device: str) -> None:
        for listener in self._listeners:
            listener(device)

    def take_progress(self, device: str, progress: Progress) -> bool:
        """Store a device's progress; False when its birth is not known."""
        now = self._clock.monotonic()
        with self._changed:
            entry = self._entries.get(device)
            if entry is None or not entry.online or entry.birth.session != progress.session:
                return False
            states = {entry.progress.state, progress.state}
            after = replace(entry, progress=progress, resumes_at=self._end_of_pause(progress))
            stops = entry.progress.may_train != progress.may_train
            reason = progress.reason
            of_data = news_of_data(reason) if reason != entry.progress.reason else {}
            asked = _is_asked(entry) != _is_asked(after)
            moved = bool(of_data) or len(states) > 1 or stops or asked
            quiet = not moved and now - entry.reported < REPORT_EVERY
            entry = self._entries[device] = replace(
                after,
                reported=entry.reported if quiet else now,
                steady=now if stops or (len(states) > 1 and "paused" in states) else entry.steady,
            )
            if moved:
                self._changed.notify_all()
                if now - self._second >= 1.0:
                    self._second, self._changes = now, 0
                self._changes += 1
            notable = bool(of_data or reason)
            alone = moved and (notable or self._changes <= MOST_CHANGES)
        fields = _state(entry, device)
        del fields["device"]
        if moved or not quiet:
            self._reports.drop(device, *_PROGRESS)
        if alone:
            self._journal.emit("device", device=device, **fields, **of_data)
        elif moved or not quiet:
            self._reports.add(device, **fields)
        if stops:
            self._tell(device)
        return True

    def _end_of_pause(self, progress: Progress) -> str:
        """Return the UTC time at which a device may train again at the earliest; empty if unknown.

        The device tells the seconds, since its clock may differ.
        """
        left = progress.resumes_in
        return "" if left is None else timestamp(self._clock.now() + timedelta(seconds=left))

    def take_telemetry(self, device: str, telemetry: Telemetry) -> bool:
        """Store a device's health; False when its birth is not known."""
        now = self._clock.monotonic()
        with self._changed:
            entry = self._entries.get(device)
            if entry is None or not entry.online or entry.birth.session != telemetry.session:
                return False
            quiet = now - entry.measured < MEASURED_EVERY
            if not quiet:
                self._entries[device] = replace(entry, measured=now)
        if not quiet:
            self._reports.add(device, **telemetry.model_dump(exclude={"session"}))
        return True


def _born(birth: Birth, signer: Certificate | None, now: float, *, live: bool) -> _Entry:
    """Return the entry of a device in a new life, which its birth begins at the second ``now``."""
    return _Entry(
        birth,
        online=True,
        progress=Progress(session=birth.session, state="idle"),
        doubted=None if live else now,
        steady=now,
        certificate=b"" if signer is None else signer.der,
    )


def _is_asked(entry: _Entry) -> bool:
    """Whether a device was sent a task and has not said since that it has it."""
    progress = entry.progress
    return bool(entry.asked) and progress.state in _RESTING and progress.exchange != entry.asked


def _state(entry: _Entry, device: str) -> dict[str, Any]:
    """Return the fields of a ``device`` event about the state of a connected device."""
    if _is_asked(entry):
        said = {"state": "asked", "fraction": 0.0, "exchange": entry.asked, "reason": ""}
    else:
        said = entry.progress.model_dump(include=_PROGRESS)
        said |= {"resumes_at": entry.resumes_at} if entry.resumes_at else {}
    return {"device": device, **said}


def _member(device: str, birth: Birth) -> Member:
    return Member(
        device,
        birth.samples,
        tuple(birth.shape),
        birth.classes,
        birth.data,
        tuple(birth.class_names),
        birth.held_out,
    )
