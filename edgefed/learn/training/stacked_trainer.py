"""Train many clients of a round in one batch.

The weights equal those of ``Trainer`` up to rounding: shuffling, augmentation and steps are the
same, but a batched operation sums in another order. Dropout draws other masks from the same
distribution. On a CPU this is slower than one client after another; on a GPU, which a small model
underuses, it is faster.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch.func import vmap

from edgefed.errors import DataError, UsageError
from edgefed.learn.base.processors import pick_device, repeatable
from edgefed.learn.base.transfers import place_module
from edgefed.learn.base.types import Array, Job, Params, Samples, Trained
from edgefed.learn.modeling.model import Model
from edgefed.learn.samples.extras_cache import ExtrasCache
from edgefed.learn.samples.job_batches import check_pixels
from edgefed.learn.samples.jobs import check_job, samples_of, with_class_weights
from edgefed.learn.samples.sample_cache import CachedSamples
from edgefed.learn.samples.sample_pool import SamplePool
from edgefed.learn.training.stacked_steps import Client, ClientStack
from edgefed.learn.training.trainer import Stopped
from edgefed.seeds import derive

CHUNK = 32
"""Clients that are trained at once; their weights, gradients and activations are held together."""


class StackedTrainer:
    """Trains many clients at once; data stay on the device as for ``Trainer``.

    Args:
        model: the model; no other code may use it at the same time.
        device: as ``pick_device`` takes it.
        chunk: most clients in one stack, at least 1; memory grows with it. Halved where the GPU's
            memory does not suffice.
        rows: samples of all clients, for which room is made at once.

    Raises:
        UsageError: there is no such device, or ``train.stack``: the model cannot be stacked.
    """

    def __init__(
        self, model: Model, device: str | None = None, chunk: int = CHUNK, rows: int = 0
    ) -> None:
        self.model = model
        self.device = pick_device(device)
        place_module(model.module, self.device)
        reason = why_not(model)
        if reason or chunk < 1:
            raise UsageError(
                f"This model cannot be trained for many clients at once: {reason}."
                if reason
                else f"A stack holds at least one client, not {chunk}.",
                code="train.stack",
                hint="train one client after another" if reason else "raise chunk",
            )
        self.extras = ExtrasCache(self.device)
        self._chunk = chunk
        self._pool = SamplePool(model, self.device, rows)

    def train(
        self,
        jobs: Sequence[Job],
        samples: Sequence[Samples],
        stop: Callable[[], bool] | None = None,
    ) -> list[Trained]:
        """Train each job's weights on its samples; return the results.

        Raises:
            Stopped: ``stop`` answered True.
            DataError: of the first client whose job cannot be done, as ``Trainer.train`` has it.
        """
        done: list[Trained] = []
        for result in self.attempt(jobs, samples, stop):
            if isinstance(result, DataError):
                raise result
            done.append(result)
        return done

    def attempt(
        self,
        jobs: Sequence[Job],
        samples: Sequence[Samples],
        stop: Callable[[], bool] | None = None,
    ) -> list[Trained | DataError]:
        """Return the result of each job, or the error of one that could not be done.

        Jobs that differ in more than weights, seeds and the values of extras are not stacked with
        each other.

        Args:
            jobs: one a client.
            samples: each client's own, for jobs that bring none.
            stop: called before every step.

        Raises:
            Stopped: ``stop`` answered True.
            UsageError: ``train.stack``: a job carries a recurrent state from batch to batch.
        """
        if any(job.schedule.carry_state for job in jobs):
            raise UsageError(
                "A recurrent state is not carried for many clients at once.",
                code="train.stack",
                hint="train one client after another",
            )
        results: dict[int, Trained | DataError] = {}
        clients: list[Client] = []
        pairs = list(zip(jobs, samples, strict=True))
        used = [samples_of(job, own) for job, own in pairs]
        for place, (job, own) in enumerate(zip(jobs, used, strict=True)):
            try:
                check_job(self.model, job, len(own))
            except DataError as error:
                results[place] = error
        able = [place for place in range(len(jobs)) if place not in results]
        pooled = self._pool.get([used[place] for place in able])
        for place, data in zip(able, pooled, strict=True):
            try:
                if isinstance(data, DataError):
                    raise data
                check_pixels(jobs[place], data.data)
                job = with_class_weights(self.model, jobs[place], used[place])
                clients.append(Client(job, data, place))
            except DataError as error:
                results[place] = error
        for group in _alike(clients):
            rest = group
            while rest:
                part = rest[: self._chunk]
                done = self._fitting(part, stop)
                # Fewer results than clients where the chunk did not fit
                for client, result in zip(part, done, strict=False):
                    results[client.place] = result
                rest = rest[len(done) :]
        return [results[place] for place in range(len(jobs))]

    def _fitting(
        self, clients: Sequence[Client], stop: Callable[[], bool] | None
    ) -> list[Trained | DataError]:
        """Train one chunk; nothing where the GPU has no room for it, and then the chunk is halved.

        From then on all chunks are that small, because a larger one would not fit again.
        """
        try:
            return self._run(clients, stop)
        except torch.cuda.OutOfMemoryError:
            if len(clients) == 1:
                return [_no_room()]
        # Here, as the error held on to the tensors of the stack.
        self._chunk = len(clients) // 2
        torch.cuda.empty_cache()
        return []

    def _run(
        self, clients: Sequence[Client], stop: Callable[[], bool] | None
    ) -> list[Trained | DataError]:
        """Train one chunk."""

        def check() -> None:
            if stop is not None and stop():
                raise Stopped("Training was stopped.", hint="the task can be sent again")

        seeds = [client.job.seed for client in clients]
        trained = check_job(self.model, clients[0].job, len(clients[0]))
        self.model.training_mode()
        with repeatable(self.device, derive(seeds[0], "dropout", *seeds)):
            return ClientStack(self.model, clients, trained, self.extras).run(check)


def can_stack(model: Model) -> bool:
    """Return whether a model can be trained for many clients at once, on the device it is on.

    It cannot where it turns a value into a Python number, as batch normalisation with a cumulative
    average does, or uses an operation that torch cannot batch, as ``torch.nn.LSTM`` does.
    """
    return not why_not(model)


def why_not(model: Model) -> str:
    """Return why a model cannot be stacked, or nothing; two clients are tried out on zeros."""
    state = model.module.state_dict()
    stacked = {name: torch.stack([state[name], state[name]]) for name in model.names}
    weights = [stacked[name].requires_grad_() for name in model.parameter_names]
    device = weights[0].device
    wide = torch.float64 if weights[0].dtype == torch.float64 else torch.float32
    kind = wide if model.vocabulary is None else torch.int64
    inputs = torch.zeros(2, 2, *model.shape, dtype=kind, device=device)

    def total(params: Params, batch: torch.Tensor) -> torch.Tensor:
        return model.forward(params, batch).square().sum()

    model.training_mode()
    with repeatable(device, 0), warnings.catch_warnings():
        # Torch works through such an operation client by client, slower than we would.
        warnings.filterwarnings("error", message=".*performance drop.*")
        try:
            losses = vmap(total, randomness="different")(stacked, inputs)
            torch.autograd.grad(losses.sum(), weights, allow_unused=True)
        # Whatever a user's model raises, it cannot be stacked
        except (Exception, SystemExit) as error:
            return " ".join(str(error).split())[:300].rstrip(".: ") or type(error).__name__
    return ""


def _no_room() -> DataError:
    return DataError(
        "Training ran out of the GPU's memory.",
        code="train.memory",
        hint="lower batch_size, or choose a smaller model",
    )


def _alike(clients: Sequence[Client]) -> Iterator[list[Client]]:
    """Yield clients that can share a stack, largest first."""
    groups: list[list[Client]] = []
    for client in sorted(clients, key=len, reverse=True):
        for group in groups:
            if _fit(group[0], client):
                group.append(client)
                break
        else:
            groups.append([client])
    yield from groups


def _fit(one: Client, other: Client) -> bool:
    """Return whether two clients can share a stack."""
    return _kind(one.job, one.data) == _kind(other.job, other.data)


def _kind(job: Job, data: CachedSamples) -> tuple[object, ...]:
    """Return a key that must be equal among the clients of a stack."""
    return (
        job.objective, job.schedule, job.frozen, job.augment, data.targets.dim(),
        _shapes(job.extra), _shapes(job.variables),
    )  # fmt: skip


def _shapes(arrays: Mapping[str, Array]) -> dict[str, object]:
    """Return shapes and kinds of arrays by name."""
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}
