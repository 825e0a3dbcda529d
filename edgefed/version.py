"""Versions: of the program, of the protocol it speaks, and of torch in its tests."""

from __future__ import annotations

VERSION = "0.2.0.dev0"
BUILT = "2026-11-30T00:00:00Z"
"""A time before which no board runs this version: a lower bound for clocks that are behind."""

PROTOCOL = 7
"""Version of the wire; a message of a newer one is refused."""

OLDEST_PROTOCOL = 6
"""Oldest version of devices that a coordinator takes, so that it can be updated before them: that
before ``PROTOCOL``."""

FIRST_PROTOCOL = 6
"""Number of messages that say nothing newer; it stays, as devices of later versions send it too."""

TESTED_TORCH = "2.14"
"""Newest major and minor version of torch with which the whole test suite has passed. It limits no
installation: the ``doctor`` commands warn of a newer torch, whose private names may differ."""
