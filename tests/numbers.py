"""Data whose targets are numbers: made by a linear rule, so that the best answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefed.data.base.types import Shard
from edgefed.files.samples import Samples

FEATURES = 3
RULE = np.array([[1.5, -0.5], [-2.0, 0.25], [0.5, 3.0]])
"""What two outputs make of three inputs."""

Floats = npt.NDArray[np.floating[Any]]


def numbers(count: int, seed: int, outputs: int = 2) -> Samples:
    """Return samples whose targets are a linear rule of their inputs, an offset and some noise."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((count, FEATURES))
    noise = rng.standard_normal((count, outputs))
    targets = inputs @ RULE[:, :outputs] - 0.75 + 0.3 * noise
    return Samples(inputs.astype(np.float32), targets.astype(np.float32))


def numbered_shards(sizes: tuple[int, ...], tested: int = 0) -> tuple[Shard, ...]:
    """Return a shard of each size, each with ``tested`` samples kept for evaluation."""
    return tuple(
        Shard(numbers(size, 10 + place), numbers(tested, 50 + place), 2)
        for place, size in enumerate(sizes)
    )


def write_numbers(path: Path, count: int = 60, tests: int = 20, outputs: int = 2) -> Path:
    """Write such samples as an NPZ file, one output as a plain row of floats."""
    train, test = numbers(count, 1, outputs), numbers(tests, 2, outputs)
    arrays: dict[str, Any] = {"x_train": train.inputs, "x_test": test.inputs}
    for name, part in (("y_train", train), ("y_test", test)):
        arrays[name] = part.targets[:, 0] if outputs == 1 else part.targets
    np.savez(path, **arrays)
    return path


def least_squares(samples: Samples) -> tuple[Floats, Floats]:
    """Return the weights (features, outputs) and offsets (outputs,) that fit ``samples`` best."""
    wide = np.hstack([samples.inputs, np.ones((len(samples), 1))]).astype(np.float64)
    best: Floats = np.linalg.lstsq(wide, samples.targets.astype(np.float64), rcond=None)[0]
    return best[:-1], best[-1]
