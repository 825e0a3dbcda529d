"""How long an exchange waits for devices that were lost: ``rounds.lost_grace``."""

from __future__ import annotations

from collections.abc import Collection


def closing_time(
    deadline: float,
    grace: float | None,
    quorum_at: float | None,
    lost_since: Collection[float],
    working: int,
) -> float:
    """Return the monotonic second at which an exchange closes if no other reply arrives.

    An exchange with its quorum that waits only for lost devices closes when the last of them has
    had its grace, counted from the later of quorum and loss; any other one at its deadline.

    Args:
        deadline: of the exchange.
        grace: seconds for a lost device; None for as long as for any other one.
        quorum_at: when the quorum was reached; None before.
        lost_since: when each device that is lost, and still to answer, was lost.
        working: devices that are still to answer and are not lost.
    """
    if grace is None or quorum_at is None or working:
        return deadline
    return min(deadline, max(quorum_at, max(lost_since, default=quorum_at)) + grace)
