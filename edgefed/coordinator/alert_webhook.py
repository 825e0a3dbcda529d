"""Send an alert to an operator's webhook."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import IO, Any

from edgefed.version import VERSION

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

    def send(self, told: Mapping[str, Any]) -> str:
        """Post an alert; return why it failed, empty when it did not."""
        problem, again = self._post(told)
        if again and not self._closed.wait(self._retry_after):
            problem, _ = self._post(told)
        return problem

    def close(self) -> None:
        """Post nothing once more."""
        self._closed.set()

    def _post(self, told: Mapping[str, Any]) -> tuple[str, bool]:
        """Return why an attempt failed, and whether another one may do better."""
        head = {"Content-Type": "application/json", "User-Agent": f"edgefed/{VERSION}"}
        body = json.dumps(told).encode()
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
