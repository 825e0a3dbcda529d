"""The accuracy that each device measured in the last test: the worst first, and the spread."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, pstdev

from rich.text import Text

from edgefed.events.base.device_rounds import last_tests
from edgefed.events.base.evaluation_views import DeviceTestView
from edgefed.terminal.units import counted
from edgefed.tui.look.text_format import bar, clean, cut_middle
from edgefed.tui.look.theme import MUTED, ORANGE, RULE, SKY
from edgefed.tui.panes.base.rows import RowsPane
from edgefed.tui.state.display_state import Shown

NO_TEST = (
    'No device has tested: a run whose recipe has evaluation.on = "devices" or "both" has this.'
)

_IDS = (6, 20)
"""Least and largest width of an id."""

_BAR = 8
_NUMBER = 6
"""Cells of a bar, and of an accuracy with the space before it."""

_BETWEEN = 4
"""Cells between two devices in a row."""

_FAR = 2.0
"""Standard deviations below the median from which a device is marked."""


class DeviceTestsPane(RowsPane[DeviceTestView]):
    """As many devices in a row as fit, the lowest accuracy first."""

    def heading(self, shown: Shown) -> str:
        """Return the worst device, and the number that tested."""
        tests = _tests(shown)
        if not tests:
            return "Accuracy by device"
        worst = tests[0]
        tested = f"{counted(len(tests), 'device')} in round {worst.round}"
        return f"Accuracy by device  worst: {clean(worst.device)} {worst.accuracy:.3f}  {tested}"

    def nothing(self, shown: Shown) -> str:
        """Return that there is no run, or that no device has tested in it."""
        return super().nothing(shown) or ("" if _tests(shown) else NO_TEST)

    def noun(self) -> str:
        """Return the noun for the items."""
        return "devices"

    def across(self, shown: Shown) -> int:
        """Return how many devices fit into a row."""
        return _across(_tests(shown), self.size.width)

    def head(self, shown: Shown, width: int) -> Text:
        """Return the spread."""
        return spread([test.accuracy for test in _tests(shown)])

    def items(self, shown: Shown) -> list[DeviceTestView]:
        """Return the devices that tested."""
        return _tests(shown)

    def rows(self, shown: Shown, width: int, items: Sequence[DeviceTestView]) -> list[Text]:
        """Return the devices, several in a row."""
        tests = _tests(shown)
        across, ids = _across(tests, width), _ids(tests)
        values = [test.accuracy for test in tests]
        low = median(values) - _FAR * pstdev(values)
        cells = [_device(test, ids, low) for test in items]
        gap = Text(" " * _BETWEEN)
        return [gap.join(cells[at : at + across]) for at in range(0, len(cells), across)]


def spread(values: Sequence[float]) -> Text:
    """Return the least, the median and the most of some accuracies, and their deviation."""
    facts = (("least", min(values)), ("median", median(values)), ("most", max(values)),
             ("standard deviation", pstdev(values)))  # fmt: skip
    return Text("  ").join(
        Text.assemble((f"{name} ", MUTED), f"{value:.3f}") for name, value in facts
    )


def _tests(shown: Shown) -> list[DeviceTestView]:
    return last_tests(shown.snapshot.tests) if shown.snapshot else []


def _ids(tests: Sequence[DeviceTestView]) -> int:
    longest = max((len(test.device) for test in tests), default=0)
    return min(_IDS[1], max(_IDS[0], longest))


def _across(tests: Sequence[DeviceTestView], width: int) -> int:
    cell = _ids(tests) + 1 + _BAR + _NUMBER
    return max(1, (width + _BETWEEN) // (cell + _BETWEEN))


def _device(test: DeviceTestView, ids: int, low: float) -> Text:
    full, empty = bar(test.accuracy, _BAR)
    colour = ORANGE if test.accuracy < low else SKY
    name = f"{cut_middle(clean(test.device), ids):<{ids}} "
    number = (f"{test.accuracy:>{_NUMBER}.3f}", ORANGE if colour == ORANGE else "")
    return Text.assemble(name, (full, colour), (empty, RULE), number)
