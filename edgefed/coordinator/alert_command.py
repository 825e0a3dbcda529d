"""Send an alert to an operator's command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from edgefed.config.alert_settings import ALERT_PARTS

COMMAND_SECONDS = 30.0
"""Seconds after which a command is stopped."""

_MOST_SHOWN = 200


class AlertCommand:
    """Starts a command for each alert, without a shell, and waits for its end.

    Args:
        words: the program and its arguments.
        seconds: time limit of the command.
    """

    def __init__(self, words: Sequence[str], seconds: float = COMMAND_SECONDS) -> None:
        self._words = tuple(words)
        self._seconds = seconds
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def send(self, told: Mapping[str, Any]) -> str:
        """Run the command; return why it failed, empty when it did not.

        It reads the alert as JSON, and finds its parts in ``EDGEFED_ALERT_*`` too.
        """
        with tempfile.TemporaryFile() as body, tempfile.TemporaryFile() as said:
            body.write(json.dumps(told).encode())
            body.seek(0)
            try:
                process = self._start(body, said, _environment(told))
            except (OSError, ValueError) as error:
                return f"cannot be started: {getattr(error, 'strerror', None) or error}"
            if process is None:
                return "was not started: the coordinator ends"
            try:
                status = process.wait(self._seconds)
            except subprocess.TimeoutExpired:
                _kill(process)
                return f"was stopped after {self._seconds:g} s"
            finally:
                with self._guard:  # else it could be killed when its number is another one's
                    self._process = None
            return _outcome(status, said)

    def close(self) -> None:
        """Stop the running command, and start no other."""
        with self._guard:
            self._closed = True
            if self._process is not None:
                _kill(self._process)

    def _start(
        self, body: IO[bytes], said: IO[bytes], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | None:
        with self._guard:
            if self._closed:
                return None
            # A session of its own: what the command starts can be stopped with it.
            self._process = subprocess.Popen(
                self._words,
                stdin=body,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=environment,
                start_new_session=True,
            )
            return self._process


def _environment(told: Mapping[str, Any]) -> dict[str, str]:
    """Return our variables without our settings, which may hold a password, and the alert's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDGEFED_")}
    keys = {"NAME": "alert"}
    for part in ALERT_PARTS:
        text = str(told[keys.get(part, part.lower())])
        kept[f"EDGEFED_ALERT_{part}"] = text.replace("\0", " ")
    return kept


def _outcome(status: int, said: IO[bytes]) -> str:
    """Return how a command failed, with the last line of its output."""
    if status == 0:
        return ""
    said.seek(max(0, said.seek(0, os.SEEK_END) - 4096))
    lines = said.read().decode(errors="replace").strip().splitlines()
    last = f": {lines[-1][:_MOST_SHOWN]}" if lines else ""
    ended = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    return ended + last


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a command with all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()
