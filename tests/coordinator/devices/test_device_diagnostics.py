"""Pings and requests for logs: which answers count, and what becomes of the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from edgefed.coordinator.devices.device_diagnostics import DeviceDiagnostics, PingResult
from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.errors import EdgeFedError
from edgefed.wire.diagnostic_messages import LogRequest, LogTail, Ping, Pong
from edgefed.wire.messages import Message
from tests.coordinator.devices.test_device_registry import ONE, Hands, birth

TWO = "2" * 16


class Devices:
    """Devices that answer as a test says."""

    def __init__(self, answer: Callable[[str, Any], None]) -> None:
        self.outgoing: list[tuple[str, Message]] = []
        self._answer = answer

    def send(self, device: str, message: Message) -> None:
        self.outgoing.append((device, message))
        self._answer(device, message)


class Scene:
    """A coordinator that knows three devices, of which one is lost."""

    def __init__(self, answer: Callable[[DeviceDiagnostics, str, Any], None]) -> None:
        self.clock = Hands()
        journal = EventJournal("fleet", self.clock)
        registry = DeviceRegistry(journal, self.clock)
        for device in ("a", "b", "c"):
            registry.take_birth(device, birth())
        registry.take_birth("c", birth(status="lost"))
        numbers = count()
        self.devices = Devices(lambda device, message: answer(self.made, device, message))
        self.made = DeviceDiagnostics(
            self.devices.send, registry, journal, self.clock, lambda: f"{next(numbers):08x}"
        )


def pong(asked: Ping, **changes: str) -> Pong:
    return Pong(**{"nonce": asked.nonce, "session": asked.session, **changes})


def failure(call: Callable[[], object]) -> EdgeFedError:
    with pytest.raises(EdgeFedError) as caught:
        call()
    return caught.value


def test_the_time_from_ping_to_answer_is_told() -> None:
    def answer(made: DeviceDiagnostics, device: str, asked: Ping) -> None:
        scene.clock.time += {"a": 0.25, "b": 1.0}[device]
        made.take(device, pong(asked))

    scene = Scene(answer)
    assert scene.made.ping([], 0.01) == [
        PingResult("a", "answered", 0.25),
        PingResult("b", "answered", 1.0),
        PingResult("c", "lost"),
    ]
    assert [device for device, _ in scene.devices.outgoing] == ["a", "b"]
    assert scene.made._open == {}


def test_only_the_devices_own_answer_in_this_life_counts() -> None:
    def answer(made: DeviceDiagnostics, device: str, asked: Ping) -> None:
        made.take("b", pong(asked))
        made.take("a", pong(asked, session=TWO))
        made.take("a", pong(asked, nonce="f" * 8))
        made.take("a", LogTail(nonce=asked.nonce, session=ONE, first=1))

    scene = Scene(answer)
    assert scene.made.ping(["a"], 0.01) == [PingResult("a", "silent")]


def test_an_answer_that_comes_too_late_is_ignored() -> None:
    scene = Scene(lambda made, device, asked: None)
    assert scene.made.ping(["a", "a"], 0.01) == [PingResult("a", "silent")]
    (_, asked), *others = scene.devices.outgoing
    assert others == []
    assert isinstance(asked, Ping)
    scene.made.take("a", pong(asked))
    assert scene.made._open == {}


def test_an_unknown_device_is_refused_before_anything_is_sent() -> None:
    scene = Scene(lambda made, device, asked: None)
    assert failure(lambda: scene.made.ping(["a", "x"], 0.01)).code == "device.unknown"
    assert failure(lambda: scene.made.log("x", 5, None, 0.01)).code == "device.unknown"
    assert scene.devices.outgoing == []


def test_lines_of_a_log_come_from_another_thread() -> None:
    def answer(made: DeviceDiagnostics, device: str, asked: LogRequest) -> None:
        tail = LogTail(nonce=asked.nonce, session=ONE, first=asked.after or 0, lines=("x",))
        threading.Timer(0.05, made.take, (device, tail)).start()

    scene = Scene(answer)
    tail = scene.made.log("a", 7, 3, 30.0)
    assert (tail.first, tail.lines) == (3, ("x",))
    ((device, asked),) = scene.devices.outgoing
    assert device == "a"
    assert isinstance(asked, LogRequest)
    assert (asked.lines, asked.after, asked.session) == (7, 3, ONE)
    assert scene.made._open == {}


def test_a_log_that_does_not_come_has_a_reason() -> None:
    def keep(made: DeviceDiagnostics, device: str, asked: LogRequest) -> None:
        if device == "b":
            made.take(device, LogTail(nonce=asked.nonce, session=ONE, shared=False, first=0))

    scene = Scene(keep)
    errors = [failure(lambda each=each: scene.made.log(each, 5, None, 0.01)) for each in "abc"]  # type: ignore[misc]
    told = [(error.code, error.exit_code) for error in errors]
    assert told == [("device.silent", 6), ("device.log_not_shared", 4), ("device.lost", 6)]
    assert scene.made._open == {}
