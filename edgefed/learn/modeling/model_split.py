"""Split a module after one of its layers into an encoder and a decoder.

A layer is a part with weights of two or more dimensions: a convolution, a linear layer, a residual
block, an embedding. Activations, pooling, normalisation and dropout belong to the layer that they
follow. An embedding has no such followers, so that it is linear in one-hot tokens. Both halves
share their parts, and the names of their weights, with the module.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from typing import Protocol, runtime_checkable

from torch import nn

from edgefed.errors import DataError

Halves = tuple[nn.Module, nn.Module]
"""Encoder and decoder."""


@runtime_checkable
class Splittable(Protocol):
    """A module that knows where it can be cut: after 1, 2, … layers, in this order."""

    def cuts(self) -> list[Halves]:
        """Return the halves of every cut."""
        ...


def halves(module: nn.Module, split: int) -> Halves:
    """Return the first ``split`` layers of a module, and the others.

    Raises:
        DataError: ``model.split``: the module is not a chain of layers, or has too few.
    """
    if isinstance(module, Splittable):
        cuts = module.cuts()
    elif isinstance(module, nn.Sequential):
        cuts = _cuts(module)
    else:
        raise DataError(
            f"This model cannot be split: its {type(module).__name__} is not a chain of layers.",
            code="model.split",
            hint="choose cnn, lenet5, vgg9, mlp or lstm, or make your model a torch.nn.Sequential",
        )
    if 1 <= split <= len(cuts):
        return cuts[split - 1]
    raise DataError(
        f"This model cannot be split after {split} layers.",
        code="model.split",
        hint=f"choose split from 1 to {len(cuts)}"
        if cuts
        else "a model with a single layer has nothing to split",
    )


def _cuts(module: nn.Sequential) -> list[Halves]:
    """Return the halves of a chain, cut in front of each of its layers but the first."""
    parts = list(module.named_children())
    layers = [place for place, (_, part) in enumerate(parts) if _is_layer(part)]
    cuts = [
        before + 1 if isinstance(parts[before][1], nn.Embedding) else after
        for before, after in pairwise(layers)
    ]
    return [(_chain(parts[:cut]), _chain(parts[cut:])) for cut in cuts]


def _is_layer(part: nn.Module) -> bool:
    """Return whether a part counts as a layer."""
    return any(weight.dim() > 1 for weight in part.parameters())


def _chain(parts: list[tuple[str, nn.Module]]) -> nn.Module:
    """Return parts as a chain, under the names that they have."""
    return nn.Sequential(OrderedDict(parts))
