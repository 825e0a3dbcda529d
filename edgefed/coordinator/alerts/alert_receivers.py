"""Receivers of alerts: a command and a webhook of the operator, each in a thread of its own."""

from __future__ import annotations

import http.client
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Protocol

from edgefed.config.fleet.alert_settings import ALERT_PARTS
from edgefed.version import VERSION

MOST_WAITING = 16
"""Alerts that wait for a receiver; more than these are left out."""

STOP_SECONDS = 2.0
"""Seconds for which alerts are still carried when the coordinator ends."""


class AlertReceiver(Protocol):
    """Receives alerts."""

    def send(self, alert: Mapping[str, Any]) -> str:
        """Send an alert; return why that failed, empty on success."""
        ...

    def close(self) -> None:
        """Abandon the alert that is being sent."""
        ...


class AlertCourier:
    """Hands alerts to a receiver, one after the other; ``give`` never blocks.

    Args:
        name: of the receiver, used in warnings.
        receiver: receives the alerts.
        warn: called with a warning when the receiver fails.
    """

    def __init__(self, name: str, receiver: AlertReceiver, warn: Callable[[str], None]) -> None:
        self._name = name
        self._receiver = receiver
        self._warn = warn
        self._waiting: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._carry, name=f"alert {name}", daemon=True)
        self._thread.start()

    def give(self, alert: Mapping[str, Any]) -> None:
        """Queue an alert for the receiver."""
        if self._waiting.qsize() >= MOST_WAITING:
            self._warn(f"{self._name} of an alert: too many wait; one was left out")
        else:
            self._waiting.put(alert)

    def stop(self) -> None:
        """End; queued alerts are still sent if their receiver takes them soon."""
        self._waiting.put(None)
        self._thread.join(STOP_SECONDS)
        self._receiver.close()
        self._thread.join(STOP_SECONDS)

    def _carry(self) -> None:
        while (alert := self._waiting.get()) is not None:
            try:
                problem = self._receiver.send(alert)
            except Exception as error:  # a bug in it costs an alert, not those that follow
                problem = f"failed: {type(error).__name__}: {error}"
            if problem:
                self._warn(f"{self._name} of an alert {problem}")


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

    def send(self, alert: Mapping[str, Any]) -> str:
        """Run the command; return why it failed, empty when it did not.

        It reads the alert as JSON, and finds its parts in ``EDGEFED_ALERT_*`` too.
        """
        with tempfile.TemporaryFile() as body, tempfile.TemporaryFile() as said:
            body.write(json.dumps(alert).encode())
            body.seek(0)
            try:
                process = self._start(body, said, _environment(alert))
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


def _environment(alert: Mapping[str, Any]) -> dict[str, str]:
    """Return our variables without our settings, which may hold a password, and the alert's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDGEFED_")}
    keys = {"NAME": "alert"}
    for part in ALERT_PARTS:
        text = str(alert[keys.get(part, part.lower())])
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


WEBHOOK_SECONDS = 10.0
"""Time limit of a request in seconds."""

RETRY_AFTER = 2.0
"""Seconds before an alert that did not arrive is posted once more."""


class AlertWebhook:
    """Posts each alert as JSON; once more if there is no answer, or the server has an error.

    Args:
        address: ``http://`` or ``https://``.
        seconds: time limit of one attempt.
        retry_after: seconds between the two attempts.
    """

    def __init__(
        self, address: str, seconds: float = WEBHOOK_SECONDS, retry_after: float = RETRY_AFTER
    ) -> None:
        self._address = address
        self._seconds = seconds
        self._retry_after = retry_after
        self._closed = threading.Event()
        self._opener = urllib.request.build_opener(_NoRedirect)

    def send(self, alert: Mapping[str, Any]) -> str:
        """Post an alert; return why it failed, empty when it did not."""
        problem, again = self._post(alert)
        if again and not self._closed.wait(self._retry_after):
            problem, _ = self._post(alert)
        return problem

    def close(self) -> None:
        """Post nothing once more."""
        self._closed.set()

    def _post(self, alert: Mapping[str, Any]) -> tuple[str, bool]:
        """Return why an attempt failed, and whether another one may do better."""
        head = {"Content-Type": "application/json", "User-Agent": f"edgefed/{VERSION}"}
        body = json.dumps(alert).encode()
        try:
            request = urllib.request.Request(self._address, body, head, method="POST")
            with self._opener.open(request, timeout=self._seconds):
                return "", False
        except urllib.error.HTTPError as error:
            error.close()
            return f"answered {error.code}", error.code >= 500
        except urllib.error.URLError as error:
            return f"cannot be reached: {_reason(error.reason)}", True
        except (OSError, http.client.HTTPException) as error:
            return f"did not answer: {_reason(error)}", True
        except ValueError as error:
            return f"cannot be used: {error}", False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, because the posted data would be lost."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any,
        newurl: str,
    ) -> None:  # fmt: skip
        """Return nothing, so that the redirect is an error."""


def _reason(error: object) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
