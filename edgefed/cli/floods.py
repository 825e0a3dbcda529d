"""Describe the senders of more messages than the coordinator reads."""

from __future__ import annotations

from collections.abc import Mapping

MOST = 3
"""Senders that are named."""


def in_words(refused: Mapping[str, int]) -> str:
    """Return how many messages were not read, and the sender of most of them.

    Args:
        refused: messages by sender, the largest number first.
    """
    named = [f"{sender} {count}" for sender, count in list(refused.items())[:MOST]]
    more = len(refused) - len(named)
    senders = ", ".join([*named, *([f"{more} more"] if more else [])])
    return f"{sum(refused.values())} messages were not read: {senders}"
