"""The output layer of a network, and the features that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from edgefed.errors import DataError


@dataclass(frozen=True)
class OutputLayer:
    """The linear layer whose output is the model's.

    Attributes:
        name: of the module, as in the names of its weights: ``fc`` has ``fc.weight``.
        module: the layer.
        width: number of features.
    """

    name: str
    module: nn.Linear
    width: int


@contextmanager
def captured_inputs(layer: nn.Module) -> Iterator[list[torch.Tensor]]:
    """Collect the inputs of a layer, one tensor for each call inside the block."""
    taken: list[torch.Tensor] = []

    def note(_layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        taken.append(arguments[0])

    handle = layer.register_forward_pre_hook(note)
    try:
        yield taken
    finally:
        handle.remove()


def find_output_layer(module: nn.Module, inputs: torch.Tensor) -> OutputLayer:
    """Return the linear layer whose output is a module's, which ``inputs`` (batch, …) show.

    Raises:
        DataError: ``model.features``: the module's output is not that of a linear layer which is
            used once on features (batch, width).
    """
    calls: list[tuple[str, nn.Linear, torch.Tensor, torch.Tensor]] = []

    def note(name: str) -> Any:
        def hook(layer: nn.Linear, arguments: tuple[Any, ...], output: torch.Tensor) -> None:
            calls.append((name, layer, arguments[0], output))

        return hook

    handles = [
        layer.register_forward_hook(note(name))
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            outputs = module(inputs)
    finally:
        module.train(was_training)
        for handle in handles:
            handle.remove()
    name, layer, features, made = calls[-1] if calls else ("", None, inputs, inputs)
    uses = sum(call[1] is layer for call in calls)
    if layer is None or made is not outputs or features.dim() != 2 or uses != 1:
        raise DataError(
            "This model has no output layer whose inputs could serve as features.",
            code="model.features",
            hint="end the model in a torch.nn.Linear that returns its output",
        )
    return OutputLayer(name, layer, layer.in_features)
