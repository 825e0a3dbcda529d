"""The earlier sessions of this agent, whose births are not those of another agent.

A broker may deliver an old birth again, with a valid signature. Without a record of its own
sessions, an agent would take it for another one of its name, and stop.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from edgefed.errors import StorageError
from edgefed.files import write_atomic

log = logging.getLogger(__name__)

FILE = "lives"
"""In the agent's state folder; a session a line, the latest last."""

MAX_LIVES = 4096
"""Lives that are remembered."""

_SESSION = re.compile(r"[0-9a-f]{8,32}")


class EarlierLives:
    """The sessions of this agent before the present one; owned by one thread.

    Args:
        folder: the agent's state folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._sessions = dict.fromkeys(_read(self._path))

    def __contains__(self, session: object) -> bool:
        return session in self._sessions

    def begin(self, session: str) -> None:
        """Store the present session, before its birth is published.

        If the disk does not take it, only the later protection from its births is lost.
        """
        lines = [*self._sessions, session][-MAX_LIVES:]
        try:
            write_atomic(self._path, "".join(f"{line}\n" for line in lines).encode())
        except StorageError as error:
            log.warning("this life was not written down: %s", error.message)


def _read(path: Path) -> list[str]:
    try:
        return _SESSION.findall(path.read_text(errors="replace"))
    except OSError:
        return []
