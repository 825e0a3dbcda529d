"""Break bytes and values at random, from a seed."""

from __future__ import annotations

import random
import struct
from typing import Any

HUGE = (0, 1, -1, 7, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64, 10**30)
"""Numbers at which something tends to break."""

TEXTS = ("", "a", "ä", "\x00", "\u202e", "x" * 129, "x" * 5000, "../..", "a/b", "+", "#", "NaN")


def broken(data: bytes, draws: random.Random) -> bytes:
    """Return bytes with a few changed, cut out, doubled, or replaced by a number."""
    changed = bytearray(data)
    for _ in range(draws.choice((1, 1, 2, 5, 20))):
        at = draws.randrange(len(changed) + 1)
        what = draws.randrange(4)
        if what == 0 and at < len(changed):
            changed[at] = draws.randrange(256)
        elif what == 1:
            number = draws.choice(HUGE) & (2**32 - 1)
            changed[at : at + 4] = struct.pack(draws.choice("<>") + "I", number)
        elif what == 2:
            del changed[at : at + draws.randrange(1, 40)]
        else:
            changed[at:at] = changed[at : at + draws.randrange(1, 40)]
    return bytes(changed)


def strange_value(draws: random.Random, depth: int = 0) -> Any:
    """Return a value that a msgpack body can hold and a field may not expect."""
    if depth < 3 and draws.random() < 0.3:
        return _nested(draws, depth)
    plain = (
        draws.choice([n for n in HUGE if -(2**63) <= n < 2**64]),
        draws.choice(TEXTS),
        draws.choice((None, True, False)),
        draws.choice((0.5, -0.0, 1e308, float("nan"), float("inf"), -1e-320)),
        draws.randbytes(draws.choice((0, 1, 40, 3000))),
        f"{draws.getrandbits(256):064x}",
    )
    return draws.choice(plain)


def _nested(draws: random.Random, depth: int) -> Any:
    inner = [strange_value(draws, depth + 1) for _ in range(draws.choice((0, 1, 2, 5)))]
    kind = draws.randrange(3)
    if kind == 0:
        return {draws.choice(TEXTS): value for value in inner}
    if kind == 1:
        return inner
    deep: Any = 1
    for _ in range(draws.choice((3, 11, 13, 200))):
        deep = [deep]
    return deep
