"""The running agent's status in a small file, which ``edgefed-agent status`` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgefed.errors import UnknownNameError
from edgefed.files.writing import write_atomic
from edgefed.process.lock import is_locked

NAME = "status.json"


def write_status_file(folder: Path, status: dict[str, Any]) -> None:
    """Replace the status file; after a power cut it may be damaged until the agent starts again."""
    write_atomic(folder / NAME, json.dumps(status).encode(), sync=False)


def read_status_file(folder: Path, device: str) -> dict[str, Any]:
    """Return the last status, with whether the agent still runs.

    Raises:
        UnknownNameError: no agent of that name ever ran here.
    """
    try:
        status = dict(json.loads((folder / NAME).read_text()))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UnknownNameError(
            f"No agent named {device} has run with state in {folder}.",
            code="agent.unknown",
            hint="start it with edgefed-agent run, or give its --name, --fleet and --state",
        ) from error
    return {"running": is_locked(folder), **status}
