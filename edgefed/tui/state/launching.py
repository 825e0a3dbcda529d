"""The dashboard's interface for starting runs: recipes to begin with, and drafts of new runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from edgefed.events.base.method_tables import MethodTable


@dataclass(frozen=True)
class PastRun:
    """A run whose recipe can be used again."""

    run: str
    name: str
    algorithm: str
    status: str
    created: str


@dataclass(frozen=True)
class ValueProblem:
    """A problem of the value of a dotted key; the key is empty for a problem of no single one."""

    key: str
    text: str


@dataclass(frozen=True)
class CheckedValues:
    """The values of a draft, and their problems.

    Attributes:
        values: the recipe's tables, with the usable changes.
        problems: empty when the recipe can be run.
        least_devices: devices that the run waits for before its first round.
        because: why these are more than ``rounds.min_devices``; empty if they are not.
    """

    values: Mapping[str, Any]
    problems: tuple[ValueProblem, ...] = ()
    least_devices: int = 1
    because: str = ""


@dataclass(frozen=True)
class AdvisedRecipe:
    """The advice that was given for a recipe.

    Attributes:
        table: its candidates; the verdict recommends one.
        recommended: key of that one's row.
        draft: makes the draft of the recommended recipe.
    """

    table: MethodTable
    recommended: str
    draft: Callable[[], Draft]


class Draft(Protocol):
    """A recipe to which changes are made before a run is started from it."""

    @property
    def title(self) -> str:
        """Source of the recipe."""
        ...

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of a recipe, with the keys of algorithms, models and data sets."""
        ...

    @property
    def unused(self) -> Collection[str]:
        """Keys, and names of tables, that a run of a fleet does not use."""
        ...

    def check(self, sets: Mapping[str, str]) -> CheckedValues:
        """Return the values with changes, texts as ``--set`` takes them by their dotted keys."""
        ...

    def command(self, sets: Mapping[str, str]) -> str:
        """Return the command line that starts the same run."""
        ...

    def advice(self, sets: Mapping[str, str]) -> AdvisedRecipe:
        """Return the advice for the recipe, by its name.

        Raises:
            EdgeFedError: there is none, or the recipe is wrong.
        """
        ...

    def start(self, sets: Mapping[str, str]) -> str:
        """Start the run and return its id; it may take a while.

        Raises:
            EdgeFedError: the recipe or the coordinator refuses.
        """
        ...


class Launcher(Protocol):
    """Starts runs; its methods may take a while and belong in a thread."""

    @property
    def folder(self) -> Path:
        """The folder whose recipe files are offered first."""
        ...

    def past_runs(self) -> tuple[PastRun, ...]:
        """Return the coordinator's runs, the newest first.

        Raises:
            EdgeFedError: there is no answer.
        """
        ...

    def from_file(self, path: Path | None) -> Draft:
        """Return the draft of a recipe file, or of the defaults for None.

        Raises:
            EdgeFedError: the file cannot be read.
        """
        ...

    def from_run(self, run: str) -> Draft:
        """Return a draft with the recipe of a past run.

        Raises:
            EdgeFedError: there is no such run, or no answer.
        """
        ...
