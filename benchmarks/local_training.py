"""An epoch of LeNet-5: a plain loop, EdgeFed's trainer on torch alone, and with its kernels.

The workload of ``sim_vs_peers.py``: 230 samples, batches of 20. One thread, CPU time. Each variant
has its own processes, which alternate, so that a busy machine slows all of them.

    python -m benchmarks.local_training [--epochs 20] [--repeats 3] [--json]
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks.peers.work import BATCH, CLASSES, RATE, SAMPLES, epoch, lenet
from benchmarks.shared.harness import cpu_seconds, in_turn, parser, printed_by, show
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
    times = in_turn({"epoch": partial(cpu_seconds, run)}, epochs, warm=3)
    return 1000 * statistics.median(times["epoch"])


def apart(variant: str, epochs: int) -> float:
    """Return the milliseconds of a variant, measured in a process of its own."""
    environment = {"OMP_NUM_THREADS": "1", "EDGEFED_NATIVE": VARIANTS[variant]}
    words = ("--one", variant, "--epochs", str(epochs))
    return float(printed_by("local_training", *words, environment=environment))


def main() -> None:
    """Measure and print."""
    command = parser("local_training", __doc__, epochs=20, repeats=3)
    command.add_argument("--one", choices=VARIANTS, help="measure one variant, in this process")
    options = command.parse_args()
    if options.one:
        set_threads(1)
        print(milliseconds(plain() if options.one == "plain loop" else ours(), options.epochs))
        return
    found = in_turn({n: partial(apart, n, options.epochs) for n in VARIANTS}, options.repeats)
    times = {name: statistics.median(each) for name, each in found.items()}
    ratios = {name: times["plain loop"] / each for name, each in times.items()}
    show(options, {"ms": times, "ratio_to_plain": ratios})


if __name__ == "__main__":
    main()
