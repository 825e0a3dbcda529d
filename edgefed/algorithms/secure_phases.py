"""Names of the exchanges of secure aggregation, of the roles in them, and of their parameters."""

from __future__ import annotations

from edgefed.config.secure_aggregation_section import SecureAggregationSection
from edgefed.sharing.pairwise_keys import SEALED_EXTRA
from edgefed.sharing.shamir import SHARE_BYTES

KEYS, SHARES, FIT, LISTS, UNMASK = (
    "secure_keys",
    "secure_shares",
    "fit",
    "secure_lists",
    "secure_unmask",
)
"""The exchanges: devices advertise keys, share secrets, send masked updates, sign the list of
updates that are summed (only where devices have certificates), and uncover the sum."""

ADVERTISED, COMMITMENTS, MASKED, SIGNED, UNCOVERED = (
    "keys",
    "commitments",
    "masked",
    "signature",
    "shares",
)
"""The role of each exchange's answers."""

SECURE = "secure"
"""The parameter of a ``fit`` task that says what to mask for, and the state's own parameter."""

HEADER = 3
"""Numbers before an update's values: its weight, its samples, and its loss times the samples."""

LOSS_BITS, MOST_LOSS = 16, 2.0**15
"""A loss is rounded to multiples of 2^-16, and cut off at this."""

SHARES_BYTES = 2 * SHARE_BYTES
"""What one device sends to another one: a share of its mask key and one of its seed."""

RELAY_BYTES = SHARES_BYTES + SEALED_EXTRA


def threshold_of(section: SecureAggregationSection, asked: int) -> int:
    """Return how many of the devices asked are needed: from 2, and more than half of them."""
    if section.threshold > 1:
        return int(section.threshold)
    share = -(-round(section.threshold * asked * 1e6) // 10**6)  # up, but for rounding errors
    return max(2, share, asked // 2 + 1)
