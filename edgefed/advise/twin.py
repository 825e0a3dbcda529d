"""The twin of a fleet: a simulation of as many devices, dealt and timed as the profile says.

The stand-in data, which the coordinator has, are dealt with the devices' own histograms. Speeds,
uplinks and absences are the measured ones, so that the simulation's clock shows the fleet's time.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from edgefed.advise.model_cost import cost_ratio
from edgefed.advise.profile import DeviceProfile, Profile
from edgefed.advise.skew import NEARLY_NONE, feature_skew
from edgefed.advise.stand_in import StandIn, in_form
from edgefed.config.recipes.recipe import Recipe
from edgefed.files.writing import write_output
from edgefed.seeds import generator
from edgefed.simulator.local_fleet import device_names

RECIPES_OWN = StandIn()
"""The data that the recipe names."""


@dataclass(frozen=True)
class Twin:
    """A simulation in a fleet's place.

    Attributes:
        tables: of the simulation's recipe.
        notes: assumptions, a sentence each.
        timed: whether its clock shows the fleet's time.
        joules: energy that a device takes to train in all rounds, the mean over those whose energy
            was measured; None if none was.
        round_overhead: seconds of a round that its clock does not count.
    """

    tables: dict[str, Any]
    notes: tuple[str, ...]
    timed: bool
    joules: float | None = None
    round_overhead: float = 0.0


def make_twin(
    recipe: Recipe, profile: Profile, folder: Path, stand_in: StandIn = RECIPES_OWN
) -> Twin:
    """Return the twin of a fleet for a recipe, and write its files into a folder.

    Args:
        recipe: of the run that is advised on.
        profile: of the fleet.
        folder: for the files; their names change with their contents, so that results of earlier
            twins are not taken for this one's.
        stand_in: the data in place of the devices'.

    Raises:
        EdgeFedError: the data or the model cannot be used, or the disk does not take the files.
    """
    names = device_names(len(profile.devices))
    tables = recipe.model_dump(mode="json")
    data = tables["data"] if stand_in.section is None else stand_in.section
    tables["data"], note = in_form(data, profile.shape, folder, stand_in)
    tables["simulation"] |= {"devices": len(names), "newcomers": 0, "sharing": 1.0}
    notes = [note] if note else []
    notes += _deal(tables["data"], profile, names, folder)
    features = feature_skew(profile)
    own = tables["data"].get("transform", "none")
    if features is not None and features >= NEARLY_NONE and own == "none":
        tables["data"] |= {"transform": "offset", "feature_strength": round(features, 3)}
        notes.append(
            f"The devices' inputs differ by {features:.2f} standard deviations: the twin's are"
            " shifted as far."
        )
    slower = _slower(recipe, profile, folder)
    speeds, timed = _speeds(profile.devices, names, slower)
    if timed:
        file = _write(folder, "speeds", ["device", *_RATES], speeds)
        tables["speeds"] = {"file": str(file)}
        if away := fmean(device.absent for device in profile.devices):
            tables["speeds"]["absent"] = min(0.9, round(away, 4))
    else:
        tables["speeds"] = {}
        notes.append("No run has measured the devices: times are unknown.")
    joules = _joules(recipe, profile, slower)
    return Twin(tables, tuple(notes), timed, joules, profile.round_overhead)


_RATES = ("seconds_per_sample", "uplink", "downlink")


def _deal(data: dict[str, Any], profile: Profile, names: Sequence[str], folder: Path) -> list[str]:
    """Have a table of data dealt by the devices' labels, and return the assumptions made."""
    known, devices = len(profile.with_labels), len(profile.devices)
    if not known:
        return [
            "No device shares its labels: the data are dealt by the recipe's partition"
            f" {data.get('partition', 'classes')}. Add labels to the profile if you know them."
        ]
    filled = _with_all_labels(profile)
    rows = [[name, *counts] for name, counts in zip(names, filled, strict=True)]
    head = ["device", *map(str, range(len(filled[0])))]
    file = _write(folder, "histograms", head, rows)
    data |= {"partition": "histograms", "histograms": str(file)}
    if known == devices:
        return []
    return [
        f"{devices - known} of {devices} devices do not share their labels: each is taken to be"
        " skewed as a random other one."
    ]


def _with_all_labels(profile: Profile) -> list[tuple[int, ...]]:
    """Return a histogram for each device; one that is unknown is another's, of as many samples."""
    known = profile.with_labels
    rng = generator(0, "advise", "histograms")
    filled = []
    for device in profile.devices:
        counts = device.labels
        if not any(counts):
            other = np.array(known[int(rng.integers(len(known)))].labels, np.float64)
            counts = tuple(rng.multinomial(device.samples, other / other.sum()).tolist())
        filled.append(counts)
    return filled


def _slower(recipe: Recipe, profile: Profile, folder: Path) -> float:
    """Return how many times longer a sample takes than in the run that measured the devices."""
    if not (profile.model and profile.shape and profile.classes):
        return 1.0
    model = recipe.model.model_dump(mode="json", exclude_none=True)
    return cost_ratio(
        model,
        recipe.training.batch_size,
        profile.model,
        profile.batch_size or recipe.training.batch_size,
        profile.shape,
        profile.classes,
        folder,
    )


def _speeds(
    devices: Sequence[DeviceProfile], names: Sequence[str], slower: float
) -> tuple[list[list[object]], bool]:
    """Return rows of names and rates, and whether any is known; unknown speeds are the median."""
    known = [d.seconds_per_sample for d in devices if d.seconds_per_sample is not None]
    if not known:
        return [], False
    usual = median(known)
    rows: list[list[object]] = [
        [
            name,
            slower * (device.seconds_per_sample or usual),
            device.uplink or "",
            device.downlink or "",
        ]
        for name, device in zip(names, devices, strict=True)
    ]
    return rows, True


def _joules(recipe: Recipe, profile: Profile, slower: float) -> float | None:
    """Return the energy of a device for its training in all rounds; see ``Twin``."""
    rounds, devices = recipe.rounds, profile.devices
    share = min(1.0, rounds.cohort / len(devices)) if rounds.cohort else 1.0
    passes = slower * recipe.training.epochs * rounds.count * share
    known = [d.samples * d.joules_per_sample for d in devices if d.joules_per_sample is not None]
    return passes * fmean(known) if known else None


def _write(folder: Path, name: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(head)
    table.writerows(rows)
    content = text.getvalue().encode()
    file = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:8]}.csv"
    write_output(file, content)
    return file
