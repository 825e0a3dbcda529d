"""The local training loop and evaluation: a trainer executes jobs on one processor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from edgefed.config.recipes.sections import LossName
from edgefed.errors import EdgeFedError
from edgefed.learn.base.gradient_memory import keep_freed
from edgefed.learn.base.processors import pick_device, repeatable
from edgefed.learn.base.recurrent_state import CarriedState
from edgefed.learn.base.transfers import (
    download,
    download_all,
    is_remote,
    place_module,
    upload_all,
)
from edgefed.learn.base.types import (
    Array,
    Batch,
    Context,
    Forward,
    Job,
    Params,
    Samples,
    Score,
    Tensors,
    Trained,
)
from edgefed.learn.compiled.compiled_chain import Chain, chain_of
from edgefed.learn.compiled.compiled_experts import CompiledExperts, compiled_experts_of
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.expert_mixture import ExpertMixture
from edgefed.learn.objectives.squared_error import SquaredError
from edgefed.learn.samples.extras_cache import ExtrasCache
from edgefed.learn.samples.feature_cache import FeatureCache, trains_on_features
from edgefed.learn.samples.job_batches import JobBatches, check_pixels
from edgefed.learn.samples.jobs import (
    check_job,
    finished,
    finished_variables,
    load,
    load_variables,
    precision,
    samples_of,
    with_class_weights,
)
from edgefed.learn.samples.sample_cache import (
    CachedSamples,
    SampleCache,
    channels_last,
    check_inputs,
    eval_batch,
)
from edgefed.learn.samples.sample_order import batch_sizes, permutations, planned_steps
from edgefed.learn.steps import capabilities
from edgefed.learn.steps.capabilities import Phase, objective_generator
from edgefed.learn.steps.gradient_clipping import clipped
from edgefed.learn.steps.local_optimizers import LocalOptimizer, optimizer_of
from edgefed.learn.training.epoch_losses import EpochLosses
from edgefed.learn.training.measures import NOTHING_MORE, Measures, Tally
from edgefed.learn.training.targets import has_accuracy
from edgefed.learn.training.user_losses import UserLoss, is_user_loss
from edgefed.learn.training.user_metrics import measured
from edgefed.seeds import derive

CHECK_EVERY = 32
"""Steps between two looks at the losses: a look waits for a GPU, and takes time on any device."""


WAITING_OUTPUTS = 2**26
"""Bytes of outputs of a test after which those on a GPU are read."""


class Stopped(EdgeFedError):  # noqa: N818 - nothing went wrong
    """Training ended early because its caller asked for it."""

    default_code = "train.stopped"


class Trainer:
    """Trains and tests one model, job after job, on one device and in one thread.

    Data stay on the device while a reference to their ``Samples`` exists, and extras while one to
    the array does. The same job on the same samples gives the same bits on the same kind of
    processor, torch version and thread count.

    Args:
        model: the model, used by this trainer only.
        device: as ``pick_device`` takes it.

    Raises:
        UsageError: there is no such device.
    """

    def __init__(self, model: Model, device: str | None = None) -> None:
        self.model = model
        self.device = pick_device(device)
        place_module(model.module, self.device)
        self.extras = ExtrasCache(self.device)
        self._preloads = SampleCache(model, self.device)
        self._features = FeatureCache(model, self._preloads, self.device)

    def held_bytes(self) -> int:
        """Return how many bytes stay taken between jobs: the module's, and copies of samples."""
        copies = self._preloads.copied_bytes() + self._features.held_bytes()
        return self.model.weight_bytes + copies

    def train(
        self,
        job: Job,
        samples: Samples,
        progress: Callable[[float], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Trained:
        """Train the job's weights on ``samples``; return the result.

        Args:
            job: the job.
            samples: the device's samples, for a job that brings none; not empty.
            progress: called with the share that is done, up to 1: after every step, and once more
                when the processor has done the last one.
            stop: called before every step.

        Raises:
            Stopped: ``stop`` answered True.
            DataError: no samples, samples or weights that are not the model's, or
                ``train.diverged``: the loss or the weights are no longer finite numbers.
        """
        samples = samples_of(job, samples)
        trained = check_job(self.model, job, len(samples))
        job = with_class_weights(self.model, job, samples)
        features = trains_on_features(self.model, job)
        data, forward = self._inputs_or_features(samples, features=features)
        check_pixels(job, data)
        params = load(self.model, job.weights, self.device) | load_variables(job, self.device)
        for name in trained:
            params[name].requires_grad_()
        if job.variables and self.device.type == "cpu":
            keep_freed(sum(params[name].nbytes for name in trained))
        carried = self.model.carrying_state() if job.schedule.carry_state else None
        descent = _Descent(self, job, data, params, trained, carried or forward, carried)
        self.model.training_mode()
        with repeatable(self.device, derive(job.seed, "dropout")):
            steps, loss = descent.run(progress or _ignore, stop or _never)
        # One transfer for all results, since each waits for a GPU
        tensors = download_all(list(params.values()), "results")
        after = {name: part.numpy() for name, part in zip(params, tensors, strict=True)}
        weights, variables = finished(job, after), finished_variables(job, after)
        return Trained(weights, len(samples), steps, loss, variables)

    def _inputs_or_features(
        self, samples: Samples, *, features: bool
    ) -> tuple[CachedSamples, Forward]:
        """Return the source of batches, and the function to call with them."""
        if features:
            return self._features.get(samples), self._features.forward
        return self._preloads.get(samples), self.model.forward

    @torch.no_grad()
    def evaluate(
        self,
        weights: Tensors,
        samples: Samples,
        loss: LossName = "cross_entropy",
        measures: Measures = NOTHING_MORE,
        stop: Callable[[], bool] | None = None,
    ) -> Score:
        """Return mean loss and accuracy of ``weights`` on ``samples``; zeros on none.

        Where targets are numbers there is no accuracy: None. ``stop`` is called before each batch.

        Raises:
            Stopped: ``stop`` answered True.
            DataError: samples or weights that are not the model's, or user code fails.
        """
        self.model.check(weights)
        labelled = has_accuracy(loss, samples)
        if not len(samples):
            return Score(0.0, 0.0 if labelled else None, 0)
        data, forward = self._inputs_or_features(samples, features=self.model.trains_head_only)
        params = load(self.model, weights, self.device)
        self.model.module.eval()
        score = _Outputs(self.device, labelled, measures)
        with repeatable(self.device):
            size = eval_batch(samples.inputs)
            for start in range(0, len(samples), size):
                if stop is not None and stop():
                    raise Stopped("A test was stopped.", hint="the task can be sent again")
                batch = data.part(start, start + size)
                logits = forward(params, batch.inputs)
                score.add(_summed_loss(loss, logits, batch.targets), logits, batch)
            score.read()
            total, tally, fractions = score.total, score.tally, score.fractions()
        mean, count = total / len(samples), len(samples)
        if not labelled:
            return Score(mean, None, count, fractions=fractions)
        right = tally.right / count
        return Score(mean, right, count, tally.top_k_hits, tally.confusion, fractions)

    @torch.no_grad()
    def predict(self, weights: Tensors, inputs: Array) -> Array:
        """Return the logits (n, classes), float32, of ``weights`` on ``inputs`` (n, …).

        Raises:
            DataError: inputs or weights that are not the model's.
        """
        return self._run(self.model.forward, (self.model.classes,), weights, inputs)

    @torch.no_grad()
    def predict_with_features(self, weights: Tensors, inputs: Array) -> tuple[Array, Array]:
        """Return the logits (n, classes) and the output layer's inputs (n, width), float32.

        Raises:
            DataError: inputs or weights that are not the model's; ``model.features``: the model has
                no output layer.
        """
        width = self.model.output_layer.width

        def both(params: Params, part: torch.Tensor) -> torch.Tensor:
            return torch.cat(self.model.forward_with_features(params, part), dim=1)

        outputs = self._run(both, (self.model.classes + width,), weights, inputs)
        return outputs[:, : self.model.classes], outputs[:, self.model.classes :]

    @torch.no_grad()
    def encode(self, weights: Tensors, inputs: Array, split: int) -> Array:
        """Return the hidden states (n, …), float32, behind the first ``split`` layers.

        Raises:
            DataError: inputs or weights that are not the model's; ``model.split``: there is no such
                split.
        """
        encoder, decoder = self.model.halves(split)
        return self._run(encoder.forward, decoder.shape, weights, inputs)

    def _run(
        self, forward: Forward, shape: tuple[int, ...], weights: Tensors, inputs: Array
    ) -> Array:
        """Return the outputs of a model or its part for all inputs: (n, *shape), float32."""
        self.model.check(weights)
        check_inputs(inputs, self.model)
        params = load(self.model, weights, self.device)
        outputs = np.empty((len(inputs), *shape), np.float32)
        self.model.module.eval()
        with repeatable(self.device):
            size = eval_batch(inputs)
            for start in range(0, len(inputs), size):
                part = self._preloads.inputs(inputs[start : start + size])
                answer = forward(params, channels_last(part))
                outputs[start : start + size] = download(answer.float(), "outputs").numpy()
        return outputs


@dataclass(frozen=True)
class ModelPredictions:
    """How a trainer's model predicts; see ``scoring.Predict``."""

    trainer: Trainer

    def __call__(self, weights: Tensors, inputs: Array) -> Array:
        """Return the logits (n, classes)."""
        return self.trainer.predict(weights, inputs)

    def with_features(self, weights: Tensors, inputs: Array) -> tuple[Array, Array]:
        """Return the logits (n, classes) and the features (n, width)."""
        return self.trainer.predict_with_features(weights, inputs)


@dataclass(frozen=True)
class _Descent:
    """One job while it runs.

    Attributes:
        params: all weights and variables on the device; the trained ones change in place.
        trained: names of the trained ones.
        forward: the model, or the part of it that is computed for each batch.
        carried: ``forward`` with the state that it carries; None where each batch begins with a
            state of zeros.
    """

    trainer: Trainer
    job: Job
    data: CachedSamples
    params: Params
    trained: tuple[str, ...]
    forward: Forward
    carried: CarriedState | None

    def run(self, progress: Callable[[float], None], stop: Callable[[], bool]) -> tuple[int, float]:
        """Take the schedule's steps; return their number and the last epoch's mean loss."""
        schedule, device = self.job.schedule, self.trainer.device
        count, pairs = len(self.data.targets), self.trainer.model.has_batch_norm
        sizes = batch_sizes(count, schedule, pairs=pairs)
        total, done = planned_steps(count, schedule, pairs=pairs), 0
        context, batches = self._context(), JobBatches(self.job, self.data)
        numbers = objective_generator(self.job)
        parts = capabilities.phases(self.job.objective, self.trainer.model, self.trained)
        phases = [
            (phase, self._chain(phase, context.extra), optimizer_of(schedule)) for phase in parts
        ]
        losses = EpochLosses(None if is_remote(device) else CHECK_EVERY)
        for epoch, order in enumerate(permutations(count, schedule, self.job.seed)):
            if done == total:
                break
            losses.restart()
            if self.carried is not None:
                self.carried.reset()
            for rows, places, now in self._planned(
                order, sizes[: total - done], batches, context, numbers
            ):
                if stop():
                    raise Stopped("Training was stopped.", hint="the task can be sent again")
                batch = batches.made(places, rows, epoch)
                rate = schedule.rate(done, total)
                for phase, chain, optimizer in phases:
                    loss = self._step(phase, chain, batch, now, optimizer, rate)
                losses.add(loss, len(rows))
                done += 1
                progress(done / total)
            if not is_remote(device):
                losses.check()
        losses.check()  # waits for a GPU, which is behind with the steps
        progress(done / total)
        return done, losses.mean()

    def _chain(
        self, phase: Phase, extra: Mapping[str, torch.Tensor]
    ) -> Chain | CompiledExperts | None:
        """Return the shortcut to an update's gradients, if there is one."""
        schedule = self.job.schedule
        if isinstance(phase.objective, ExpertMixture):
            return compiled_experts_of(
                phase, self.params, extra, schedule.precision, schedule.batch_size
            )
        if self.job.variables or self.carried is not None:
            return None
        return chain_of(
            self.trainer.model, phase, self.params, schedule.precision, schedule.batch_size
        )

    def _step(
        self,
        phase: Phase,
        chain: Chain | CompiledExperts | None,
        batch: Batch,
        context: Context,
        optimizer: LocalOptimizer,
        rate: float,
    ) -> torch.Tensor:
        """Make one update and return the loss before it."""
        weights = [self.params[name] for name in phase.trained]
        quick = chain.gradients(batch, phase.trained, context) if chain is not None else None
        loss, gradients, values = (
            self._differentiated(phase, weights, batch, context) if quick is None else (*quick, {})
        )
        optimizer.step(weights, clipped(gradients, self.job.schedule.max_gradient_norm), rate)
        for name, value in values.items():
            # In place, since compiled chains hold the addresses of params
            self.params[name].copy_(value.detach())
        return loss.detach()

    def _differentiated(
        self, phase: Phase, weights: list[torch.Tensor], batch: Batch, context: Context
    ) -> tuple[torch.Tensor, list[torch.Tensor], Params]:
        """Return an update's loss, its gradients and the variables that it assigns, by torch."""
        with precision(self.job.schedule.precision, self.trainer.device):
            loss, values = capabilities.loss_and_values(
                phase.objective, self.forward, self.params, batch, context
            )
        gradients = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
        return loss, list(gradients), values

    def _context(self) -> Context:
        """Return the context of the objective: the weights at the start, and the job's extras."""
        names = (name for name in self.trained if name not in self.job.variables)
        anchor = {name: _start(self.params[name], self.job.weights[name]) for name in names}
        return Context(anchor, self.trainer.extras.all(self.job.extra))

    def _planned(
        self,
        order: torch.Tensor,
        sizes: Sequence[int],
        batches: JobBatches,
        context: Context,
        numbers: np.random.Generator,
    ) -> Iterator[tuple[torch.Tensor, list[torch.Tensor], Context]]:
        """Yield the samples' numbers, places and context of each batch of an epoch.

        All indices and draws of the epoch go to the device together.
        """
        parts = torch.split(order[: sum(sizes)], list(sizes))
        objective, extra = self.job.objective, self.job.extra
        places = [batches.places(rows) for rows in parts]
        draws = [capabilities.draw(objective, numbers, len(rows), extra) for rows in parts]
        flat = [
            tensor
            for own, drawn in zip(places, draws, strict=True)
            for tensor in (*own, *(torch.tensor(array) for array in drawn.values()))
        ]
        moved = iter(upload_all(flat, self.trainer.device, "plan"))
        for rows, own, drawn in zip(parts, places, draws, strict=True):
            there = [next(moved) for _ in own]
            if not drawn:
                yield rows, there, context
            else:
                given = {name: next(moved) for name in drawn}
                yield rows, there, Context(context.anchor, context.extra, given)


def _start(param: torch.Tensor, array: Array) -> torch.Tensor:
    """Return a weight before training: the job's own array, where it can be used as it is."""
    if param.device.type == "cpu" and array.flags.c_contiguous and array.flags.writeable:
        shared = torch.from_numpy(array)
        if shared.dtype == param.dtype:
            return shared
    return param.detach().clone()


def _summed_loss(loss: LossName, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the sum of a batch's losses, in float64."""
    if loss == "cross_entropy":
        return functional.cross_entropy(logits, targets, reduction="sum").double()
    mean = UserLoss(loss) if is_user_loss(loss) else SquaredError()
    return mean.of(logits, targets).double() * len(targets)


class _Outputs:
    """The outputs of a test, which wait on a GPU until there are many, and are read together.

    Args:
        device: of the outputs.
        labelled: whether hits are counted.
        measures: of the test.
    """

    def __init__(self, device: torch.device, labelled: bool, measures: Measures) -> None:
        self._most = WAITING_OUTPUTS if is_remote(device) else 0
        self._labelled = labelled
        self._measures = measures
        self._waiting: list[torch.Tensor] = []
        self._bytes = 0
        self._logits: list[torch.Tensor] = []
        self._targets: list[torch.Tensor] = []
        self.total = 0.0
        self.tally = Tally(measures)

    def add(self, loss: torch.Tensor, logits: torch.Tensor, batch: Batch) -> None:
        """Add a batch's outputs and the sum of its losses."""
        self._waiting += [loss, logits.float(), logits.argmax(dim=1), batch.targets]
        self._bytes += logits.nbytes
        if self._bytes >= self._most:
            self.read()

    def read(self) -> None:
        """Count the outputs that wait."""
        if self._waiting:
            host = download_all(self._waiting, "outputs")
            self._waiting, self._bytes = [], 0
            for place in range(0, len(host), 4):
                self._count(*host[place : place + 4])

    def _count(
        self,
        loss: torch.Tensor,
        logits: torch.Tensor,
        predicted: torch.Tensor,
        targets: torch.Tensor,
    ) -> None:
        self.total += float(loss)
        if self._labelled:
            # Soft targets count as the label with the largest share
            labels = targets if targets.dim() == 1 else targets.argmax(dim=1)
            self.tally.add(logits.numpy(), predicted.numpy(), labels.numpy())
        if self._measures.metrics:
            self._logits.append(logits)
            self._targets.append(targets)

    def fractions(self) -> dict[str, tuple[float, float]]:
        """Return users' own metrics of all outputs."""
        if not self._measures.metrics:
            return {}
        return measured(self._measures.metrics, torch.cat(self._logits), torch.cat(self._targets))


def _ignore(_fraction: float) -> None:
    """Tell nobody."""


def _never() -> bool:
    """Never stop."""
    return False
