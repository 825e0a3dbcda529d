"""When an exchange closes that waits for lost devices: worked out by hand."""

from __future__ import annotations

import pytest

from edgefed.coordinator.exchanges.awaited_replies import closing_time


@pytest.mark.parametrize(
    ("grace", "quorum_at", "lost_since", "working", "closes"),
    [
        (30.0, 100.0, [90.0], 0, 130.0),  # the quorum came after the loss
        (30.0, 100.0, [90.0, 110.0, 95.0], 0, 140.0),  # the last loss came after the quorum
        (30.0, 100.0, [], 0, 130.0),
        (30.0, 100.0, [90.0], 1, 300.0),  # another device still works
        (30.0, None, [90.0], 0, 300.0),  # without its quorum it waits for every device
        (None, 100.0, [90.0], 0, 300.0),  # "deadline"
        (30.0, 280.0, [290.0], 0, 300.0),  # never after the deadline
        (0.0, 100.0, [90.0], 0, 100.0),
    ],
)
def test_the_grace_counts_from_the_later_of_quorum_and_loss(
    grace: float | None,
    quorum_at: float | None,
    lost_since: list[float],
    working: int,
    closes: float,
) -> None:
    assert closing_time(300.0, grace, quorum_at, lost_since, working) == closes
