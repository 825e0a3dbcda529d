"""Predicted and reached values of a run that followed an advice; they are kept beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import ValidationError

from edgefed.advise.race import LAST_TESTS
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.toml import read_toml
from edgefed.errors import EdgeFedError, UnknownNameError, UsageError
from edgefed.files.writing import write_output
from edgefed.terminal.units import counted

ADVICE, CHECKS, RECIPE = "advice.json", "checks.json", "recommended.toml"

FOLLOWED = ("algorithm", "labels", "model", "training", "rounds", "wire")
"""Tables of the recommended recipe that a run has whose values were predicted."""


def advice_folder(state: Path, name: str) -> Path:
    """Return the folder, in the state folder, of the advice for recipes of a name."""
    return state / "advice" / name


@dataclass(frozen=True)
class Compared:
    """One value.

    Attributes:
        name: accuracy (a share, the mean of the last tests), or bytes of one device, or seconds of
            all rounds, if each takes as long as those after the first.
        predicted, reached: None if unknown.
    """

    name: str
    predicted: float | None
    reached: float | None

    @property
    def error(self) -> float | None:
        """Reached less predicted; of bytes and seconds as a share of it; None if unknown."""
        if self.predicted is None or self.reached is None:
            return None
        if self.name == "accuracy":
            return self.reached - self.predicted
        return self.reached / self.predicted - 1 if self.predicted else None


def compare(advice: Mapping[str, Any], record: Mapping[str, Any], devices: int) -> list[Compared]:
    """Return the values of a run beside the predicted ones.

    Args:
        advice: as ``advice.json`` has it.
        record: of a finished run, as ``run show --json`` prints it.
        devices: of the fleet.
    """
    row = next(r for r in advice["rows"] if r["candidate"] == advice["recommended"])
    rounds = advice["rounds"]
    share = rounds / max(1, record["round"])
    moved = (record["bytes_up"] + record["bytes_down"]) / max(1, devices) * share
    return [
        Compared("accuracy", row["accuracy"]["mean"], _reached_accuracy(record)),
        Compared("bytes", row["bytes"], moved),
        Compared("seconds", row["seconds"], rounds * _reached_seconds(record)),
    ]


def _reached_accuracy(record: Mapping[str, Any]) -> float | None:
    """Return the mean accuracy of a run's last tests, as predictions are."""
    tested = [row["accuracy"] for row in record["history"] if row.get("accuracy") is not None]
    return fmean(tested[-LAST_TESTS:]) if tested else None


def _reached_seconds(record: Mapping[str, Any]) -> float:
    """Return the mean seconds of a round after the first, in which agents start their training."""
    seconds = [row.get("seconds") or 0.0 for row in record["history"]]
    return fmean(seconds[1:] or seconds or [0.0])


def check_followed(folder: Path, record: Mapping[str, Any]) -> None:
    """Check that a run has the recommended recipe of the advice in a folder.

    Raises:
        UsageError: ``advise.not_followed``: its recipe is another one.
    """
    wanted, own = _read_recipe(folder / RECIPE), _complete(record["recipe"])
    if other := next((name for name in FOLLOWED if own.get(name) != wanted.get(name)), ""):
        raise UsageError(
            f"Run {record['run']} did not follow the advice in {folder}: its [{other}] is another.",
            code="advise.not_followed",
            hint=f"name a run of {folder / RECIPE}, or the advice with --out",
        )


def _read_recipe(file: Path) -> dict[str, Any]:
    try:
        return _complete(read_toml(file).values)
    except (EdgeFedError, OSError):
        return {}


def _complete(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a recipe with the keys that they leave out; nothing of a wrong one."""
    try:
        recipe = Recipe.model_validate_json(json.dumps(tables, default=str))
    except ValidationError:
        return {}
    return recipe.model_dump(mode="json")


def read_advice(folder: Path) -> dict[str, Any]:
    """Return the advice in a folder.

    Raises:
        UnknownNameError: ``advise.none``: there is none.
    """
    try:
        advice: dict[str, Any] = json.loads((folder / ADVICE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnknownNameError(
            f"There is no advice in {folder}.",
            code="advise.none",
            hint="name the folder with --out, or make one: edgefed advise race",
        ) from error
    return advice


def keep_check(folder: Path, run: str, compared: list[Compared]) -> None:
    """Keep a comparison beside its advice; of a run that is there already, in its place.

    Raises:
        StorageError: the disk does not take it.
    """
    checks = {**_checks(folder), run: [asdict(value) for value in compared]}
    write_output(folder / CHECKS, f"{json.dumps(checks, indent=2)}\n".encode())


def record_of(place: Path) -> str:
    """Return how good the earlier advice in the folders of a place was; empty for none."""
    errors = [
        abs(error)
        for folder in sorted(place.glob("*/"))
        for values in _checks(folder).values()
        for value in values
        if value["name"] == "accuracy"
        and (error := Compared(**value).error) is not None
        and math.isfinite(error)
    ]
    if not errors:
        return ""
    return (
        f"{counted(len(errors), 'earlier run')} by advice: the reached accuracy differed from the"
        f" predicted by {100 * fmean(errors):.1f} points on average and by"
        f" {100 * max(errors):.1f} at most."
    )


def _checks(folder: Path) -> dict[str, Any]:
    try:
        checks: dict[str, Any] = json.loads((folder / CHECKS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return checks
