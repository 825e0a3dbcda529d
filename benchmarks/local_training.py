"""An epoch of LeNet-5: a plain loop, EdgeFed's trainer on torch alone, and with its kernels.

The workload of ``sim_vs_peers.py``: 230 samples, batches of 20. One thread, CPU time. Each variant
has its own processes, which alternate, so that a busy machine slows all of them.

    python -m benchmarks.local_training [--epochs 20] [--repeats 3] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.peers.work import BATCH, CLASSES, RATE, SAMPLES, epoch, lenet
from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.base.processors import set_threads
from edgefed.learn.base.types import Array, Job, Samples, Schedule
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.training.trainer import Trainer

VARIANTS = {"plain loop": "", "torch": "0", "kernels": "1"}
"""What is measured, and EDGEFED_NATIVE for EdgeFed's own."""


def plain() -> Callable[[], object]:
    """Return an epoch as torch's users write it."""
    model, (inputs, labels) = lenet(), noise()
    start = {name: part.clone() for name, part in model.state_dict().items()}
    images, targets = torch.from_numpy(inputs), torch.from_numpy(labels)

    def run() -> None:
        model.load_state_dict(start)
        epoch(model, images, targets)

    return run


def ours() -> Callable[[], object]:
    """Return an epoch of EdgeFed's trainer."""
    model, samples = build(ModelSection(name="lenet5"), (1, 28, 28), CLASSES, 0), Samples(*noise())
    trainer, schedule = Trainer(model, "cpu"), Schedule(batch_size=BATCH, learning_rate=RATE)
    job = Job(model.weights(), CrossEntropy(), schedule, seed=1)
    return lambda: trainer.train(job, samples)


def noise() -> tuple[Array, Array]:
    """Return a client's samples."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((SAMPLES, 1, 28, 28), dtype=np.float32)
    return inputs, rng.integers(0, CLASSES, SAMPLES)


def milliseconds(run: Callable[[], object], epochs: int) -> float:
    """Return the median CPU time of an epoch, after some to warm up."""
    times = []
    for number in range(epochs + 3):
        began = time.process_time()
        run()
        if number >= 3:
            times.append(time.process_time() - began)
    return 1000 * statistics.median(times)


def measure(epochs: int, repeats: int) -> dict[str, float]:
    """Return the median of each variant over processes that take turns."""
    found: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(repeats):
        for name, switch in VARIANTS.items():
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "EDGEFED_NATIVE": switch}
            words = ["-m", "benchmarks.local_training", "--one", name, "--epochs", str(epochs)]
            command = [sys.executable, *words]
            told = subprocess.run(command, env=environment, capture_output=True, check=True)
            found[name].append(float(told.stdout))
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.local_training", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", choices=VARIANTS, help="measure one variant, in this process")
    arguments = parser.parse_args()
    if arguments.one:
        set_threads(1)
        run = plain() if arguments.one == "plain loop" else ours()
        print(milliseconds(run, arguments.epochs))
        return
    times = measure(arguments.epochs, arguments.repeats)
    ratios = {name: times["plain loop"] / each for name, each in times.items()}
    if arguments.json:
        print(json.dumps({"ms": times, "ratio_to_plain": ratios}))
        return
    print(f"{'':<12}{'ms/client':>10}{'x plain':>9}")
    for name, each in times.items():
        print(f"{name:<12}{each:>10.2f}{ratios[name]:>9.2f}")


if __name__ == "__main__":
    main()
