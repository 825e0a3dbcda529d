"""An epoch of a stack of clients: which clients step together, on which samples, by which draws.

All indices and draws of an epoch go to the device together, so that a step transfers nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from edgefed.learn.base.transfers import upload_all
from edgefed.learn.base.types import Array, Params
from edgefed.learn.steps.stacked_optimizers import Rate, Who


@dataclass(frozen=True)
class Tick:
    """A step that several clients take at once.

    Attributes:
        clients: their numbers in the stack, rising.
        starts: where each one's batch begins in its order of the epoch.
        size: samples in each batch.
    """

    clients: list[int]
    starts: list[int]
    size: int

    def rows(self, orders: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the numbers of each client's samples, given the clients' orders of the epoch."""
        pairs = zip(self.clients, self.starts, strict=True)
        return [orders[number][start : start + self.size] for number, start in pairs]


def ticks(plans: Sequence[Sequence[int]], full: int) -> Iterator[Tick]:
    """Yield the steps of an epoch.

    Args:
        plans: for each client the sizes of its batches, all of them ``full`` but perhaps the last.
        full: the size of a full batch.
    """
    for number in range(max((len(plan) for plan in plans), default=0)):
        here = [k for k, plan in enumerate(plans) if len(plan) > number and plan[number] == full]
        if here:
            yield Tick(here, [number * full] * len(here), full)
    for size in sorted({plan[-1] for plan in plans if plan} - {full}):
        here = [k for k, plan in enumerate(plans) if plan and plan[-1] == size]
        yield Tick(here, [full * (len(plans[k]) - 1) for k in here], size)


@dataclass(frozen=True)
class StackedBatch:
    """A tick with all that it needs, on the device.

    Attributes:
        tick: the clients of the step.
        rows: the numbers of each client's samples, on the host.
        chosen: the clients, as an index of the stack.
        places: tensors (clients, size): numbers of samples, and crops; see ``JobBatches.places``.
        begins: where each client's samples begin in the tensor of all, (clients, 1).
        draws: the objective's, each (clients, …).
        rate: the learning rate.
    """

    tick: Tick
    rows: list[torch.Tensor]
    chosen: Who
    places: list[torch.Tensor]
    begins: torch.Tensor
    draws: Params
    rate: Rate


@dataclass(frozen=True)
class HostStep:
    """A tick with all that it needs, on the host; see ``StackedBatch``."""

    tick: Tick
    rows: list[torch.Tensor]
    places: list[torch.Tensor]
    begins: list[int]
    draws: Sequence[Mapping[str, Array]]
    rates: list[float] | float

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors for the device, by name."""
        begins = torch.tensor(self.begins, dtype=torch.int64).unsqueeze(1)
        named = {"begins": begins}
        named |= {f"place {number}": part for number, part in enumerate(self.places)}
        for name in self.draws[0]:
            named[f"draw {name}"] = torch.from_numpy(np.stack([own[name] for own in self.draws]))
        if isinstance(who_of(self.tick.clients), torch.Tensor):
            named["who"] = torch.tensor(self.tick.clients, dtype=torch.int64)
        if not isinstance(self.rates, float):
            named["rates"] = torch.tensor(self.rates, dtype=torch.float64)
        return named

    def on_device(self, moved: Mapping[str, torch.Tensor]) -> StackedBatch:
        """Return the step, given its tensors on the device."""
        places = [moved[f"place {number}"] for number in range(len(self.places))]
        draws = {name: moved[f"draw {name}"] for name in self.draws[0]}
        who = moved.get("who", who_of(self.tick.clients))
        rate = self.rates if isinstance(self.rates, float) else moved["rates"]
        return StackedBatch(self.tick, self.rows, who, places, moved["begins"], draws, rate)


def on_device(steps: Sequence[HostStep], device: torch.device) -> Iterator[StackedBatch]:
    """Yield the steps of an epoch, whose tensors are moved together."""
    named = [step.tensors() for step in steps]
    flat = [tensor for tensors in named for tensor in tensors.values()]
    moved = iter(upload_all(flat, device, "plan"))
    for step, tensors in zip(steps, named, strict=True):
        yield step.on_device({name: next(moved) for name in tensors})


def who_of(numbers: Sequence[int]) -> Who:
    """Return rising numbers as a slice where they leave none out."""
    if numbers and numbers[-1] - numbers[0] + 1 == len(numbers):
        return slice(numbers[0], numbers[-1] + 1)
    return torch.tensor(numbers, dtype=torch.int64)
