"""Which certificate of the coordinator is the newest that this device has seen.

When the coordinator's keys are rotated, the authority issues another certificate, valid from a
later moment than the one before. A device that has seen it accepts the older one no longer, so that
whoever copied the old key cannot use it. The moment is kept in a file, across restarts.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from edgefed.errors import StorageError
from edgefed.files import write_atomic
from edgefed.trust.certificates import Certificate


class NewestCertificate:
    """Remembers the newest certificate of one role; owned by one thread.

    Args:
        path: the file that keeps its moment.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._since = _read(path)

    def is_superseded(self, certificate: Certificate) -> bool:
        """Whether a certificate is older than the newest that was seen; notes a newer one.

        Call it for certificates that the authority issued only.

        Raises:
            StorageError: a newer one cannot be noted; it is accepted once it can.
        """
        if certificate.not_before < self._since:
            return True
        if certificate.not_before > self._since:
            write_atomic(self._path, certificate.not_before.isoformat().encode())
            self._since = certificate.not_before
        return False


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
            hint="delete the file; the device then accepts every certificate of its coordinator",
        ) from error
