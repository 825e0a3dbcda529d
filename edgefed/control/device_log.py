"""Read the log of a device's agent through the coordinator: its end, then newer lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgefed.errors import WireError
from edgefed.terminal.printable import printable
from edgefed.wire.limits import MAX_LOG_LINES


@dataclass(frozen=True)
class LogPart:
    """Some lines of a log, oldest first, without characters that a terminal would obey.

    Attributes:
        missed: lines before them that were written and dropped since the last part.
        restarted: whether the agent was started again since the last part.
    """

    lines: tuple[str, ...]
    missed: int = 0
    restarted: bool = False


class DeviceLog:
    """The log of one device.

    Args:
        ask: sends a request, as ``CoordinatorClient.call`` does.
        device: of the log.
        timeout: seconds in which the device must answer.
    """

    def __init__(
        self, ask: Callable[[str, dict[str, Any]], Any], device: str, timeout: float
    ) -> None:
        self._ask = ask
        self._device = device
        self._timeout = timeout
        self._session = ""
        self._last = 0

    def tail(self, lines: int) -> LogPart:
        """Return the newest lines, and remember where they end.

        Raises:
            EdgeFedError: the device does not answer or does not share its log.
        """
        _, text_lines = self._read(lines, None)
        return LogPart(text_lines)

    def newer(self) -> LogPart:
        """Return lines that came since the last ones, as many as one answer holds.

        Raises:
            EdgeFedError: the device does not answer or does not share its log.
        """
        session, known = self._session, self._last
        first, lines = self._read(MAX_LOG_LINES, known)
        if self._session == session:
            return LogPart(lines, max(0, first - known - 1))
        self._session, self._last = session, known  # until the new agent's lines are read too
        first, lines = self._read(MAX_LOG_LINES, 0)
        return LogPart(lines, first - 1, restarted=True)

    def _read(self, lines: int, after: int | None) -> tuple[int, tuple[str, ...]]:
        arguments: dict[str, Any] = {"device": self._device, "lines": lines}
        answer = self._ask("device.log", {**arguments, "after": after, "timeout": self._timeout})
        try:
            self._session, first = str(answer["session"]), int(answer["first"])
            text_lines = tuple(printable(str(line)) for line in answer["lines"])
        except (KeyError, TypeError, ValueError) as error:
            raise WireError("The coordinator's response is invalid.") from error
        self._last = max(0, first + len(text_lines) - 1)
        return first, text_lines
