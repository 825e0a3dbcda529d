"""The data of a report, read from a run's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgefed.config.values.toml import read_toml
from edgefed.errors import EdgeFedError, RecipeError, UnknownNameError
from edgefed.events.base.log import Log
from edgefed.events.history.summary import RunSummary, summarise

EVENTS = "events.jsonl"
RECIPE = "recipe.toml"


@dataclass(frozen=True)
class RunData:
    """The data of a run, from any source.

    Attributes:
        record: its row: ``run``, ``name``, ``status``, ``accuracy``, ``bytes_up`` and so on;
            unknown values are missing.
        recipe: as TOML tables.
        rounds: finished rounds, oldest first.
        summary: devices and notable events.
    """

    record: Mapping[str, Any]
    recipe: Mapping[str, Any]
    rounds: Sequence[Mapping[str, Any]]
    summary: RunSummary


def run_data_of_response(record: Mapping[str, Any], summary: RunSummary) -> RunData:
    """Return the data from the coordinator's response to ``run.show``, and the run's summary."""
    return RunData(record, record["recipe"], record["history"], summary)


def run_data_of_folder(folder: Path) -> RunData:
    """Return the data in a run's folder.

    Raises:
        UnknownNameError: it is no run's folder.
        StorageError: its event log cannot be read.
        RecipeError: its recipe cannot be read.
    """
    log = Log(folder / EVENTS)
    if not log.path.is_file():
        raise UnknownNameError(
            f"{folder} is not a run's folder: it has no {EVENTS}.",
            code="run.unknown",
            hint="name a run, or a folder with recipe.toml and events.jsonl",
        )
    summary = summarise(log.events())
    return RunData(_record(folder, summary), recipe_of(folder), summary.rounds, summary)


def recipe_of(folder: Path) -> Mapping[str, Any]:
    """Return the recipe in a run's folder as TOML tables; none where there is no such file.

    Raises:
        RecipeError: it cannot be read.
    """
    path = folder / RECIPE
    try:
        return read_toml(path).values
    except RecipeError as error:
        if error.code == "recipe.missing":
            return {}
        raise


def _versions(folder: Path) -> Mapping[str, Any] | None:
    """Return the versions in the run's model file; None where there is no such file."""
    from edgefed.learn.modeling.model_file_reader import MODEL_FILE, opened_model_file

    try:
        with opened_model_file(folder / MODEL_FILE) as file:
            return asdict(file.description.versions)
    except EdgeFedError:
        return None


def _record(folder: Path, summary: RunSummary) -> Mapping[str, Any]:
    run, rounds = summary.run, summary.rounds
    record = run.model_dump(mode="json") if run is not None else {"run": folder.name}
    return {
        **record,
        "folder": str(folder),
        "versions": _versions(folder),
        "started": record.get("started_at", ""),
        "ended": record.get("ended_at", ""),
        "devices": len(summary.devices) + summary.more_devices,
        "seconds": sum(float(row.get("seconds") or 0.0) for row in rounds),
        "bytes_up": sum(int(row.get("received") or 0) for row in rounds),
        "bytes_down": sum(int(row.get("sent") or 0) for row in rounds),
    }
