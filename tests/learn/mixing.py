"""What the tests of mixing share: models in float64, batches, entries, the formula literally."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.base.types import Array, Batch, Context, Objective, Params
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.averaged_entries import DRAWN

CLASSES = 5


class World:
    """A model in float64, a batch, and entries to mix with, all drawn from one seed."""

    def __init__(
        self,
        name: str = "mlp",
        shape: tuple[int, ...] = (1, 8, 8),
        *,
        batch: int = 6,
        entries: int = 4,
        seed: int = 3,
        model: Model | None = None,
        **settings: Any,
    ) -> None:
        section = ModelSection(name=name, **settings)
        self.model = model or build(section, shape, CLASSES, seed)
        self.model.module.double().train()
        self.params: Params = {
            name: torch.from_numpy(array).requires_grad_(name in self.model.parameter_names)
            for name, array in self.model.weights().items()
        }
        rng = np.random.default_rng(seed)
        # Large weights in the last layer, so that softmax is far from its flat middle.
        list(self.params.values())[-2].data *= 3
        self.batch = Batch(
            torch.from_numpy(rng.standard_normal((batch, *shape))),
            torch.from_numpy(rng.integers(CLASSES, size=batch)),
        )
        self.extra: dict[str, Array] = {
            "inputs": rng.standard_normal((entries, *shape)),
            "targets": rng.dirichlet(np.ones(CLASSES), entries),
        }

    def context(self, entry: int | list[int] = 0, **draws: Any) -> Context:
        which = torch.tensor([entry] if isinstance(entry, int) else entry)
        drawn = {name: torch.as_tensor(np.asarray(value)) for name, value in draws.items()}
        extra = {name: torch.from_numpy(array) for name, array in self.extra.items()}
        return Context({}, extra, {DRAWN: which, **drawn})

    def loss(self, objective: Objective, context: Context | None = None) -> torch.Tensor:
        """Return the loss, with the same dropout every time."""
        torch.manual_seed(7)
        given = self.context() if context is None else context
        return objective(self.model.forward, self.params, self.batch, given)

    def gradients(self, loss: torch.Tensor) -> Tensors64:
        weights = [self.params[name] for name in self.model.parameter_names]
        found = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
        return dict(zip(self.model.parameter_names, found, strict=True))

    def both(self, objective: Objective, context: Context | None = None) -> tuple[float, Tensors64]:
        """Return the loss and its gradients."""
        loss = self.loss(objective, context)
        return loss.item(), self.gradients(loss)


Tensors64 = dict[str, torch.Tensor]


def assert_equal(
    one: tuple[float, Mapping[str, torch.Tensor]],
    other: tuple[float, Mapping[str, torch.Tensor]],
    tolerance: float = 1e-12,
) -> None:
    """Assert that values and gradients agree, relative to the largest gradient."""
    assert abs(one[0] - other[0]) <= tolerance * max(1.0, abs(one[0]))
    assert_same(one[1], other[1], tolerance)


def assert_same(
    one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor], tolerance: float = 1e-12
) -> None:
    """Assert that gradients agree, relative to the largest, and are not all zero."""
    largest = max(float(part.abs().max()) for part in one.values())
    assert largest > 1e-6
    for name, part in one.items():
        assert float((part - other[name]).abs().max()) <= tolerance * largest, name


def literal(
    world: World, ratio: float, entry: int = 0, factor: float | None = None
) -> torch.Tensor:
    """Return equation 5 of FedMix with torch.autograd alone: three passes, sample by sample."""
    inputs, labels = world.batch.inputs, world.batch.targets
    other, target = (torch.from_numpy(world.extra[name][entry]) for name in ("inputs", "targets"))
    terms = []
    for image, label in zip(inputs, labels, strict=True):
        at = ((1 - ratio) * image).detach().requires_grad_()
        logs = functional.log_softmax(world.model.forward(world.params, at[None])[0], dim=0)
        (slope,) = torch.autograd.grad(-logs[label], at, create_graph=True)
        third = (slope * other).sum()
        first, second = -logs[label], -(target * logs).sum()
        kept = ratio if factor is None else factor
        terms.append((1 - ratio) * first + ratio * second + kept * third)
    return torch.stack(terms).mean()
