"""Judge a new version during its trial, by another version: a broken one cannot judge itself."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from device_agent.updater.agent_process import SignsOfLife
from device_agent.updater.state import TrialLimits

PASSED = "passed"


@dataclass
class VersionTrial:
    """The trial of one process, in monotonic seconds.

    Args:
        limits: its times.
        begun: when the process was started.
    """

    limits: TrialLimits
    begun: float

    def __post_init__(self) -> None:
        self._signs = SignsOfLife()
        self._heard = self._looked = self.begun
        self._away = 0.0
        self._connected: float | None = None

    def verdict(self, signs: SignsOfLife, code: int | None, broker: bool, now: float) -> str:
        """Return ``passed``, why the version fails, or an empty text while it is undecided.

        Args:
            signs: the last signs of life.
            code: exit code; None while it runs.
            broker: whether the broker answers; time without it counts against nobody.
            now: the monotonic second.
        """
        limits = self.limits
        if signs != self._signs:
            self._signs, self._heard = signs, now
        self._note_connection(signs, broker, now)
        if code is not None:
            return f"it ended with exit code {code}"
        if signs.problem:
            return signs.problem
        if not signs.store and now - self.begun > limits.start:
            return f"it did not start within {limits.start:g} s"
        if signs.store and now - self._heard > limits.silence:
            return f"it gave no sign of life for {limits.silence:g} s"
        if not signs.probe and now - self.begun > limits.probe:
            return f"it did not train the probe task within {limits.probe:g} s"
        if self._away > limits.connect:
            return f"it did not connect within {limits.connect:g} s to the broker, which answers"
        stayed = self._connected is not None and now - self._connected >= limits.stay
        return PASSED if signs.store and signs.probe and stayed else ""

    def _note_connection(self, signs: SignsOfLife, broker: bool, now: float) -> None:
        if signs.connected:
            self._connected = now if self._connected is None else self._connected
        else:
            self._connected = None
            self._away += now - self._looked if broker and signs.store else 0.0
        self._looked = now


def answers(host: str, port: int, timeout: float = 2.0) -> bool:
    """Whether something accepts connections at the broker's address."""
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError:
        return False
    return True
