"""Names of the exchanges of secure aggregation, of the roles in them, and of their parameters."""

from __future__ import annotations

from itertools import count

from edgefed.config.recipes.secure_aggregation_section import SecureAggregationSection
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
"""The parameter of a ``fit`` task with the terms of masking, and the state's own parameter."""

FORM = 2
"""Version of these exchanges; a round that was begun in another one is restarted."""

HEADER = 3
"""Numbers before an update's values: its weight, its samples, and its loss times the samples."""

LOSS_BITS, MOST_LOSS = 16, 2.0**15
"""A loss is rounded to multiples of 2^-16, and cut off at this."""

SHARES_BYTES = 2 * SHARE_BYTES
"""The bytes from one device to another one: a share of its mask key and one of its seed."""

RELAY_BYTES = SHARES_BYTES + SEALED_EXTRA


def colluders_of(section: SecureAggregationSection, asked: int) -> int:
    """Return how many of the devices asked may collude with the coordinator."""
    if section.colluders >= 1:
        return int(section.colluders)
    # A share times the devices may come out just below a whole number
    return int(section.colluders * asked + 1e-6)


def least_threshold(asked: int, colluders: int) -> int:
    """Return the least threshold t of n devices at which c colluders uncover no update.

    They and the coordinator uncover it if t devices sign each of two lists, or if a sum has a
    single update beside their own: t is the least one with 2 t - n - 1 >= c and t - 2 >= c.
    """
    return max((asked + colluders) // 2 + 1, colluders + 2)


def fewest_devices(section: SecureAggregationSection) -> int:
    """Return the fewest devices of which as many as the threshold can be there to the end."""
    return next(asked for asked in count(2) if threshold_of(section, asked) <= asked)


def tolerated(asked: int, threshold: int) -> int:
    """Return how many colluders uncover no update; negative where even none do."""
    return min(2 * threshold - asked - 1, threshold - 2)


def threshold_of(section: SecureAggregationSection, asked: int) -> int:
    """Return how many of the devices asked are needed to the end of a round."""
    if section.threshold > 1:
        return int(section.threshold)
    share = -(-round(section.threshold * asked * 1e6) // 10**6)  # up, but for rounding errors
    return max(share, least_threshold(asked, colluders_of(section, asked)))
