"""An agent that speaks the protocol version before, where a variable of its environment says so.

Its messages lack what is newer, and it refuses newer messages.
"""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import ANY

from device_agent.commands.cli import main
from edgefed.version import OLDEST_PROTOCOL
from edgefed.wire import envelope
from edgefed.wire.messages import Message

VARIABLE = "OLDER_AGENT"


def newer_fields(model: type[Message]) -> tuple[tuple[str, int, Any], ...]:
    """Return the newer fields with a default that equals every value: all are left out."""
    return tuple((name, since, ANY) for name, since, _ in _newer(model))


if __name__ == "__main__":
    if os.environ.get(VARIABLE):
        _newer = envelope._newer
        vars(envelope).update(PROTOCOL=OLDEST_PROTOCOL, _newer=newer_fields)
    main()
