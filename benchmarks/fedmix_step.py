"""One training step of FedMix and its relatives, against a FedAvg step on batches of the same size.

LeNet-5 with batches of 20 and VGG-9 with batches of 10, as in the paper (Yoon et al., ICLR 2021).
One thread, CPU time. The variants alternate, so that a busy machine slows all of them; a ratio is
the median of the ratios of neighbours in time. There are two kinds of rows:

- as trained: steps of ``Trainer``, from one call of its ``progress`` to the next, on batches of
  noise, with averages packed as in a run. For small models, FedAvg and mixing both use the compiled
  chain (``edgefed/learn/compiled/compiled_chain.py``), if it was built.
- by torch: the same objectives with torch's graph, on one batch, compared with FedAvg by torch;
  also alternative computations of FedMix's third term. Memory is the maximum that tensors held at
  once during a step, without the weights.

Errors are those of the gradient, in float64 and in the float32 of training, compared with the
three terms of the formula in float64.

    python -m benchmarks.fedmix_step [--repeats 30] [--models lenet5 vgg9] [--json]
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from benchmarks.shared.harness import cpu_seconds, in_turn, median_ratio, parser, show
from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.base.processors import set_threads
from edgefed.learn.base.types import (
    Array,
    Batch,
    Context,
    Forward,
    Job,
    Objective,
    Params,
    Samples,
    Schedule,
)
from edgefed.learn.compiled.compiled_chain import chain_of
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.averaged_entries import DRAWN
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.fed_mix import FedMixObjective
from edgefed.learn.objectives.local_mix import LocalMixObjective
from edgefed.learn.objectives.naive_mix import NaiveMixObjective
from edgefed.learn.samples.sample_cache import channels_last
from edgefed.learn.steps import capabilities
from edgefed.learn.steps.capabilities import Phase
from edgefed.learn.steps.local_optimizers import Sgd
from edgefed.learn.training.trainer import Trainer
from edgefed.seeds import generator

RATIO = 0.05
ENTRIES = 60


@dataclass(frozen=True)
class Anchor:
    """What is trained: a model, its inputs' shape, its classes, the batch size, steps of a job."""

    name: str
    settings: dict[str, Any]
    shape: tuple[int, ...]
    classes: int
    batch: int
    steps: int


ANCHORS = {
    "lenet5": Anchor("lenet5", {}, (1, 28, 28), 62, 20, 16),
    "vgg9": Anchor("vgg9", {"dropout_layout": "fedmix"}, (3, 32, 32), 10, 10, 3),
}


def literal(
    forward: Forward, params: Params, batch: Batch, context: Context, *, ratio: float = RATIO
) -> torch.Tensor:
    """Return equation 5 term by term: a forward pass for each, and a derivative of the third."""
    which = context.draws[DRAWN]
    other, target = (context.extra[name][which].to(batch.inputs) for name in ("inputs", "targets"))
    targets = target.expand(len(batch.targets), -1)
    scaled = (1 - ratio) * batch.inputs
    first = functional.cross_entropy(forward(params, scaled), batch.targets)
    second = functional.cross_entropy(forward(params, scaled), targets)
    at = scaled.detach().requires_grad_()
    inner = functional.cross_entropy(forward(params, at), batch.targets)
    (slope,) = torch.autograd.grad(inner, at, create_graph=True)
    return (1 - ratio) * first + ratio * second + ratio * (slope * other).sum()


def backwards(forward: Forward, params: Params, batch: Batch, context: Context) -> torch.Tensor:
    """Return FedMix's loss by the double backward pass, whatever the network is."""
    return FedMixObjective(RATIO)(plain(forward), params, batch, context)


@lru_cache
def plain(forward: Forward) -> Forward:
    """Return a network that refuses what carries a tangent; the same one every time."""

    def checked(params: Params, inputs: torch.Tensor) -> torch.Tensor:
        if not isinstance(inputs, torch.Tensor):
            raise TypeError("a tensor is needed")
        return forward(params, inputs)

    return checked


TRAINED: dict[str, Objective] = {
    "FedAvg": CrossEntropy(),
    "NaiveMix": NaiveMixObjective(RATIO),
    "LocalMix": LocalMixObjective(1.0),
    "FedMix": FedMixObjective(RATIO),
}

BY_TORCH: dict[str, Objective] = {
    **TRAINED,
    "FedMix literal": literal,
    "FedMix double backward": backwards,
}


class Training:
    """A device's training, as it is, of one objective after another."""

    def __init__(self, anchor: Anchor) -> None:
        model = build(
            ModelSection(name=anchor.name, **anchor.settings), anchor.shape, anchor.classes, 1
        )
        rng = generator(1, "fedmix training", anchor.name)
        count = anchor.batch * anchor.steps
        inputs = rng.standard_normal((count, *anchor.shape), dtype=np.float32)
        self._samples = Samples(inputs, rng.integers(anchor.classes, size=count))
        self._extra: dict[str, Array] = {
            "inputs": rng.integers(256, size=(ENTRIES, *anchor.shape)).astype(np.uint8),
            "scale": np.full(ENTRIES, 0.01, np.float32),
            "offset": np.full(ENTRIES, -1.28, np.float32),
            "targets": rng.dirichlet(np.ones(anchor.classes), ENTRIES).astype(np.float32),
        }
        self._weights = model.weights()
        self._schedule = Schedule(batch_size=anchor.batch, learning_rate=1e-3)
        self._trainer = Trainer(model, "cpu")

    def seconds(self, objective: Objective) -> float:
        """Return the CPU seconds of a step, the mean of a job's but for the first one."""
        seen: list[float] = []
        job = Job(self._weights, objective, self._schedule, seed=1, extra=self._extra)
        self._trainer.train(job, self._samples, lambda _done: seen.append(time.process_time()))
        return (seen[-1] - seen[0]) / (len(seen) - 1)


class Step:
    """A model and a batch, and one step of an objective on them."""

    def __init__(self, anchor: Anchor, kind: torch.dtype, **settings: Any) -> None:
        section = ModelSection(name=anchor.name, **{**anchor.settings, **settings})
        self.model: Model = build(section, anchor.shape, anchor.classes, 1)
        self.model.module.to(kind).train()
        rng = generator(1, "fedmix step", anchor.name)
        inputs = rng.standard_normal((anchor.batch, *anchor.shape)).astype(np.float32)
        targets = rng.integers(anchor.classes, size=anchor.batch)
        self.batch = Batch(
            channels_last(torch.from_numpy(inputs).to(kind)), torch.from_numpy(targets)
        )
        means = rng.standard_normal((ENTRIES, *anchor.shape)).astype(np.float32)
        shares = rng.dirichlet(np.ones(anchor.classes), ENTRIES).astype(np.float32)
        self.extra = {"inputs": means, "targets": shares}
        self.loaded = {name: torch.from_numpy(array) for name, array in self.extra.items()}
        self.params = {
            name: torch.from_numpy(array).requires_grad_(name in self.model.parameter_names)
            for name, array in self.model.weights().items()
        }
        self.sgd = Sgd(Schedule())

    def context(self, objective: Objective) -> Context:
        """Return what the objective sees; every call draws alike."""
        torch.manual_seed(1)
        drawn = self._draw(objective)
        draws = {name: torch.from_numpy(array) for name, array in drawn.items()}
        return Context({}, self.loaded, draws)

    def trained(self, objective: Objective) -> list[torch.Tensor]:
        """Return the gradients of all weights as training takes them."""
        names = self.model.parameter_names
        size = len(self.batch.targets)
        chain = chain_of(self.model, Phase(objective, names), self.params, "fp32", size)
        quick = chain.gradients(self.batch, names, self.context(objective)) if chain else None
        return quick[1] if quick else self.gradients(objective)

    def gradients(self, objective: Objective) -> list[torch.Tensor]:
        """Return the gradients of all weights by torch."""
        context = self.context(objective)
        loss = objective(self.model.forward, self.params, self.batch, context)
        weights = [self.params[name] for name in self.model.parameter_names]
        return list(torch.autograd.grad(loss, weights))

    def __call__(self, objective: Objective) -> None:
        """Take a step."""
        gradients = self.gradients(objective)
        self.sgd.step([self.params[name] for name in self.model.parameter_names], gradients, 1e-6)

    def _draw(self, objective: Objective) -> dict[str, Any]:
        """Return the objective's draws; those of FedMix for plain functions."""
        drawing = objective if isinstance(objective, capabilities.Draws) else FedMixObjective(RATIO)
        return drawing.draw(generator(1, "draws"), len(self.batch.targets), self.extra)


def timed(step: Step, objective: Objective) -> float:
    """Return the CPU seconds of one step by torch, after one that brings its code and data near."""
    step(objective)
    return cpu_seconds(partial(step, objective))


def peak(step: Step, objective: Objective) -> int:
    """Return the most bytes that tensors of one step held at once."""
    step(objective)
    with _quiet(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step(objective)
    held = most = 0
    events = profiler.profiler.kineto_results.events()
    for event in sorted(events, key=lambda each: each.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the profiler's own talk, which it writes past Python, off the screen."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def errors(anchor: Anchor) -> dict[str, dict[str, float]]:
    """Return the relative errors of FedMix's gradients, each against the formula in float64.

    Without dropout, as the formula's three forward passes would draw three masks.
    """
    settings = {"dropout_layout": "none"} if anchor.name == "vgg9" else {}
    wide, narrow = (Step(anchor, kind, **settings) for kind in (torch.float64, torch.float32))
    exact = flat(wide.gradients(literal))

    def off(gradients: list[torch.Tensor]) -> float:
        return float((flat(gradients) - exact).norm() / exact.norm())

    found = {
        f"by torch {name}": {
            "error": off(wide.gradients(objective)),
            "error_float32": off(narrow.gradients(objective)),
        }
        for name, objective in BY_TORCH.items()
        if name.startswith("FedMix")
    }
    return {
        **found,
        "as trained FedMix": {"error_float32": off(narrow.trained(FedMixObjective(RATIO)))},
    }


def flat(gradients: list[torch.Tensor]) -> torch.Tensor:
    """Return all gradients as one vector of float64."""
    return torch.cat([part.flatten().double() for part in gradients])


def measure(anchor: Anchor, repeats: int) -> list[dict[str, Any]]:
    """Return a row for each variant of both kinds."""
    step, training = Step(anchor, torch.float32), Training(anchor)
    calls = {
        "as trained": {n: partial(training.seconds, o) for n, o in TRAINED.items()},
        "by torch": {n: partial(timed, step, o) for n, o in BY_TORCH.items()},
    }
    base, off = peak(step, CrossEntropy()), errors(anchor)
    rows = []
    for kind, each in calls.items():
        seconds = in_turn(each, repeats, warm=3)
        for name, own in seconds.items():
            memory = peak(step, BY_TORCH[name]) / base
            rows.append(
                {
                    "model": anchor.name,
                    "kind": kind,
                    "variant": name,
                    "milliseconds": 1000 * statistics.median(own),
                    "ratio": median_ratio(own, seconds["FedAvg"]),
                    **({"memory_ratio": memory} if kind == "by torch" else {}),
                    **off.get(f"{kind} {name}", {}),
                }
            )
    return rows


def main() -> None:
    """Measure and print."""
    options = parser("fedmix_step", __doc__, repeats=30, models=ANCHORS).parse_args()
    set_threads(1)
    rows = [row for name in options.models for row in measure(ANCHORS[name], options.repeats)]
    trained = [row for row in rows if row["kind"] == "as trained"]
    used = {row["model"]: row["ratio"] for row in trained if row["variant"] == "FedMix"}
    short = {"lenet5": "ratio_lenet5", "vgg9": "ratio_vgg"}
    ratios = {short[name]: ratio for name, ratio in used.items()}
    show(options, {**ratios, "rows": rows})


if __name__ == "__main__":
    main()
