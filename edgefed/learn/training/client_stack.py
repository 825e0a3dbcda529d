"""A stack of clients that train together: their weights in one tensor, one step for many clients.

In each epoch, the clients that still have full batches take a step together. Then the clients whose
last, shorter batches have the same size take a step together. No batch is padded, so every client
takes exactly its own steps on its own samples, for any objective and normalisation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.func import vmap

from edgefed.errors import DataError
from edgefed.learn.base.types import Array, Batch, Context, Job, Params, Trained
from edgefed.learn.modeling.model import Model
from edgefed.learn.samples.extras_cache import ExtrasCache
from edgefed.learn.samples.job_batches import JobBatches
from edgefed.learn.samples.jobs import (
    diverged,
    finished,
    finished_variables,
    load,
    load_variables,
    precision,
)
from edgefed.learn.samples.sample_cache import CachedSamples
from edgefed.learn.samples.sample_order import batch_sizes, permutations, planned_steps
from edgefed.learn.steps import capabilities
from edgefed.learn.steps.capabilities import Phase, objective_generator
from edgefed.learn.steps.gradient_clipping import clipped_each
from edgefed.learn.steps.local_optimizers import stacked_optimizer_of
from edgefed.learn.steps.stacked_optimizers import Rate, StackedOptimizer, Who


@dataclass(frozen=True)
class Client:
    """One client's part of a stack.

    Attributes:
        job: its training job.
        data: its samples on the device.
        place: the index of its result among those of the round.
    """

    job: Job
    data: CachedSamples
    place: int

    def __len__(self) -> int:
        return len(self.data.targets)


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
class _Phase:
    """An update of a step, and the optimiser of its weights."""

    of: Phase
    optimizer: StackedOptimizer


class ClientStack:
    """Clients with equal jobs but different samples, trained at once.

    Args:
        model: the model, already on the device and in training mode.
        clients: their jobs differ in weights, seeds and the values of extras only. Sorted by size,
            largest first, most steps work in place.
        trained: names of the weights that are trained.
        loaded: the clients' extras on the device.
    """

    def __init__(
        self, model: Model, clients: Sequence[Client], trained: tuple[str, ...], loaded: ExtrasCache
    ) -> None:
        self._model = model
        self._clients = clients
        self._job = clients[0].job
        self._trained = trained
        self._targets = torch.cat([client.data.targets for client in clients])
        self._device = self._targets.device
        self._inputs = self._plain_inputs()
        self._params, self._anchor, self._shared_anchor = self._start()
        self._phases = [
            _Phase(phase, stacked_optimizer_of(self._job.schedule, self._part(phase.trained)))
            for phase in capabilities.phases(self._job.objective, model, trained)
        ]
        self._extra, self._extra_dims = self._extras(loaded)
        self._batches = [JobBatches(client.job, client.data) for client in clients]
        self._numbers = [objective_generator(client.job) for client in clients]
        count = len(clients)
        self._sums = torch.zeros(count, dtype=torch.float64, device=self._device)
        self._seen = [0] * count
        self._finite = torch.ones(count, dtype=torch.bool, device=self._device)
        schedule, pairs = self._job.schedule, model.has_batch_norm
        self._total = [planned_steps(len(client), schedule, pairs=pairs) for client in clients]
        self._taken = [0] * count

    def run(self, stop: Callable[[], None]) -> list[Trained | DataError]:
        """Train; return the result or the error of each client.

        Args:
            stop: called before every step; an exception from it ends the training.
        """
        schedule, pairs = self._job.schedule, self._model.has_batch_norm
        sizes = [batch_sizes(len(client), schedule, pairs=pairs) for client in self._clients]
        orders = [permutations(len(client), schedule, client.job.seed) for client in self._clients]
        for epoch in range(schedule.epochs):
            order = [next(drawn) for drawn in orders]
            plans = [
                batches[: max(0, steps - epoch * len(batches))]
                for batches, steps in zip(sizes, self._total, strict=True)
            ]
            self._begin([k for k, plan in enumerate(plans) if plan])
            for tick in ticks(plans, schedule.batch_size):
                stop()
                self._step(tick, order, epoch)
        return self._results(self._total)

    def _plain_inputs(self) -> torch.Tensor | None:
        """Return all clients' inputs one after another; None where each batch is made by itself."""
        if any(client.job.augment or client.data.images for client in self._clients):
            return None
        return torch.cat([client.data.inputs for client in self._clients])

    def _start(self) -> tuple[Params, Params, bool]:
        """Return the stack, and the trained weights at the start, once if all are equal."""
        loaded: dict[int, Params] = {}
        for client in self._clients:
            weights = client.job.weights
            if id(weights) not in loaded:
                loaded[id(weights)] = load(self._model, weights, self._device)
        starts = [loaded[id(client.job.weights)] for client in self._clients]
        params = {name: torch.stack([one[name] for one in starts]) for name in self._model.names}
        shared = len(loaded) == 1
        start = starts[0] if shared else {name: part.clone() for name, part in params.items()}
        anchor = {name: start[name] for name in self._trained if name in start}
        own = [load_variables(client.job, self._device) for client in self._clients]
        variables = {name: torch.stack([one[name] for one in own]) for name in own[0]}
        return params | variables, anchor, shared

    def _extras(self, loaded: ExtrasCache) -> tuple[Params, dict[str, int | None]]:
        """Return the jobs' extras, and for each whether it is stacked or the same for all."""
        extra: Params = {}
        stacked: dict[str, int | None] = {}
        for name, array in self._job.extra.items():
            arrays = [client.job.extra[name] for client in self._clients]
            same = all(other is array for other in arrays)
            tensors = [loaded.get(values) for values in arrays[: 1 if same else None]]
            extra[name] = tensors[0] if same else torch.stack(tensors)
            stacked[name] = None if same else 0
        return extra, stacked

    def _part(self, names: Sequence[str]) -> Params:
        """Return a part of the stack."""
        return {name: self._params[name] for name in names}

    def _begin(self, active: Sequence[int]) -> None:
        """Begin an epoch of some clients: their losses are counted anew."""
        self._sums[_who(active, self._device)] = 0.0
        for number in active:
            self._seen[number] = 0

    def _step(self, tick: Tick, orders: Sequence[torch.Tensor], epoch: int) -> None:
        """Take one step with every client of a tick."""
        who = _who(tick.clients, self._device)
        batch, draws = self._batch(tick, orders, epoch), self._draws(tick)
        rate = self._rate(tick.clients)
        for phase in self._phases:
            values = self._update(phase, who, batch, draws, rate)
        self._finite[who] &= torch.isfinite(values)
        self._sums[who] += values * tick.size
        for number in tick.clients:
            self._seen[number] += tick.size
            self._taken[number] += 1

    def _rate(self, clients: Sequence[int]) -> Rate:
        """Return the learning rate of the next step of some clients: each has its own place."""
        schedule = self._job.schedule
        if schedule.rates.is_constant:
            return schedule.learning_rate
        rates = [schedule.rate(self._taken[k], self._total[k]) for k in clients]
        return torch.tensor(rates, dtype=torch.float64, device=self._device)

    def _update(
        self, phase: _Phase, who: Who, batch: Batch, draws: Params, rate: Rate
    ) -> torch.Tensor:
        """Make one update of a step; return each client's loss before it (clients,)."""
        names = phase.of.trained
        weights = {name: self._params[name][who].detach() for name in names}
        kept = {name: part[who] for name, part in self._params.items() if name not in weights}
        for tensor in weights.values():
            tensor.requires_grad_()
        losses, assigned = self._losses(phase.of, who, weights, kept, batch, draws)
        gradients = torch.autograd.grad(
            losses.sum(), list(weights.values()), allow_unused=True, materialize_grads=True
        )
        values = [tensor.detach() for tensor in weights.values()]
        short = clipped_each(list(gradients), self._job.schedule.max_gradient_norm)
        phase.optimizer.step(who, values, short, rate)
        if not isinstance(who, slice):
            for name, tensor in {**weights, **kept}.items():
                self._params[name][who] = tensor.detach()
        for name, tensor in assigned.items():
            self._params[name][who] = tensor.detach()
        return losses.detach().double()

    def _draws(self, tick: Tick) -> Params:
        """Return the objective's draws for the clients of a tick: each (clients, …)."""
        drawn = [
            capabilities.draw(
                self._job.objective,
                self._numbers[number],
                tick.size,
                self._clients[number].job.extra,
            )
            for number in tick.clients
        ]
        return {
            name: torch.from_numpy(np.stack([draws[name] for draws in drawn])).to(self._device)
            for name in drawn[0]
        }

    def _batch(self, tick: Tick, orders: Sequence[torch.Tensor], epoch: int) -> Batch:
        """Return the batches of a tick: inputs and targets of (clients, size, …)."""
        rows = [
            orders[number][start : start + tick.size]
            for number, start in zip(tick.clients, tick.starts, strict=True)
        ]
        own = torch.stack(rows).to(self._device, non_blocking=True)
        offsets = _offsets(self._clients)
        begins = torch.tensor([offsets[number] for number in tick.clients], device=self._device)
        index = own + begins.unsqueeze(1)
        if self._inputs is not None:
            return Batch(self._inputs[index], self._targets[index], own)
        made = [
            self._batches[number].get(indices, epoch).inputs
            for number, indices in zip(tick.clients, own, strict=True)
        ]
        return Batch(torch.stack(made), self._targets[index], own)

    def _losses(
        self, phase: Phase, who: Who, weights: Params, kept: Params, batch: Batch, draws: Params
    ) -> tuple[torch.Tensor, Params]:
        """Return each client's loss (clients,), differentiable in ``weights``; and assignments."""
        anchored = None if self._shared_anchor else 0
        anchor = {
            name: part if anchored is None else part[who] for name, part in self._anchor.items()
        }
        extra = {
            name: part if self._extra_dims[name] is None else part[who]
            for name, part in self._extra.items()
        }

        def loss(
            trained: Params,
            rest: Params,
            inputs: torch.Tensor,
            targets: torch.Tensor,
            rows: torch.Tensor,
            start: Params,
            added: Mapping[str, torch.Tensor],
            drawn: Mapping[str, torch.Tensor],
        ) -> tuple[torch.Tensor, Params]:
            params, context = {**trained, **rest}, Context(start, added, drawn)
            return capabilities.loss_and_values(
                phase.objective, self._model.forward, params, Batch(inputs, targets, rows), context
            )

        dims = (0, 0, 0, 0, 0, anchored if anchor else None, self._extra_dims, 0 if draws else None)
        with precision(self._job.schedule.precision, self._device):
            stacked = vmap(loss, in_dims=dims, randomness="different")
            losses: tuple[torch.Tensor, Params] = stacked(
                weights, kept, batch.inputs, batch.targets, batch.rows, anchor, extra, draws
            )
        return losses

    def _results(self, steps: Sequence[int]) -> list[Trained | DataError]:
        """Return the result of each client."""
        after = {name: part.cpu().numpy() for name, part in self._params.items()}
        sums, finite = self._sums.tolist(), self._finite.tolist()
        results: list[Trained | DataError] = []
        for number, client in enumerate(self._clients):
            own: dict[str, Array] = {name: part[number].copy() for name, part in after.items()}
            try:
                if not finite[number]:
                    raise diverged("the loss is")
                loss = sums[number] / self._seen[number]
                weights, variables = finished(client.job, own), finished_variables(client.job, own)
                results.append(Trained(weights, len(client), steps[number], loss, variables))
            except DataError as error:
                results.append(error)
        return results


def _offsets(clients: Sequence[Client]) -> list[int]:
    """Return where each client's samples begin among those of all."""
    offsets = [0]
    for client in clients[:-1]:
        offsets.append(offsets[-1] + len(client))
    return offsets


def _who(numbers: Sequence[int], device: torch.device) -> Who:
    """Return rising numbers as a slice where they leave none out."""
    if numbers and numbers[-1] - numbers[0] + 1 == len(numbers):
        return slice(numbers[0], numbers[-1] + 1)
    return torch.tensor(numbers, dtype=torch.int64, device=device)
