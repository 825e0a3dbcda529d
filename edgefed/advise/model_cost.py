"""How much longer one recipe's training takes than another's, measured on this machine.

Speeds in a profile are those of the model that a run has trained. A recipe with another model or
batch size is expected to take as many times longer on each device as it does here.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from edgefed.config.recipes.recipe import ModelSection
from edgefed.files.samples import Samples
from edgefed.files.writing import write_output
from edgefed.learn.base.types import Job, Schedule
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.training.trainer import Trainer

SAMPLES = 200
REPEATS = 5


def cost_ratio(
    model: Mapping[str, Any],
    batch_size: int,
    measured: Mapping[str, Any],
    measured_batch_size: int,
    shape: tuple[int, ...],
    classes: int,
    folder: Path,
) -> float:
    """Return the seconds per sample of a model, divided by those of the measured one.

    Args:
        model: ``[model]`` table of the recipe.
        batch_size: of the recipe.
        measured: ``[model]`` table of the run that measured the devices.
        measured_batch_size: of that run.
        shape: of one input of the devices.
        classes: number of labels.
        folder: keeps the result, so that a resumed advice has the same one.

    Raises:
        EdgeFedError: a model cannot be built, or the disk does not take the result.
    """
    if model == measured and batch_size == measured_batch_size:
        return 1.0
    words = json.dumps([model, batch_size, measured, measured_batch_size, shape], sort_keys=True)
    file = folder / f"cost-{hashlib.sha256(words.encode()).hexdigest()[:8]}.json"
    try:
        return float(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        pass
    here = _seconds(model, batch_size, shape, classes)
    ratio = here / _seconds(measured, measured_batch_size, shape, classes)
    write_output(file, json.dumps(ratio).encode())
    return ratio


def _seconds(
    model: Mapping[str, Any], batch_size: int, shape: tuple[int, ...], classes: int
) -> float:
    """Return the median CPU seconds of an epoch on a few samples of noise."""
    rng = np.random.default_rng(0)
    built = build(ModelSection.model_validate(dict(model)), shape, classes, 0)
    inputs = rng.standard_normal((SAMPLES, *shape), dtype=np.float32)
    samples = Samples(inputs, rng.integers(0, classes, SAMPLES))
    trainer = Trainer(built, "cpu")
    schedule = Schedule(batch_size=batch_size, learning_rate=1e-3)
    job = Job(built.weights(), CrossEntropy(), schedule, seed=1)
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        trainer.train(job, samples)
        times.append(time.process_time() - began)
    return median(times[1:])
