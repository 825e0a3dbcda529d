"""Challenges: short-lived tokens that prove that an order is recent.

A broker that was unreachable, or a client that repeats a message, may deliver an order long after
its sender gave up. An order therefore contains a challenge that the coordinator issued shortly
before, and each challenge is valid for one order of the user that requested it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from edgefed.errors import NotAllowedError
from edgefed.process.clock import Clock
from edgefed.wire.limits import CHALLENGE_SECONDS

MAX_OUTSTANDING = 128
"""Challenges of one user that are remembered; the oldest is dropped for a new one."""

MAX_TOTAL = 8192
"""Challenges of all users; for a new one, the oldest of the user with the most is dropped."""

MAX_USERS = 256
"""Users whose challenges are remembered; those of the user that asked longest ago are dropped."""


class Challenges:
    """Issues challenges and redeems each once; owned by one thread.

    Args:
        clock: its monotonic time decides expiry, so that no two clocks are compared.
        new_token: makes a random token.
    """

    def __init__(self, clock: Clock, new_token: Callable[[], str]) -> None:
        self._clock = clock
        self._new_token = new_token
        self._issued: OrderedDict[str, OrderedDict[str, float]] = OrderedDict()

    def issue(self, user: str) -> str:
        """Return a new token for an order of a user."""
        token = self._new_token()
        issued = self._issued.setdefault(user, OrderedDict())
        self._issued.move_to_end(user)
        if len(self._issued) > MAX_USERS:
            self._issued.popitem(last=False)
        issued[token] = self._clock.monotonic()
        if len(issued) > MAX_OUTSTANDING:
            issued.popitem(last=False)
        elif sum(map(len, self._issued.values())) > MAX_TOTAL:
            max(self._issued.values(), key=len).popitem(last=False)
        return token

    def redeem(self, token: str, user: str) -> None:
        """Use a token up.

        Raises:
            NotAllowedError: it is missing, unknown, used, expired, or another user's, whose it
                stays.
        """
        if not token:
            raise NotAllowedError(
                "The order contains no challenge.",
                code="challenge.missing",
                hint="install the same version of EdgeFed on both sides",
            )
        issued = self._issued.get(user, OrderedDict()).pop(token, None)
        if issued is None or self._clock.monotonic() - issued > CHALLENGE_SECONDS:
            raise NotAllowedError(
                "The order was not executed: it arrived too late, or for a second time.",
                code="challenge.expired",
                hint="send the order again",
            )
