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


class RunModelFile(View):
    """A model file of a run, by its path in the run's folder."""

    file: str
    round: int = 0


class RunDetails(RunRow):
    """A run with its settings and its rounds.

    Attributes:
        recipe: as TOML tables, with the defaults.
        history: its finished rounds, oldest first.
        folder: on the machine of its coordinator or its simulation; empty if unknown.
        models: that of the last round first, if there is one.
    """

    recipe: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    history: tuple[RoundView, ...] = ()
    folder: str = ""
    models: tuple[RunModelFile, ...] = ()

    @property
    def model_path(self) -> str:
        """The path of the last round's model; empty without one."""
        names = (model.file for model in self.models)
        last = [name for name in names if "/" not in name and not name.startswith("best")]
        return f"{self.folder}/{last[0]}" if last and self.folder else ""
