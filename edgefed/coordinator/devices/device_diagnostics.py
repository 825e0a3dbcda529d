"""Ping single devices or fetch lines of their logs, and wait for their answers.

Threads that handle requests wait here; the dispatcher's thread delivers the answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.errors import NotAllowedError, TimeLimitError, UnknownNameError
from edgefed.process.clock import Clock
from edgefed.wire.diagnostic_messages import LogRequest, LogTail, Ping, Pong

Answer = Pong | LogTail

PingOutcome = Literal["answered", "silent", "lost"]
"""``silent`` when no answer came in time, ``lost`` when the device is not there."""


@dataclass(frozen=True)
class PingResult:
    """The result of a ping.

    Attributes:
        seconds: from the ping to its answer; None without one.
    """

    device: str
    outcome: PingOutcome
    seconds: float | None = None


@dataclass
class _Question:
    """A message to a device in one session, with its answer and the time that it took."""

    device: str
    session: str
    nonce: str
    sent: float
    answer: Answer | None = None
    seconds: float = 0.0


class DeviceDiagnostics:
    """Pings devices and fetches lines of their logs; safe from any thread.

    Args:
        send: sends a device a message, best effort.
        registry: the connected devices and their sessions.
        journal: knows all devices of the fleet.
        clock: measures response times.
        new_nonce: returns a random name for a message.
    """

    def __init__(
        self,
        send: Callable[[str, Ping | LogRequest], None],
        registry: DeviceRegistry,
        journal: EventJournal,
        clock: Clock,
        new_nonce: Callable[[], str],
    ) -> None:
        self._send = send
        self._registry = registry
        self._journal = journal
        self._clock = clock
        self._new_nonce = new_nonce
        self._open: dict[str, _Question] = {}
        self._answered = threading.Condition()

    def ping(self, devices: Collection[str], timeout: float) -> list[PingResult]:
        """Ping devices concurrently, and return the result of each, sorted by name.

        Args:
            devices: their names; empty for every device that the fleet knows.
            timeout: seconds to wait for the last answer.

        Raises:
            UnknownNameError: there is no such device; nothing was sent.
        """
        names = self._known(devices)
        asked = [self._new_question(device) for device in names]
        try:
            for question in asked:
                if question.session:
                    question.sent = self._clock.monotonic()
                    ping = Ping(nonce=question.nonce, session=question.session)
                    self._send(question.device, ping)
            self._wait(asked, timeout)
        finally:
            self._forget(asked)
        return [_result(question) for question in asked]

    def log(self, device: str, lines: int, after: int | None, timeout: float) -> LogTail:
        """Return lines of a device's log, as ``LogRequest`` says which.

        Raises:
            UnknownNameError: there is no such device.
            TimeLimitError: it is lost, or does not answer in time.
            NotAllowedError: its owner does not share the log.
        """
        self._known([device])
        asked = self._new_question(device)
        try:
            if not asked.session:
                hint = f"edgefed device show {device}"
                raise TimeLimitError(f"Device {device} is lost.", code="device.lost", hint=hint)
            request = LogRequest(nonce=asked.nonce, session=asked.session, lines=lines, after=after)
            self._send(device, request)
            self._wait([asked], timeout)
        finally:
            self._forget([asked])
        if not isinstance(asked.answer, LogTail):
            raise TimeLimitError(
                f"Device {device} did not answer within {timeout:g} s.",
                code="device.silent",
                hint=f"edgefed device show {device}; an agent of an older version does not answer",
            )
        if not asked.answer.shared:
            raise NotAllowedError(
                f"The owner of {device} does not share its log.",
                code="device.log_not_shared",
                hint="share_log = true in the device's edgefed-agent.toml",
            )
        return asked.answer

    def take(self, device: str, answer: Answer) -> None:
        """Take an answer; one that nobody waits for any more is ignored."""
        now = self._clock.monotonic()
        with self._answered:
            asked = self._open.get(answer.nonce)
            if asked is None or (asked.device, asked.session) != (device, answer.session):
                return
            if asked.answer is None:
                asked.answer, asked.seconds = answer, now - asked.sent
                self._answered.notify_all()

    def _known(self, devices: Collection[str]) -> list[str]:
        """Return the names of devices, sorted; of none given, of all."""
        known = {view.device for view in self._journal.snapshot.devices}
        for device in sorted({*devices} - known):
            raise UnknownNameError(
                f"No device {device}.", code="device.unknown", hint="edgefed device list"
            )
        return sorted({*devices} or known)

    def _new_question(self, device: str) -> _Question:
        """Return a question that may be answered; without a session for a device that is lost."""
        asked = _Question(
            device, self._registry.session(device), self._new_nonce(), self._clock.monotonic()
        )
        with self._answered:
            self._open[asked.nonce] = asked
        return asked

    def _wait(self, asked: Iterable[_Question], timeout: float) -> None:
        waited = [question for question in asked if question.session]
        with self._answered:
            self._answered.wait_for(lambda: all(question.answer for question in waited), timeout)

    def _forget(self, asked: Iterable[_Question]) -> None:
        with self._answered:
            for question in asked:
                self._open.pop(question.nonce, None)


def _result(asked: _Question) -> PingResult:
    if not asked.session:
        return PingResult(asked.device, "lost")
    if not isinstance(asked.answer, Pong):
        return PingResult(asked.device, "silent")
    return PingResult(asked.device, "answered", asked.seconds)
