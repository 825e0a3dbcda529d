"""Predicted and reached values of a run that followed an advice; they are kept beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from edgefed.errors import UnknownNameError
from edgefed.files.writing import write_output
from edgefed.terminal.units import counted

ADVICE, CHECKS = "advice.json", "checks.json"


def advice_folder(state: Path, name: str) -> Path:
    """Return the folder, in the state folder, of the advice for recipes of a name."""
    return state / "advice" / name


@dataclass(frozen=True)
class Compared:
    """One value.

    Attributes:
        name: accuracy (a share), or bytes of one device or seconds of all rounds.
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
    share = advice["rounds"] / max(1, record["round"])
    moved = (record["bytes_up"] + record["bytes_down"]) / max(1, devices) * share
    return [
        Compared("accuracy", row["accuracy"]["mean"], record["accuracy"]),
        Compared("bytes", row["bytes"], moved),
        Compared("seconds", row["seconds"], record["seconds"] * share),
    ]


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
