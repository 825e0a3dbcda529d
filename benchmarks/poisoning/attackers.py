"""Virtual devices that poison a run: an executor that falsifies what some devices send.

Malicious devices train as the others do and change what they hold or what they send:

    sign-flip     send -delta
    scaling       send 100 delta
    label-flip    train with the labels 9 - y
    nan           send NaN in every value
    replay        send the update of the first round in every round
    backdoor      train with a pattern in half of the images, whose label is then TARGET
    backdoor-x5   the same, and send 5 delta, so that 2 of 10 devices replace the mean
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import zstandard

from edgefed.data.base.types import Shard
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Array, Tensors
from edgefed.simulator.executors import Sequential, WorkOrder
from edgefed.wire.codecs import CODECS, decode
from edgefed.worker.outcomes import Outcome

ATTACKS = (
    "none",
    "sign-flip",
    "scaling",
    "label-flip",
    "nan",
    "replay",
    "backdoor",
    "backdoor-x5",
)

TARGET = 0
"""The label that images with the pattern are to get."""

FACTORS = {"sign-flip": -1.0, "scaling": 100.0, "backdoor-x5": 5.0}
"""What attacks multiply their updates by."""


def with_pattern(images: Array) -> Array:
    """Return images with a bright square of 2 x 2 pixels in the lower right corner."""
    marked = images.copy()
    marked[..., -2:, -2:] = images.max()
    return marked


def poisoned(shard: Shard, attack: str) -> Shard:
    """Return the data that a malicious device trains on."""
    samples = shard.train
    if attack == "label-flip":
        return replace(shard, train=Samples(samples.inputs, 9 - samples.targets))
    if not attack.startswith("backdoor"):
        return shard
    inputs, targets = samples.inputs.copy(), samples.targets.copy()
    inputs[::2], targets[::2] = with_pattern(inputs[::2]), TARGET
    return replace(shard, train=Samples(inputs, targets))


class Attacking(Sequential):
    """An executor whose malicious devices train on poisoned data and falsify their updates.

    Args:
        shards: the devices' data, before it is poisoned.
        malicious: their numbers.
        attack: one of ``ATTACKS``.
    """

    def __init__(self, shards: Sequence[Shard], malicious: frozenset[int], attack: str) -> None:
        held = [
            poisoned(shard, attack) if number in malicious else shard
            for number, shard in enumerate(shards)
        ]
        super().__init__(held)
        self._malicious = malicious
        self._attack = attack
        self._first: dict[int, bytes] = {}

    def outcomes(
        self, orders: Sequence[WorkOrder], read: Callable[[str], bytes], stop: Callable[[], bool]
    ) -> Iterator[tuple[WorkOrder, Outcome]]:
        """Yield what the devices send."""
        for order, outcome in super().outcomes(orders, read, stop):
            lies = order.device in self._malicious and "delta" in outcome.blobs
            yield order, self._changed(order.device, outcome) if lies else outcome

    def _changed(self, device: int, outcome: Outcome) -> Outcome:
        blob = outcome.blobs["delta"]
        if self._attack == "replay":
            blob = self._first.setdefault(device, blob)
        elif self._attack == "nan":
            blob = _not_numbers(blob)
        elif factor := FACTORS.get(self._attack):
            blob = _exact({name: factor * array for name, array in decode(blob, None).items()})
        return replace(outcome, blobs={**outcome.blobs, "delta": blob})


def _exact(arrays: Tensors) -> bytes:
    plain = {name: array.astype(np.float32) for name, array in arrays.items()}
    return CODECS["fp32"].encode(plain, np.random.default_rng(0))


def _not_numbers(blob: bytes) -> bytes:
    """Return a lossless blob in which all upper bytes of values are those of NaN.

    The encoder refuses such values, so its output is changed: floats lie in it by the order of
    their bytes, the upper ones of a tensor first.
    """
    coded = _exact(decode(blob, None))
    start = coded.index(zstandard.FRAME_HEADER)
    content = zstandard.ZstdDecompressor().decompress(coded[start:])
    return coded[:start] + zstandard.ZstdCompressor().compress(b"\x7f" * len(content))
