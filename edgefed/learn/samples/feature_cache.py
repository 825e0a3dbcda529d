"""The inputs of the output layer, computed once where everything below it is frozen.

A frozen network without augmentation computes the same features of a sample in every epoch and
round. They are computed in batches of a fixed size, so the same samples give the same bits, and
kept while a reference to the samples exists. A training step then costs one linear layer.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch.nn import functional

from edgefed.learn.base.processors import repeatable
from edgefed.learn.base.types import Job, Params, Samples
from edgefed.learn.modeling.model import Model
from edgefed.learn.samples.sample_cache import CachedSamples, SampleCache
from edgefed.learn.steps.capabilities import is_single_pass

FEATURE_BATCH = 64
"""Samples that are put through the frozen layers at a time."""


class FeatureCache:
    """Features of samples on the training device.

    Args:
        model: trains its output layer only.
        samples: the samples on the device.
        device: where features are computed and kept.
    """

    def __init__(self, model: Model, samples: SampleCache, device: torch.device) -> None:
        self._model = model
        self._samples = samples
        self._device = device
        self._kept: WeakKeyDictionary[Samples, CachedSamples] = WeakKeyDictionary()

    def get(self, samples: Samples) -> CachedSamples:
        """Return features in place of the samples' inputs, with their targets.

        Raises:
            DataError: the model cannot be trained or tested on them.
        """
        kept = self._kept.get(samples)
        if kept is None:
            data = self._samples.get(samples)
            kept = CachedSamples(self._features(data, len(samples)), data.targets)
            self._kept[samples] = kept
        return kept

    def held_bytes(self) -> int:
        """Return the bytes of all features."""
        return sum(kept.inputs.nbytes for kept in self._kept.values())

    def forward(self, params: Params, inputs: torch.Tensor) -> torch.Tensor:
        """Return the logits (batch, classes) of features, the ``inputs`` (batch, width)."""
        layer = self._model.output_layer.name
        weight, bias = (f"{layer}.{kind}" if layer else kind for kind in ("weight", "bias"))
        return functional.linear(inputs, params[weight], params.get(bias))

    @torch.no_grad()
    def _features(self, data: CachedSamples, count: int) -> torch.Tensor:
        """Return the features (count, width) of samples, computed in evaluation mode."""
        model = self._model
        model.module.eval()
        all_features = torch.empty(
            count, model.output_layer.width, dtype=model.float_dtype, device=self._device
        )
        with repeatable(self._device):
            for start in range(0, count, FEATURE_BATCH):
                batch = data.part(start, start + FEATURE_BATCH)
                # No weights are lent: the frozen layers have their own
                _, features = model.forward_with_features({}, batch.inputs)
                all_features[start : start + len(features)] = features
        return all_features


def trains_on_features(model: Model, job: Job) -> bool:
    """Return whether a job's steps need only the features of its samples.

    This holds if the objective calls the model once per step on the batch's own inputs, nothing
    changes these inputs, and no state is carried from batch to batch.
    """
    as_they_are = job.augment is None and not job.schedule.carry_state
    return model.trains_head_only and as_they_are and is_single_pass(job.objective)
