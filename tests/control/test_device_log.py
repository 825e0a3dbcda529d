"""Reading a log step by step: its end, what is newer, what was missed, and restarts."""

from __future__ import annotations

from typing import Any

import pytest

from edgefed.cli.common.context import Globals
from edgefed.cli.fleet import device_diagnostics
from edgefed.control.device_log import DeviceLog, LogPart
from edgefed.errors import NotAllowedError, TimeLimitError, WireError


class Coordinator:
    """Answers from a log of its own, as an agent with room for so many lines would."""

    def __init__(self, *lines: str, size: int = 100) -> None:
        self.lines, self.session, self.size = list(lines), "1" * 8, size
        self.asked: list[dict[str, Any]] = []

    def __call__(self, action: str, arguments: dict[str, Any]) -> Any:
        assert action == "device.log"
        assert (arguments["device"], arguments["timeout"]) == ("d-1", 2.0)
        self.asked.append(arguments)
        count, after, most = len(self.lines), arguments["after"], arguments["lines"]
        if after is None:
            first = max(0, count - most) + 1
        else:
            first = max(count - self.size, min(after, count)) + 1
        found = self.lines[first - 1 :][:most]
        return {"session": self.session, "first": first, "lines": found}


def test_the_end_then_what_is_newer() -> None:
    there = Coordinator("a", "b", "c")
    log = DeviceLog(there, "d-1", 2.0)
    assert log.tail(2) == LogPart(("b", "c"))
    assert log.newer() == LogPart(())
    there.lines += ["d", "e"]
    assert log.newer() == LogPart(("d", "e"))
    assert [each["after"] for each in there.asked] == [None, 3, 3]


def test_lines_that_came_and_went_are_counted() -> None:
    there = Coordinator("a", size=2)
    log = DeviceLog(there, "d-1", 2.0)
    log.tail(5)
    there.lines += ["b", "c", "d", "e"]
    assert log.newer() == LogPart(("d", "e"), missed=2)


def test_an_agent_that_was_started_again_is_read_from_its_beginning() -> None:
    there = Coordinator(*"abcdef")
    log = DeviceLog(there, "d-1", 2.0)
    log.tail(3)
    there.session, there.lines = "2" * 8, ["x", "y"]
    assert log.newer() == LogPart(("x", "y"), restarted=True)
    there.lines.append("z")
    assert log.newer() == LogPart(("z",))


def test_an_agent_that_is_lost_again_while_it_is_read_costs_no_line() -> None:
    there = Coordinator(*"abcdef")
    lost = False

    def ask(action: str, arguments: dict[str, Any]) -> Any:
        nonlocal lost
        if lost and arguments["after"] == 0:
            lost = False
            raise TimeLimitError("Device d-1 is lost.", code="device.lost", hint="")
        return there(action, arguments)

    log = DeviceLog(ask, "d-1", 2.0)
    log.tail(3)
    there.session, there.lines, lost = "2" * 8, ["x", "y"], True
    with pytest.raises(TimeLimitError):
        log.newer()
    assert log.newer() == LogPart(("x", "y"), restarted=True)


def test_lines_are_shown_without_control_characters() -> None:
    log = DeviceLog(Coordinator("a\x1b[2Jb\r\nc\u202e"), "d-1", 2.0)
    assert log.tail(1).lines == ("a [2Jb  c ",)


def test_an_answer_that_is_none_is_refused() -> None:
    log = DeviceLog(lambda action, arguments: {"lines": 3}, "d-1", 2.0)
    with pytest.raises(WireError):
        log.tail(1)


def test_a_device_with_wrong_numbers_is_still_asked_what_an_agent_takes() -> None:
    asked: list[dict[str, Any]] = []

    def ask(action: str, arguments: dict[str, Any]) -> Any:
        asked.append(arguments)
        return {"session": "1" * 8, "first": 0, "lines": []}

    log = DeviceLog(ask, "d-1", 2.0)
    log.tail(1)
    log.newer()
    assert asked[1]["after"] == 0


def test_following_ends_with_an_error_that_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_diagnostics, "FOLLOW_EVERY", 0.0)
    errors = [
        TimeLimitError("Device d-1 is lost.", code="device.lost", hint=""),
        NotAllowedError("The owner of d-1 shares no log.", code="device.log_not_shared", hint=""),
    ]

    def ask(action: str, arguments: dict[str, Any]) -> Any:
        raise errors.pop(0)

    with pytest.raises(NotAllowedError):
        device_diagnostics._follow(Globals(), DeviceLog(ask, "d-1", 2.0), "d-1")
    assert errors == []
