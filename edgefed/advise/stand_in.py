"""The data that stand in for those of the devices, in the form that the devices' data have.

Images of another size or with other channels are scaled, so that the twin trains the fleet's model:
bytes and seconds depend on it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import interpolate

from edgefed.config.recipes.recipe import DataSection
from edgefed.data.base.types import Array
from edgefed.data.sets.datasets import load
from edgefed.files.writing import make_folder, storage_error

IMAGE = 3
"""Axes of an image: channels, height, width."""


@dataclass(frozen=True)
class StandIn:
    """The data that stand in.

    Attributes:
        section: keys of their ``[data]`` table; None for the recipe's own.
        folder: keeps downloaded data sets; None for the state folder of ``edgefed``.
    """

    section: dict[str, Any] | None = None
    folder: Path | None = None


def in_form(
    section: dict[str, Any], shape: tuple[int, ...], folder: Path, given: StandIn
) -> tuple[dict[str, Any], str]:
    """Return the ``[data]`` table of stand-in data with inputs of a shape, and a note.

    Args:
        section: their table.
        shape: of one input of the devices; empty if unknown, which changes nothing.
        folder: for the scaled data.
        given: where data sets are kept.

    Raises:
        EdgeFedError: the data cannot be loaded, or the disk does not take the scaled ones.
    """
    words = json.dumps([section, shape], sort_keys=True, default=str)
    file = folder / f"stand-in-{hashlib.sha256(words.encode()).hexdigest()[:8]}.npz"
    table = {"name": "npz", "path": str(file), "partition": section.get("partition", "classes")}
    if not shape or section.get("name") == "none":
        return section, ""
    if file.exists():
        return table, ""
    dataset = load(DataSection.model_validate(section), given.folder, seed=0)
    if dataset.shape == shape:
        return section, ""
    if len(shape) != IMAGE or len(dataset.shape) != IMAGE:
        return section, (
            f"The stand-in data have inputs of shape {dataset.shape}, the devices' of {shape}:"
            " bytes and times are those of a model for the former."
        )
    parts = {"train": dataset.train, "test": dataset.test}
    arrays = {f"x_{name}": scaled(np.asarray(p.model_inputs), shape) for name, p in parts.items()}
    arrays |= {f"y_{name}": part.targets for name, part in parts.items()}
    make_folder(folder, private=False)
    whole = file.with_suffix(".part.npz")
    try:
        np.savez(whole, allow_pickle=False, **arrays)
        whole.replace(file)
    except OSError as error:
        raise storage_error(file, error) from error
    return table, ""


def scaled(images: Array, shape: tuple[int, ...]) -> Array:
    """Return images of another size and number of channels.

    Args:
        images: (n, channels, height, width).
        shape: channels, height and width of each result. Channels are their mean, repeated.
    """
    channels, height, width = shape
    tensor = torch.from_numpy(np.ascontiguousarray(images, np.float32))
    if tensor.shape[1] != channels:
        tensor = tensor.mean(dim=1, keepdim=True).expand(-1, channels, -1, -1)
    size = (height, width)
    made = interpolate(tensor, size=size, mode="bilinear", antialias=True, align_corners=False)
    result: Array = made.numpy()
    return result
