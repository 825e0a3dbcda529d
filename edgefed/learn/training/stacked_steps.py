"""A stack of clients that train together: their weights in one tensor, one step for many clients.

In each epoch, the clients that still have full batches take a step together. Then the clients whose
last, shorter batches have the same size take a step together. No batch is padded, so every client
takes exactly its own steps on its own samples, for any objective and normalisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.func import vmap

from edgefed.errors import DataError
from edgefed.learn.base.transfers import download_all
from edgefed.learn.base.types import Array, Batch, Context, Job, Params, Trained
from edgefed.learn.modeling.model import Model
from edgefed.learn.samples.extras_cache import ExtrasCache
from edgefed.learn.samples.job_batches import JobBatches, cropped
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
from edgefed.learn.samples.sample_pool import PooledSamples
from edgefed.learn.steps import capabilities
from edgefed.learn.steps.capabilities import Phase, objective_generator
from edgefed.learn.steps.gradient_clipping import clipped_each
from edgefed.learn.steps.local_optimizers import stacked_optimizer_of
from edgefed.learn.steps.stacked_optimizers import Rate, StackedOptimizer, Who
from edgefed.learn.training.stacked_batches import HostStep, StackedBatch, Tick, on_device, ticks


@dataclass(frozen=True)
class Client:
    """One client's part of a stack.

    Attributes:
        job: its training job.
        pooled: its samples on the device.
        place: the index of its result among those of the round.
    """

    job: Job
    pooled: PooledSamples
    place: int

    @property
    def data(self) -> CachedSamples:
        """The samples on the device."""
        return self.pooled.data

    def __len__(self) -> int:
        return len(self.data.targets)


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
        self._device = clients[0].data.targets.device
        self._table = clients[0].pooled.table if self._shares_a_table() else None
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
                # max_steps may end within an epoch: a client takes only the steps that it has left
                batches[: max(0, steps - epoch * len(batches))]
                for batches, steps in zip(sizes, self._total, strict=True)
            ]
            self._begin([k for k, plan in enumerate(plans) if plan])
            planned = [self._planned(tick, order) for tick in ticks(plans, schedule.batch_size)]
            for step in on_device(planned, self._device):
                stop()
                self._step(step, epoch)
        return self._results(self._total)

    def _shares_a_table(self) -> bool:
        """Return whether one index reaches the inputs of all clients, as their batches need them.

        Torchvision's transforms take one image at a time.
        """
        augment = self._job.augment
        kinds = {
            (id(client.pooled.table), client.data.images and client.data.images.scale)
            for client in self._clients
        }
        return len(kinds) == 1 and (augment is None or augment.transforms is None)

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
        # A copy where starts differ, since the stack is trained in place
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
        for number in active:
            self._sums[number].zero_()
            self._seen[number] = 0

    def _planned(self, tick: Tick, orders: Sequence[torch.Tensor]) -> HostStep:
        """Return a step of the next epoch: its clients' draws are made, and their steps counted."""
        rows = tick.rows(orders)
        own = [
            self._batches[number].places(part)
            for number, part in zip(tick.clients, rows, strict=True)
        ]
        draws = [
            capabilities.draw(
                self._job.objective,
                self._numbers[number],
                tick.size,
                self._clients[number].job.extra,
            )
            for number in tick.clients
        ]
        begins = [self._clients[number].pooled.start for number in tick.clients]
        places = [torch.stack(parts) for parts in zip(*own, strict=True)]
        step = HostStep(tick, rows, places, begins, draws, self._rates(tick.clients))
        for number in tick.clients:
            self._taken[number] += 1
        return step

    def _step(self, step: StackedBatch, epoch: int) -> None:
        """Take one step with every client of a tick."""
        batch = self._batch(step, epoch)
        for phase in self._phases:
            values = self._update(phase, step.chosen, batch, step.draws, step.rate)
        self._finite[step.chosen] &= torch.isfinite(values)
        self._sums[step.chosen] += values * step.tick.size
        for number in step.tick.clients:
            self._seen[number] += step.tick.size

    def _rates(self, clients: Sequence[int]) -> list[float] | float:
        """Return the learning rate of the next step of some clients: each has its own place."""
        schedule = self._job.schedule
        if schedule.rates.is_constant:
            return schedule.learning_rate
        return [schedule.rate(self._taken[k], self._total[k]) for k in clients]

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
        # Clients share no weight, so the gradient of the sum holds the gradient of each
        gradients = torch.autograd.grad(
            losses.sum(), list(weights.values()), allow_unused=True, materialize_grads=True
        )
        values = [tensor.detach() for tensor in weights.values()]
        short = clipped_each(list(gradients), self._job.schedule.max_gradient_norm)
        phase.optimizer.step(who, values, short, rate)
        # A slice is a view, which the optimiser has changed in place; an index has made copies
        if not isinstance(who, slice):
            for name, tensor in {**weights, **kept}.items():
                self._params[name][who] = tensor.detach()
        for name, tensor in assigned.items():
            self._params[name][who] = tensor.detach()
        return losses.detach().double()

    def _batch(self, step: StackedBatch, epoch: int) -> Batch:
        """Return the batches of a tick: inputs and targets of (clients, size, …)."""
        own, size = step.places[0], step.places[0].shape
        if self._table is None:
            made = [
                self._batches[number].made([part[place] for part in step.places], rows, epoch)
                for place, (number, rows) in enumerate(
                    zip(step.tick.clients, step.rows, strict=True)
                )
            ]
            inputs = torch.stack([batch.inputs for batch in made])
            return Batch(inputs, torch.stack([batch.targets for batch in made]), own)
        index = (own + step.begins).reshape(-1)
        inputs = self._scaled(self._table.inputs.index_select(0, index), step.places[1:])
        targets = self._table.targets.index_select(0, index)
        return Batch(
            inputs.reshape(*size, *inputs.shape[1:]), targets.view(*size, *targets.shape[1:]), own
        )

    def _scaled(self, inputs: torch.Tensor, crops: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the table's images or inputs as the model takes them, cropped and mirrored."""
        data = self._clients[0].data
        if self._job.augment is not None and crops:
            neutral = data.scaling.neutral if data.images and data.scaling else None
            inputs = cropped(self._job.augment, inputs, crops, neutral)
        return data.images.scaled(inputs) if data.images else inputs

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
        sums, finite, *parts = download_all(
            [self._sums, self._finite, *self._params.values()], "results"
        )
        after = {name: part.numpy() for name, part in zip(self._params, parts, strict=True)}
        results: list[Trained | DataError] = []
        for number, client in enumerate(self._clients):
            # A copy, so that one result does not keep the whole stack in memory
            own: dict[str, Array] = {name: part[number].copy() for name, part in after.items()}
            try:
                if not finite[number]:
                    raise diverged("the loss is")
                loss = float(sums[number]) / self._seen[number]
                weights, variables = finished(client.job, own), finished_variables(client.job, own)
                results.append(Trained(weights, len(client), steps[number], loss, variables))
            except DataError as error:
                results.append(error)
        return results
