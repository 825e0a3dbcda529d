"""Every codec on deltas from real training: bytes, cosine, encode and decode speed.

A device with three of the ten digits trains two local epochs from weights after some rounds of
averaging, and its delta is encoded. The models: the demo's CNN, LeNet-5 and a VGG on digits scaled
up to 28x28 and 32x32. MB/s counts float32 bytes; one thread, CPU time, the median of several runs.

With ``--participation ROUNDS``, the bytes that a device is sent where ten of 100 take part in a
round (``benchmarks.wire.participation``).

    python -m benchmarks.wire [--repeats 5] [--participation ROUNDS [--model lenet5]] [--json]
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.shared.harness import cpu_seconds, parser, show
from benchmarks.wire.participation import rows as participation_rows
from benchmarks.wire.participation import trained_versions
from edgefed.config.recipes.recipe import DataSection, ModelSection
from edgefed.data.sets.datasets import load
from edgefed.files.samples import Samples
from edgefed.learn.base.processors import set_threads
from edgefed.learn.base.types import Job, Schedule, Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.training.trainer import Trainer
from edgefed.wire.codecs import CODECS, decode
from edgefed.wire.tensors import specs_of

MODELS = {"cnn": 8, "lenet5": 28, "vgg9": 32}
"""Models, and the side that the digits are scaled up to."""


def delta(name: str, side: int) -> Tensors:
    """Return what local training on three digits changes after a warm-up on all of them."""
    train = load(DataSection(), None, 0).train
    channels = 3 if name == "vgg9" else 1
    warm = _scaled(train, side, channels, np.arange(0, len(train), 2))
    skewed = _scaled(train, side, channels, np.flatnonzero(train.targets < 3)[:120])
    model = build(ModelSection(name=name), warm.inputs.shape[1:], 10, 1)
    trainer = Trainer(model, "cpu")
    start = trainer.train(_job(model.weights(), 1, 1), warm).weights
    after = trainer.train(_job(start, 2, 2), skewed).weights
    return {key: after[key] - start[key] for key in start}


def _job(weights: Tensors, epochs: int, seed: int) -> Job:
    return Job(weights, CrossEntropy(), Schedule(epochs=epochs, learning_rate=0.05), seed)


def _scaled(samples: Samples, side: int, channels: int, chosen: np.ndarray[Any, Any]) -> Samples:
    where = np.arange(side) * 8 // side
    inputs = samples.inputs[chosen][:, :, where][:, :, :, where]
    return Samples(np.repeat(inputs, channels, axis=1), samples.targets[chosen])


def participation(name: str, rounds: int) -> list[dict[str, Any]]:
    """Return the bytes a device with every codec, where few devices take part in a round."""
    train = load(DataSection(), None, 0).train
    side, channels = MODELS.get(name, 32), 3 if name in ("vgg9", "resnet18") else 1
    versions = trained_versions(name, _scaled(train, side, channels, np.arange(len(train))), rounds)
    return [row for codec in CODECS for row in participation_rows(name, versions, codec)]


def row(model: str, codec: str, arrays: Tensors, repeats: int) -> dict[str, Any]:
    """Return one codec's figures on one delta."""
    size = sum(array.nbytes for array in arrays.values())
    blob = CODECS[codec].encode(arrays, np.random.default_rng(0))
    specs = specs_of(arrays)
    encode_s = _median(lambda: CODECS[codec].encode(arrays, np.random.default_rng(0)), repeats)
    decode_s = _median(lambda: decode(blob, specs), repeats)
    back = decode(blob, specs)
    before, after = _flat(arrays), _flat(back)
    cosine = float(before @ after / (np.linalg.norm(before) * np.linalg.norm(after)))
    return {
        "model": model,
        "codec": codec,
        "bytes": len(blob),
        "ratio": size / len(blob),
        "cosine": cosine,
        "encode_mb_s": size / 1e6 / encode_s,
        "decode_mb_s": size / 1e6 / decode_s,
    }


def _flat(arrays: Tensors) -> np.ndarray[Any, Any]:
    return np.concatenate([array.ravel() for array in arrays.values()]).astype(np.float64)


def _median(work: Callable[[], object], repeats: int) -> float:
    def three_times() -> None:
        for _ in range(3):
            work()

    return max(statistics.median(cpu_seconds(three_times) / 3 for _ in range(repeats)), 1e-9)


def main() -> None:
    """Measure and print."""
    arguments = parser("wire", __doc__, repeats=5)
    arguments.add_argument("--participation", type=int, metavar="ROUNDS", default=0)
    arguments.add_argument("--model", choices=[*MODELS, "resnet18"], default="lenet5")
    options = arguments.parse_args()
    set_threads(1)
    if options.participation:
        show(options, {"rows": participation(options.model, options.participation)})
        return
    rows = []
    for model, side in MODELS.items():
        arrays = delta(model, side)
        rows += [row(model, codec, arrays, options.repeats) for codec in CODECS]
    show(options, {"rows": rows})


if __name__ == "__main__":
    main()
