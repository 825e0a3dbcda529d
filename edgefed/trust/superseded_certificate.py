"""The newest certificate of the coordinator that this device has seen.

When the coordinator's keys are replaced, the authority issues another certificate, valid from a
later moment than the one before. A device that has seen it no longer accepts the older one, so that
a copy of the old key is useless. The moment is kept in a file, across restarts.
"""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from pathlib import Path

from edgefed.errors import StorageError
from edgefed.files.writing import write_atomic
from edgefed.process.clock import Clock
from edgefed.trust.certificates import Certificate
from edgefed.trust.signatures import Verifier

log = logging.getLogger(__name__)


COORDINATOR_SINCE = "coordinator-since"
"""Name of the file."""


class NewestCertificate:
    """Remembers the newest certificate of one role; owned by one thread.

    Args:
        path: the file that keeps its moment.
        clock: to ignore certificates of the future, from a coordinator whose clock was ahead.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._since = self._saved = _read(path)

    def is_superseded(self, certificate: Certificate) -> bool:
        """Whether a certificate is older than the newest that was seen; stores a newer one.

        Call it only for certificates that the authority issued. A newer one that cannot be stored
        counts in this process, and the write is repeated with the next message.
        """
        if certificate.not_before < self._since:
            return True
        if certificate.not_before > self._clock.now():
            return False
        self._since = certificate.not_before
        if self._since != self._saved:
            self._save()
        return False

    def _save(self) -> None:
        try:
            write_atomic(self._path, self._since.isoformat().encode())
            self._saved = self._since
        except StorageError as error:
            log.warning("the coordinator's next certificate was not noted: %s", error.as_line())


def verifier_of_coordinator(authority: Certificate, path: Path, clock: Clock) -> Verifier:
    """Return a verifier of the coordinator's messages, which accepts its newest certificate only.

    Args:
        authority: of the fleet.
        path: the file that keeps the moment of its newest certificate.
        clock: this machine's.

    Raises:
        StorageError: that file is damaged.
    """
    newest = NewestCertificate(path, clock)

    def is_revoked(certificate: Certificate) -> bool:
        return certificate.role == "coordinator" and newest.is_superseded(certificate)

    return Verifier(authority, is_revoked)


def _read(path: Path) -> datetime:
    """Return the moment in the file; the beginning of time where there is none."""
    try:
        return datetime.fromisoformat(path.read_text()).astimezone(timezone.utc)
    except FileNotFoundError:
        return datetime.min.replace(tzinfo=timezone.utc)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{path} is damaged.",
            code="storage.damaged",
            hint="delete the file; this party then accepts every certificate of its coordinator",
        ) from error
