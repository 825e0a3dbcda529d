"""A model's forward pass in which only some samples of a batch get gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch

from edgefed.learn.modeling.model import Model
from edgefed.learn.networks.small_conv import is_watched

Outputs = tuple[torch.Tensor, torch.Tensor]
"""Logits (batch, classes) and features (batch, width)."""


def forward_where(
    model: Model,
    forward: Callable[[torch.Tensor], Outputs],
    inputs: torch.Tensor,
    flows: torch.Tensor | None,
) -> Outputs:
    """Return a forward pass's outputs, differentiable in the weights for some samples only.

    On a CPU, the other samples pass without a graph, if the model treats samples separately.
    Otherwise all samples pass with one, and the outputs of the others are detached. The results are
    the same up to rounding.

    Args:
        model: the model of the pass.
        forward: the pass.
        inputs: (batch, …).
        flows: bool (batch,), the samples with gradients; None for all.
    """
    if flows is None:
        return forward(inputs)
    if inputs.device.type != "cpu" or not model.is_samplewise or is_watched():
        logits, features = forward(inputs)
        some = flows[:, None]
        return (
            torch.where(some, logits, logits.detach()),
            torch.where(some, features, features.detach()),
        )
    count = int(flows.sum())
    if count == len(inputs):
        return forward(inputs)
    if not count:
        with torch.no_grad():
            return forward(inputs)
    order = flows.to(torch.uint8).argsort(descending=True, stable=True)
    with_gradient = forward(inputs.index_select(0, order[:count]))
    with torch.no_grad():
        without = forward(inputs.index_select(0, order[count:]))
    places = order.argsort()
    logits, features = (
        torch.cat(parts).index_select(0, places)
        for parts in zip(with_gradient, without, strict=True)
    )
    return logits, features
