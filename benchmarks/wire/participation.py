"""Bytes that a device is sent in a round in which one device of ten takes part.

A hundred devices share the digits, and each round ten of them, drawn at random, train one epoch;
their mean is the next version. The same versions then go through the downlink of every codec to
devices that hold what they were sent last. ``before`` leaves out exact patches: the last four
differences, or the whole weights in fp32.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgefed.algorithms.interface.exchange import Payload
from edgefed.config.recipes.recipe import ModelSection
from edgefed.coordinator.exchanges.downlink_encoder import DownlinkEncoder
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Job, Schedule, Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.training.trainer import Trainer
from edgefed.wire.blobs import BlobCache
from edgefed.wire.message_parts import BlobRef
from edgefed.wire.patch_assembly import route

DEVICES, COHORT = 100, 10


@dataclass
class Versions:
    """A run without its messages: the weights of each round, and the devices asked.

    Attributes:
        weights: that devices start from, by round.
        cohorts: numbers of the devices asked, by round.
    """

    weights: list[Tensors] = field(default_factory=list)
    cohorts: list[list[int]] = field(default_factory=list)


def trained_versions(model: str, samples: Samples, rounds: int) -> Versions:
    """Return the versions of a model over some rounds of federated averaging."""
    rng = np.random.default_rng(1)
    shards = np.array_split(rng.permutation(len(samples)), DEVICES)
    trainer = Trainer(build(ModelSection(name=model), samples.inputs.shape[1:], 10, 1), "cpu")
    weights, versions = trainer.model.weights(), Versions()
    for number in range(rounds):
        cohort = sorted(rng.choice(DEVICES, COHORT, replace=False).tolist())
        versions.weights.append(weights)
        versions.cohorts.append(cohort)
        if number == rounds - 1:
            break
        schedule = Schedule(epochs=1, batch_size=8, learning_rate=0.05)
        ends = [
            trainer.train(
                Job(weights, CrossEntropy(), schedule, number * DEVICES + device),
                Samples(samples.inputs[shards[device]], samples.targets[shards[device]]),
            ).weights
            for device in cohort
        ]
        weights = {
            name: np.mean([end[name] for end in ends], axis=0).astype(array.dtype)
            for name, array in weights.items()
        }
    return versions


def rows(model: str, versions: Versions, codec: str) -> list[dict[str, Any]]:
    """Return the bytes a device in rounds of interest, before and with exact patches."""
    size = sum(array.nbytes for array in versions.weights[0].values())
    before, after = (_fetched(versions, codec, exact=exact) for exact in (False, True))
    last = len(before) - 1
    return [
        {
            "model": model,
            "codec": codec,
            "round": number + 1,
            "bytes_before": before[number],
            "bytes": after[number],
            "models_before": before[number] / size,
            "models": after[number] / size,
        }
        for number in sorted({0, 1, 2, last // 2, last})
    ]


def _fetched(versions: Versions, codec: str, *, exact: bool) -> list[float]:
    """Return the mean of the bytes that the devices of each round fetch."""
    held: dict[str, set[str]] = {}
    fetched = []
    with tempfile.TemporaryDirectory() as folder:
        downlink = DownlinkEncoder(codec, BlobCache(Path(folder), 1 << 34))
        for number, weights in enumerate(versions.weights):
            devices = [str(device) for device in versions.cohorts[number]]
            ref = downlink.send("weights", Payload(weights), number, devices if exact else ())
            refs = {device: downlink.for_device(ref, "weights", device) for device in devices}
            downlink.asked("weights", devices if exact else ())
            downlink.committed()
            fetched.append(sum(_fetch(refs, held).values()) / len(devices))
    return fetched


def _fetch(refs: Mapping[str, BlobRef], held: dict[str, set[str]]) -> dict[str, int]:
    """Return the bytes that each device fetches, and note what it then holds."""
    fetched = {}
    for device, ref in refs.items():
        way = route(ref, held.get(device, set()).__contains__)
        fetched[device] = sum(size for _, size in way.fetch)
        held[device] = {ref.digest}
    return fetched
