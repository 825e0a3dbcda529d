"""Detect another agent with the same name; the one that connected later stops.

A broker may deliver an old birth of this agent once more, and its signature is right. The agent
therefore remembers its earlier sessions and ignores their births.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Container
from pathlib import Path
from typing import Literal

from edgefed.errors import StorageError
from edgefed.files.writing import write_atomic
from edgefed.wire.messages import Birth

NEWCOMER = 5.0
"""Seconds after its first connection in which an agent is the newcomer."""

STUBBORN = 3
"""Births after which another agent is no newcomer either."""

LASTING = 60.0
"""Seconds after which a connection was not ended by another agent of this name."""

_TURNS = {(True, True): 1, (True, False): 3, (False, True): 5}
"""How often an agent finds its birth replaced before it yields, by whether it is a newcomer and has
the greater session; without an entry it never does. Two apart, so that the one that stays is not at
its own end when it finds the will of the other for the last time."""

Reaction = Literal["ignore", "restore", "answer", "yield"]
"""The reaction to a birth: ignore it; publish ours, which it may have replaced; publish ours,
because another agent may be there; stop."""


class DuplicateNameGuard:
    """Judges births on our own topic; owned by one thread.

    A birth that is not ours is answered with ours, so a newcomer hears from the earlier agent and
    yields. Of two newcomers, or of two old ones that a broken network kept apart, the one with the
    greater session yields. No clocks are compared, and a few messages settle it.

    A broker with TLS lets only one of them be connected at a time. Each then finds the other's
    retained birth or will in place of its own when it connects again.

    Args:
        session: ours.
        earlier: the sessions of our earlier processes, whose births may be sent again.
    """

    def __init__(self, session: str, earlier: Container[str] = ()) -> None:
        self._session = session
        self._earlier = earlier
        self._since: float | None = None
        self._met: Counter[str] = Counter()
        self._displaced: Counter[str] = Counter()
        self._was_newcomer: set[str] = set()
        self._heard = False
        self._connected = 0.0

    def connected(self, now: float) -> None:
        """Note a connection at monotonic second ``now``."""
        self._since = now if self._since is None else self._since
        self._met.clear()
        if now - self._connected > LASTING:
            self._displaced.clear()
            self._was_newcomer.clear()
        self._connected = now

    def meet(self, birth: Birth, now: float, *, live: bool) -> Reaction:
        """Return the reaction to a birth; a retained one may be of a session that is over."""
        if birth.session == self._session:
            self._heard = True
            return "ignore"
        if birth.session in self._earlier:
            return "restore"
        if not live:
            return self._displaced_by(birth, now)
        if birth.status == "lost":
            return (
                "answer"  # the will of another life, or of another connection, replaced our birth
            )
        self._met[birth.session] += 1
        newcomer = self._is_newcomer(now)
        if newcomer and birth.session < self._session:
            return "yield"
        return self._judge(birth, self._met[birth.session], newcomer)

    def _displaced_by(self, birth: Birth, now: float) -> Reaction:
        """Return the reaction to a retained birth that replaced ours."""
        if not self._heard:
            return "ignore"  # of a life before ours
        self._displaced[birth.session] += 1
        if self._displaced[birth.session] == 1 and self._is_newcomer(now):
            self._was_newcomer.add(birth.session)
        newcomer, greater = birth.session in self._was_newcomer, birth.session < self._session
        patience = _TURNS.get((newcomer, greater))
        if patience is None or self._displaced[birth.session] <= patience:
            return "answer"
        return "yield"

    def _judge(self, birth: Birth, times: int, newcomer: bool) -> Reaction:
        if times <= (1 if newcomer else STUBBORN):
            return "answer"
        return "yield" if newcomer or birth.session < self._session else "answer"

    def _is_newcomer(self, now: float) -> bool:
        return self._since is None or now - self._since < NEWCOMER


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
