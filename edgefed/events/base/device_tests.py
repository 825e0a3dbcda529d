"""The accuracy that each device measured when it was asked to evaluate, and its fold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgefed.events.base.evaluation_views import DeviceTestView

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


class DeviceTests:
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
        found = self._tests.get(device)
        if found is None:
            return NO_TEST
        return {"accuracy": found.accuracy, "accuracy_round": found.round}


def last_tests(tests: Iterable[DeviceTestView]) -> list[DeviceTestView]:
    """Return the tests of the last tested round, the lowest accuracy first."""
    every = list(tests)
    newest = max((test.round for test in every), default=0)
    of_round = [test for test in every if test.round == newest]
    return sorted(of_round, key=lambda test: (test.accuracy, test.device))
