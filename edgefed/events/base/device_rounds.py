"""The devices in a run's rounds: outcomes, times, tests, and those that are waited for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgefed.events.base.evaluation_views import DeviceTestView
from edgefed.events.base.snapshot import DeviceRoundView, DeviceSnapshot, RunView, WaitingView
from edgefed.terminal.units import counted

NO_TEST: dict[str, Any] = {"accuracy": None, "accuracy_round": 0}
"""The fields of a device without a test."""


def device_test(fields: Mapping[str, Any]) -> DeviceTestView | None:
    """Return the test in a ``reply`` event; None for a reply without one.

    Raises:
        KeyError, ValueError: a field is missing or wrong.
    """
    if fields.get("accuracy") is None:
        return None
    return DeviceTestView.model_validate(
        {name: fields[name] for name in DeviceTestView.model_fields}
    )


class LastDeviceTests:
    """The last test of each device in the current run; a change takes constant time.

    Args:
        tests: those before the first event.
    """

    def __init__(self, tests: Iterable[DeviceTestView]) -> None:
        self._tests = {test.device: test for test in tests}
        self._sorted: tuple[DeviceTestView, ...] | None = None

    def put(self, test: DeviceTestView) -> None:
        """Replace a device's test, unless it has tested a later round."""
        before = self._tests.get(test.device)
        if before is None or before.round <= test.round:
            self._tests[test.device] = test
            self._sorted = None

    def clear(self) -> None:
        """Forget all tests, because another run begins."""
        self._tests, self._sorted = {}, None

    def rows(self) -> tuple[DeviceTestView, ...]:
        """Return the tests sorted by device."""
        if self._sorted is None:
            self._sorted = tuple(self._tests[device] for device in sorted(self._tests))
        return self._sorted

    def of_device(self, device: str) -> dict[str, Any]:
        """Return the fields of a ``DeviceView`` about a device's test."""
        test = self._tests.get(device)
        if test is None:
            return NO_TEST
        return {"accuracy": test.accuracy, "accuracy_round": test.round}


def last_tests(tests: Iterable[DeviceTestView]) -> list[DeviceTestView]:
    """Return the tests of the last tested round, the lowest accuracy first."""
    every = list(tests)
    newest = max((test.round for test in every), default=0)
    of_round = [test for test in every if test.round == newest]
    return sorted(of_round, key=lambda test: (test.accuracy, test.device))


MAX_DEVICE_ROUNDS = 60
"""Rounds that are kept of each device."""

WORST_LAST = ("accepted", "late", "lost", "refused", "rejected", "failed")
"""Outcomes; of several in one round, which has several exchanges, the worst counts."""

ASKING = ("broadcast", "collect")
"""Phases in which the open exchange waits for answers."""


def with_reply(view: DeviceSnapshot, fields: Mapping[str, Any]) -> tuple[DeviceRoundView, ...]:
    """Return a device's rounds after a ``reply``: its worst outcome, and the time of all."""
    number, outcome = int(fields["round"]), fields["outcome"]
    seconds = float(fields.get("seconds") or 0.0)
    if not view.rounds or number > view.rounds[-1].round:
        row = DeviceRoundView(round=number, outcome=outcome, seconds=seconds)
        return (*view.rounds, row)[-MAX_DEVICE_ROUNDS:]
    known = {row.round: row for row in view.rounds}  # a late reply belongs to an earlier one
    if number in known:
        outcome = max(known[number].outcome, outcome, key=WORST_LAST.index)
        seconds += known[number].seconds
    known[number] = DeviceRoundView(round=number, outcome=outcome, seconds=seconds)
    return tuple(known[round_number] for round_number in sorted(known))[-MAX_DEVICE_ROUNDS:]


def with_loss(view: DeviceSnapshot, run: RunView | None) -> tuple[DeviceRoundView, ...]:
    """Return a device's rounds after it is lost: the round that waits for it counts it as lost."""
    if run is None or not waits_for(view, run):
        return view.rounds
    return with_reply(view, {"round": run.round, "outcome": "lost"})


def waits_for(view: DeviceSnapshot, run: RunView) -> bool:
    """Whether the open exchange of a run has asked a device that has not answered."""
    asked = run.phase in ASKING and bool(run.exchange) and view.exchange == run.exchange
    return asked and view.replied != run.exchange


MOST_NAMED = 3
"""Devices that a line names; of the others it tells how many there are."""


def without(waiting: WaitingView | None, device: str) -> WaitingView | None:
    """Return the waited-for devices without ``device``, which has answered; None for none."""
    if waiting is None:
        return None
    lost = tuple(name for name in waiting.lost if name != device)
    online = tuple(name for name in waiting.online if name != device)
    named = len(lost) + len(online) < len(waiting.lost) + len(waiting.online)
    more = waiting.more if named else max(0, waiting.more - 1)
    if not lost and not online and not more:
        return None
    return waiting.model_copy(update={"lost": lost, "online": online, "more": more})


def waiting_until(waiting: WaitingView) -> str:
    """Return the devices and the time of day in UTC until which they are waited for."""
    return f"{waiting_in_words(waiting)}, until {waiting.until[11:19]} UTC"


def waiting_in_words(waiting: WaitingView, most: int = MOST_NAMED) -> str:
    """Return the devices, the lost ones first, such as ``dev-3 (lost), dev-7 and 2 more``."""
    names = [*(f"{device} (lost)" for device in waiting.lost), *waiting.online]
    more = waiting.more + len(names[most:])
    named = ", ".join(names[:most])
    if not more:
        return named
    if named:
        return f"{named} and {more} more"
    return counted(more, "device")
