"""The run that a command concerns when none is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefed.control.coordinator_client import CoordinatorClient


def newest(coordinator: CoordinatorClient) -> str:
    """Return the id of the newest run.

    Raises:
        UnknownNameError: there is none.
    """
    from edgefed.errors import UnknownNameError

    runs = coordinator.ask("run.list")
    if not runs:
        raise UnknownNameError("There is no run yet.", code="run.unknown", hint="edgefed run start")
    return str(runs[0]["run"])
