"""Token buckets: how many messages each of many senders may send, in constant time and memory."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

MAX_COUNTED = 256
"""Senders whose refused messages are counted one by one; those of others are counted together."""

OTHERS = "other senders"


@dataclass(frozen=True)
class Rate:
    """The rate limit of a sender.

    Attributes:
        per_second: tokens that a bucket gains in a second.
        burst: tokens that it holds at most, and at first.
    """

    per_second: float
    burst: float


class TokenBucket:
    """The tokens of one sender."""

    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._tokens = rate.burst
        self._at = now

    def take(self, cost: float, now: float) -> bool:
        """Take tokens, or all of a full bucket; return whether there were enough."""
        rate = self._rate
        gained = max(0.0, now - self._at) * rate.per_second
        self._tokens = min(rate.burst, self._tokens + gained)
        self._at = now
        needed = min(cost, rate.burst)
        if self._tokens < needed:
            return False
        self._tokens -= needed
        return True

    def charge(self, cost: float, now: float) -> None:
        """Take tokens even if there are fewer; ``take`` then fails until they are regained."""
        self.take(0.0, now)
        self._tokens -= cost


class Buckets:
    """A bucket for each sender; the least recently used one is dropped if there are too many.

    Args:
        rate: of each sender.
        most: senders that have a bucket at one time.
    """

    def __init__(self, rate: Rate, most: int) -> None:
        self._rate = rate
        self._most = most
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __contains__(self, sender: str) -> bool:
        return sender in self._buckets

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, sender: str, cost: float, now: float) -> bool:
        """Take tokens from a sender's bucket, which is made if it has none."""
        return self._of(sender, now).take(cost, now)

    def charge(self, sender: str, cost: float, now: float) -> None:
        """Take tokens from a sender's bucket even if it has fewer."""
        self._of(sender, now).charge(cost, now)

    def _of(self, sender: str, now: float) -> TokenBucket:
        bucket = self._buckets.get(sender)
        if bucket is None:
            bucket = self._buckets[sender] = TokenBucket(self._rate, now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(sender)
        return bucket


class RefusalCounts:
    """Counts refused messages by sender, in bounded memory."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, sender: str) -> None:
        """Count a message of a sender."""
        if sender not in self._counts and len(self._counts) >= MAX_COUNTED:
            sender = OTHERS
        self._counts[sender] = self._counts.get(sender, 0) + 1

    def most(self) -> dict[str, int]:
        """Return the counts, the largest first."""
        return dict(sorted(self._counts.items(), key=lambda item: (-item[1], item[0])))


def cost_of(payload: bytes) -> float:
    """Return how many tokens a message takes: reading a large one takes longer."""
    return 1 + len(payload) // 4096
