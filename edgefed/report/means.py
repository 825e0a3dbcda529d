"""The averaged data that a run holds, read from its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from edgefed.errors import StorageError, UnknownNameError
from edgefed.report.run_data import EVENTS, recipe_of
from edgefed.sharing.packing import unpack
from edgefed.sharing.types import Array, Entries

GROUP = "averaged/"
"""Prefix of the averaged data's names in a file of a run's state."""


@dataclass(frozen=True, eq=False)
class Means:
    """A run's averaged data.

    Attributes:
        run: its id.
        entries: in the order in which the coordinator sends them; whose they are is not in it.
        split: layers of the model that the averages are taken behind; 0 for averages of inputs.
        has_shares: whether targets are shares of labels, and not means of numbers.
    """

    run: str
    entries: Entries
    split: int = 0
    has_shares: bool = True


def means_of_folder(folder: Path) -> Means:
    """Return the averaged data in a run's folder.

    Raises:
        UnknownNameError: it is not a run's folder, or ``means.none``: the run holds none.
        StorageError: ``means.state``: its state is not there, or cannot be read.
        RecipeError: its recipe cannot be read.
        DataError: the arrays there are not averaged data.
    """
    if not (folder / EVENTS).is_file():
        raise UnknownNameError(
            f"{folder} is not a run's folder on this machine.",
            code="run.unknown",
            hint="name a run or its folder, on the coordinator's machine",
        )
    # What did not change lies in an older file than the weights; nothing older than that is left.
    files = sorted(folder.glob("state-*.safetensors"), reverse=True)
    if not files:
        raise StorageError(
            f"Run {folder.name} has no state in {folder}.",
            code="means.state",
            hint="the run has not started, or the file was deleted",
        )
    arrays = next((arrays for arrays in map(_read, files) if arrays), None)
    if arrays is None:
        raise UnknownNameError(
            f"Run {folder.name} holds no averaged data.",
            code="means.none",
            hint="train with fedmix or naivemix, on devices that share",
        )
    recipe = recipe_of(folder)
    split = recipe.get("algorithm", {}).get("split", 0)
    loss = recipe.get("training", {}).get("loss", "cross_entropy")
    return Means(folder.name, unpack(arrays), split, loss == "cross_entropy")


def numbers_in_words(target: Array, most: int) -> str:
    """Return the first of a mean target's numbers, such as ``0.312, -4.5 and 3 more``."""
    shown = ", ".join(f"{number:.4g}" for number in target[:most])
    rest = len(target) - most
    return shown + (f" and {rest} more" if rest > 0 else "")


def main_labels(target: Array, most: int) -> list[tuple[int, float]]:
    """Return the labels with the largest shares in a mean target, and the shares, largest first."""
    order = np.argsort(-target, kind="stable")[:most]
    return [(int(label), float(target[label])) for label in order if target[label] > 0]


def labels_in_words(target: Array, most: int) -> str:
    """Return the main labels of a mean target, such as ``3 52 %, 8 48 %``."""
    shown = [f"{label} {share * 100:.0f} %" for label, share in main_labels(target, most)]
    rest = int((target > 0).sum()) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def _read(path: Path) -> dict[str, Array]:
    """Return the arrays of averaged data in a state file, by their short names."""
    try:
        with safe_open(path, framework="numpy") as file:
            names = [name for name in file.keys() if name.startswith(GROUP)]  # noqa: SIM118 - no dict
            return {name.removeprefix(GROUP): file.get_tensor(name) for name in names}
    except (OSError, SafetensorError) as error:
        raise StorageError(
            f"The state of the run cannot be read from {path}: {error}.",
            code="means.state",
            hint="if the run is running, try again",
        ) from error
