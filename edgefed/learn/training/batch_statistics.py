"""Re-estimate the statistics of batch normalisation from samples: exact means and variances.

After weights are matched, averaged or otherwise changed without training, running statistics no
longer describe the inputs of the layers. This module measures them again, over all samples at once
and without augmentation or dropout.

A layer's input depends on how the layers before it normalise. Each of them normalises with its new
statistics, so the result equals that of training mode with all samples in one batch, as in a
device's own training. Behind the first normalisation, devices then normalise differently. Layers in
``known`` instead normalise with the statistics that the weights hold, which are the same on all
devices. If all layers before a layer are known, pooling the measurements of devices
(``pooled_statistics``) gives the statistics over the union of their samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from edgefed.errors import DataError
from edgefed.learn.base.processors import repeatable
from edgefed.learn.base.torch_private import BatchNorm
from edgefed.learn.base.transfers import download
from edgefed.learn.base.types import Array, Params, Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.samples.jobs import diverged, load
from edgefed.learn.samples.sample_cache import EVAL_BATCH, SampleCache, channels_last, check_inputs
from edgefed.learn.training.trainer import Stopped, Trainer

MEAN, VARIANCE = "running_mean", "running_var"
"""Names of a layer's statistics in the model's weights, behind its own name."""


def normalised_layers(model: Model) -> tuple[str, ...]:
    """Return the names of the batch normalisation layers that have running statistics."""
    return tuple(
        name
        for name, part in model.module.named_modules()
        if isinstance(part, BatchNorm) and f"{name}.{MEAN}" in model.names
    )


@torch.no_grad()
def batch_statistics(
    trainer: Trainer,
    weights: Tensors,
    inputs: Array,
    known: frozenset[str] = frozenset(),
    progress: Callable[[float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Tensors:
    """Return mean and variance of the inputs of each batch normalisation layer, by weight.

    Variances are those of a normalisation in training: divided by the number of values, not by one
    less. More than ``EVAL_BATCH`` inputs take one pass per layer, up to this layer.

    Args:
        trainer: has the model.
        weights: of the model.
        inputs: (n, …), at least one.
        known: names of layers that normalise with the statistics of ``weights``; they are measured
            too.
        progress: called with the share done, 0 to 1.
        stop: called before each batch of a pass.

    Raises:
        Stopped: ``stop`` answered True.
        DataError: no inputs, inputs or weights that are not the model's, ``model.layer``: the model
            has no such layer in ``known``, or ``train.diverged``: they are no finite numbers.
    """
    model = trainer.model
    _check(model, weights, inputs, known)
    params = load(model, weights, trainer.device)
    layers = normalised_layers(model)
    measuring = _Measuring(params, known, in_one_pass=len(inputs) <= EVAL_BATCH)
    model.module.eval()
    with repeatable(trainer.device), _watched(model, layers, measuring):
        done, before = 0, -1
        # Ends also where a pass reaches no further layer
        while before < done < len(layers):
            _pass(trainer, params, inputs, measuring, stop)
            before, done = done, len(measuring.measured)
            if progress is not None:
                progress(done / len(layers))
    return _finite(measuring.measured, model, params)


@dataclass
class _Moments:
    """Mean and variance of the values so far by channel, in float64, and their number."""

    count: int = 0
    mean: Array = field(default_factory=lambda: np.zeros(1))
    variance: Array = field(default_factory=lambda: np.zeros(1))

    def add(self, values: torch.Tensor) -> None:
        """Take values (batch, channels, …)."""
        axes = [axis for axis in range(values.dim()) if axis != 1]
        moments = torch.var_mean(values, axes, correction=0)
        pair = download(torch.stack(moments).double(), "statistics")
        variance, mean = pair.numpy()
        count = values.numel() // values.shape[1]
        share = count / (self.count + count)
        apart = mean - self.mean
        # The variances within both parts, and the variance between their means
        self.variance = (
            (1 - share) * self.variance + share * variance + share * (1 - share) * apart**2
        )
        self.mean = self.mean + share * apart
        self.count += count


class _Reached(Exception):  # noqa: N818 - nothing went wrong
    """A pass has reached a layer that cannot normalise yet."""


@dataclass
class _Measuring:
    """The measurements of the passes so far.

    Attributes:
        params: the weights that the model computes with.
        known: names of layers that need not be measured before they normalise.
        in_one_pass: whether one batch holds all inputs.
        measured: moments by layer.
        current: moments of the layers that this pass is the first to reach.
    """

    params: Params
    known: frozenset[str]
    in_one_pass: bool
    measured: dict[str, _Moments] = field(default_factory=dict)
    current: dict[str, _Moments] = field(default_factory=dict)

    def see(self, name: str, _module: nn.Module, taken: tuple[Any, ...]) -> None:
        """Measure a layer's input before the layer normalises it.

        Raises:
            _Reached: all inputs must come this far before the layer can normalise one.
        """
        if name in self.measured:
            return
        self.current.setdefault(name, _Moments()).add(taken[0])
        if name in self.known:
            return
        if not self.in_one_pass:
            raise _Reached
        self.settle(name, self.current.pop(name))

    def finish_pass(self) -> None:
        """Settle the layers that all inputs have reached."""
        for name, moments in self.current.items():
            self.settle(name, moments)
        self.current = {}

    def settle(self, name: str, moments: _Moments) -> None:
        """Keep the measurement of a layer, and let the layer normalise with it unless known."""
        self.measured[name] = moments
        if name not in self.known:
            for part, array in ((MEAN, moments.mean), (VARIANCE, moments.variance)):
                self.params[f"{name}.{part}"].copy_(torch.from_numpy(array))


@contextmanager
def _watched(model: Model, layers: tuple[str, ...], measuring: _Measuring) -> Iterator[None]:
    """Observe the inputs of all layers."""
    with ExitStack() as stack:
        for name in layers:
            layer = model.module.get_submodule(name)
            hook = layer.register_forward_pre_hook(partial(measuring.see, name))
            stack.callback(hook.remove)
        yield


def _pass(
    trainer: Trainer,
    params: Params,
    inputs: Array,
    measuring: _Measuring,
    stop: Callable[[], bool] | None,
) -> None:
    """Put all inputs through the model, as far as its layers can normalise."""
    cache = SampleCache(trainer.model, trainer.device)
    for start in range(0, len(inputs), EVAL_BATCH):
        if stop is not None and stop():
            raise Stopped("The measurement was stopped.", hint="the task can be sent again")
        part = cache.inputs(inputs[start : start + EVAL_BATCH])
        with suppress(_Reached):
            trainer.model.forward(params, channels_last(part))
    measuring.finish_pass()


def _check(model: Model, weights: Tensors, inputs: Array, known: frozenset[str]) -> None:
    """Check that there is something to measure, with weights and inputs of this model."""
    model.check(weights)
    check_inputs(inputs, model)
    if not len(inputs):
        raise DataError(
            "There are no samples to measure the statistics of batch normalisation with.",
            code="data.empty",
            hint="give this device data, or exclude it from training",
        )
    strange = sorted(known - set(normalised_layers(model)))
    if strange:
        raise DataError(
            f"The model has no batch normalisation layer {strange[0]} with running statistics.",
            code="model.layer",
            hint="name layers of the model",
        )


def _finite(measured: dict[str, _Moments], model: Model, params: Params) -> Tensors:
    """Return moments as weights, in the model's own order and kind of number."""
    arrays = {
        f"{name}.{part}": array
        for name, moments in measured.items()
        for part, array in ((MEAN, moments.mean), (VARIANCE, moments.variance))
    }
    kind = model.float_kind
    statistics = {name: arrays[name].astype(kind) for name in model.names if name in arrays}
    if not all(np.isfinite(array).all() for array in statistics.values()):
        raise diverged("the statistics of batch normalisation are")
    return statistics
