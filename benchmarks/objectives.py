"""Local training of the baselines on LeNet-5, against FedAvg's on the same samples.

Each method plays two rounds on two devices, so that its state differs from zero. The training of
the next task is then measured, of Ditto that of the own model: one thread, CPU time, in turn; a
ratio is the median of the ratios of neighbours in time. Batches of 20, 28 x 28 pixels, 62 classes.

    python -m benchmarks.objectives [--repeats 15] [--steps 40] [--json]
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import numpy as np

from benchmarks.shared.harness import cpu_seconds, in_turn, median_ratio, parser, show
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.device_side import WorkSequence
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.config.recipes.recipe import Recipe
from edgefed.files.samples import Samples
from edgefed.learn.base.processors import set_threads
from edgefed.learn.base.types import Job
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.testing.play import Players, asked

BATCH, CLASSES, SHAPE = 20, 62, (1, 28, 28)

METHODS: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {},
    "fedprox": {"mu": 0.01},
    "scaffold": {},
    "feddyn": {"alpha": 0.01},
    "ditto": {},
    "moon": {},
}


def training(name: str, settings: Mapping[str, Any], steps: int) -> Callable[[], object]:
    """Return the local training of a method's third round on one device."""
    recipe = Recipe.model_validate(
        {
            "model": {"name": "lenet5"},
            "algorithm": {"name": name, **settings},
            "training": {"batch_size": BATCH, "learning_rate": 0.01},
            "rounds": {"count": 3},
        }
    )
    rng = np.random.default_rng(1)
    count = BATCH * steps
    parts = [
        Samples(
            rng.standard_normal((count, *SHAPE), dtype=np.float32),
            rng.integers(0, CLASSES, count),
        )
        for _ in range(2)
    ]
    half = make(recipe)
    players = Players(parts, Trainer(build(recipe.model, SHAPE, CLASSES, 1), "cpu"))
    state = players.start(half)
    for _ in range(2):
        planned = half.plan(state, players.roster, 1)
        assert isinstance(planned, Exchange)
        state = half.merge(state, asked(planned), players.answers(half, planned))
    planned = half.plan(state, players.roster, 1)
    assert isinstance(planned, Exchange)
    question = planned.questions[0]
    view = players.view(question.device)
    work = half.prepare(players.task(planned, question), view)
    if isinstance(work, WorkSequence):
        work = cast(Job, work.works[-1])
    assert isinstance(work, Job)
    return partial(players.do, work, view)


def main() -> None:
    """Measure and print."""
    options = parser("objectives", __doc__, repeats=15, steps=40).parse_args()
    set_threads(1)
    calls = {
        name: partial(cpu_seconds, training(name, settings, options.steps))
        for name, settings in METHODS.items()
    }
    seconds = in_turn(calls, options.repeats, warm=2)
    ratios = {name: median_ratio(own, seconds["fedavg"]) for name, own in seconds.items()}
    rows = [
        {
            "method": name,
            "milliseconds_per_step": 1000 * statistics.median(own) / options.steps,
            "ratio": ratios[name],
        }
        for name, own in seconds.items()
    ]
    short = {f"{name}_ratio": ratio for name, ratio in ratios.items() if name != "fedavg"}
    show(options, {**short, "rows": rows})


if __name__ == "__main__":
    main()
