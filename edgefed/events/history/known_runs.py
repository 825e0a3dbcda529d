"""Past and present runs as screens and comparisons use them: a row of the list, or all details."""

from __future__ import annotations

from typing import Any

from edgefed.events.base.snapshot import RoundView
from edgefed.events.base.view import View


class RunRow(View):
    """One run of a list; ``RunRecord`` has the meanings.

    ``status`` may be one that this version does not know, from a newer coordinator.
    """

    run: str
    name: str = ""
    algorithm: str = ""
    status: str = ""
    created: str = ""
    round: int = 0
    rounds: int = 0
    accuracy: float | None = None
    loss: float | None = None
    epsilon: float | None = None
    restored: str = ""
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0


class RunDetails(RunRow):
    """A run with its settings and its rounds.

    Attributes:
        recipe: as TOML tables, with the defaults.
        history: its finished rounds, oldest first.
    """

    recipe: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    history: tuple[RoundView, ...] = ()
