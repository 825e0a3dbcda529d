"""Model files of networks with random weights, as runs write them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from torch.nn.modules.batchnorm import _BatchNorm

from edgefed.config.recipes.recipe import ModelSection
from edgefed.files.samples import PixelScale
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build, complete_model
from edgefed.learn.modeling.model_description import ModelDescription
from edgefed.wire.tensors import weights_digest

SCALE = PixelScale((0.4, 0.5, 0.3), (0.2, 0.3, 0.25))
"""Of images in three colours."""

NAMES = ("ant", "bee", "cat")
COLOUR = (3, 32, 32)

OWN: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "cnn": ({"width": 4, "hidden": 8}, COLOUR),
    "lenet5": ({}, (1, 28, 28)),
    "lenet5-wide": ({}, COLOUR),
    "vgg9": ({}, COLOUR),
    "resnet18": ({"channels": [8, 8, 16, 16], "inner": [8] * 8}, COLOUR),
    "resnet20": ({}, COLOUR),
    "mlp": ({"hidden": [8]}, COLOUR),
    "lstm": ({"hidden": 6, "vocabulary": 9}, (7,)),
}
"""A small network of every kind: its settings, and the shape of an input."""


def described(
    name: str = "cnn", *, outputs: int = len(NAMES), shape: tuple[int, ...] = (), **changes: Any
) -> ModelDescription:
    """Describe a small network; ``shape`` replaces its own."""
    settings, own = OWN.get(name, ({}, COLOUR))
    section = complete_model(ModelSection(name=name, **settings))
    shape = shape or own
    coloured = len(shape) == 3 and shape[0] == 3
    made = ModelDescription(
        section, shape, outputs, NAMES[:outputs], SCALE if coloured else PixelScale(), run="r-0001"
    )
    return replace(made, algorithm="fedavg", round=3, **changes)


def network(description: ModelDescription, seed: int = 1) -> tuple[Model, Tensors]:
    """Return a network and weights of it; its running statistics and scores are not trivial."""
    model = build(description.section, description.shape, description.outputs, seed)
    if model.has_batch_norm:
        _settle(model)
    weights = model.weights()
    last = [name for name in model.parameter_names if name.endswith("weight")][-1]
    weights[last] *= 300 if description.section.name == "vgg9" else 6
    return model, weights


@torch.no_grad()
def _settle(model: Model) -> None:
    """Let batch normalisation measure noise, so that signals reach the end of a deep network."""
    for part in model.module.modules():
        if isinstance(part, _BatchNorm):
            part.momentum = None
            part.reset_running_stats()
    model.module.train()
    generator = torch.Generator().manual_seed(3)
    model.module(torch.randn(32, *model.shape, generator=generator))


def write_model(path: Path, description: ModelDescription, tensors: Tensors) -> Path:
    """Write a model file with the digest of its tensors."""
    made = replace(description, weights_digest=weights_digest(tensors))
    save_file(
        {name: np.array(each, order="C") for name, each in tensors.items()}, path, made.metadata()
    )
    return path


def model_file(folder: Path, name: str = "cnn", **changes: Any) -> Path:
    """Write the model file of a small network."""
    description = described(name, **changes)
    return write_model(folder / "model.safetensors", description, network(description)[1])


def reference(description: ModelDescription, tensors: Tensors, inputs: Any) -> Any:
    """Return probabilities by torch's own softmax of what training's network computes."""
    model, _ = network(description)
    model.module.eval()
    with torch.no_grad():
        params = {name: torch.from_numpy(array) for name, array in tensors.items()}
        scores = model.forward(params, torch.from_numpy(np.ascontiguousarray(inputs)))
        return torch.softmax(scores, dim=1).numpy()
