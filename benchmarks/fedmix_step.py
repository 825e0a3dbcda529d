"""One training step of FedMix and its relatives, against a FedAvg step on the same batch.

LeNet-5 with batches of 20 and VGG-9 with batches of 10, as in the paper (Yoon et al., ICLR 2021).
Every variant makes whole steps: loss, gradients of all weights, SGD. One thread, CPU time, the
variants in turn so that a busy machine slows all of them; a ratio is the median of the ratios of
neighbours in time. Memory is the most that tensors held at once during a step, weights left out.
The errors are those of the gradient, in float64 and in the float32 of training, against the formula
with its three terms written out in float64.

    python benchmarks/fedmix_step.py [--repeats 30] [--models lenet5 vgg9] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from edgefed.config.recipe import ModelSection
from edgefed.learn import capabilities
from edgefed.learn.devices import set_threads
from edgefed.learn.models import Model, build
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.entries import DRAWN
from edgefed.learn.objectives.fed_mix import FedMix
from edgefed.learn.objectives.local_mix import LocalMix
from edgefed.learn.objectives.naive_mix import NaiveMix
from edgefed.learn.preload import channels_last
from edgefed.learn.sgd import Sgd
from edgefed.learn.types import Batch, Context, Forward, Objective, Params, Schedule
from edgefed.seeds import generator

RATIO = 0.05
ENTRIES = 60


@dataclass(frozen=True)
class Anchor:
    """What is trained: a model, the shape of its inputs, its classes and the batch size."""

    name: str
    settings: dict[str, Any]
    shape: tuple[int, ...]
    classes: int
    batch: int


ANCHORS = {
    "lenet5": Anchor("lenet5", {}, (1, 28, 28), 62, 20),
    "vgg9": Anchor("vgg9", {"dropout_layout": "fedmix"}, (3, 32, 32), 10, 10),
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
    return FedMix(RATIO)(plain(forward), params, batch, context)


@lru_cache
def plain(forward: Forward) -> Forward:
    """Return a network that refuses what carries a tangent; the same one every time."""

    def checked(params: Params, inputs: torch.Tensor) -> torch.Tensor:
        if not isinstance(inputs, torch.Tensor):
            raise TypeError("a tensor is needed")
        return forward(params, inputs)

    return checked


VARIANTS: dict[str, Objective] = {
    "FedAvg": CrossEntropy(),
    "NaiveMix": NaiveMix(RATIO),
    "LocalMix": LocalMix(1.0),
    "FedMix literal": literal,
    "FedMix double backward": backwards,
    "FedMix": FedMix(RATIO),
}
"""The last is the one that training uses."""


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
        self.sgd = Sgd(Schedule(learning_rate=1e-6))

    def gradients(self, objective: Objective) -> list[torch.Tensor]:
        """Return the gradients of all weights; every call draws alike."""
        torch.manual_seed(1)
        drawn = self._draw(objective)
        draws = {name: torch.from_numpy(array) for name, array in drawn.items()}
        context = Context({}, self.loaded, draws)
        loss = objective(self.model.forward, self.params, self.batch, context)
        weights = [self.params[name] for name in self.model.parameter_names]
        return list(torch.autograd.grad(loss, weights))

    def __call__(self, objective: Objective) -> None:
        """Take a step."""
        gradients = self.gradients(objective)
        self.sgd.step([self.params[name] for name in self.model.parameter_names], gradients)

    def _draw(self, objective: Objective) -> dict[str, Any]:
        """Return the objective's draws; those of FedMix for plain functions."""
        drawing = objective if isinstance(objective, capabilities.Draws) else FedMix(RATIO)
        return drawing.draw(generator(1, "draws"), len(self.batch.targets), self.extra)


def times(step: Step, repeats: int) -> dict[str, list[float]]:
    """Return each variant's CPU seconds a step, the variants in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for number in range(repeats + 3):
        for name, objective in VARIANTS.items():
            began = time.process_time()
            step(objective)
            if number >= 3:
                seconds[name].append(time.process_time() - began)
    return seconds


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


def error(anchor: Anchor, objective: Objective, kind: torch.dtype) -> float:
    """Return the gradient's relative error against the written-out formula in float64.

    Without dropout, as the formula's three forward passes would draw three masks.
    """
    settings = {"dropout_layout": "none"} if anchor.name == "vgg9" else {}
    wide = Step(anchor, torch.float64, **settings)
    steps = ((Step(anchor, kind, **settings), objective), (wide, literal))
    ours, theirs = (
        torch.cat([part.flatten().double() for part in step.gradients(each)])
        for step, each in steps
    )
    return float((ours - theirs).norm() / theirs.norm())


def measure(anchor: Anchor, repeats: int) -> list[dict[str, Any]]:
    """Return a row for each variant."""
    step = Step(anchor, torch.float32)
    seconds = times(step, repeats)
    base, rows = seconds["FedAvg"], []
    base_peak = peak(step, VARIANTS["FedAvg"])
    for name, objective in VARIANTS.items():
        ratios = [one / other for one, other in zip(seconds[name], base, strict=True)]
        rows.append(
            {
                "model": anchor.name,
                "variant": name,
                "milliseconds": 1000 * statistics.median(seconds[name]),
                "ratio": statistics.median(ratios),
                "memory_ratio": peak(step, objective) / base_peak,
                **(_errors(anchor, objective) if name.startswith("FedMix") else {}),
            }
        )
    return rows


def _errors(anchor: Anchor, objective: Objective) -> dict[str, float]:
    """Return the gradient's errors in float64 and, as training has it, in float32."""
    return {
        "error": error(anchor, objective, torch.float64),
        "error_float32": error(anchor, objective, torch.float32),
    }


def table(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows."""
    print(f"{'':<32}{'ms':>9}{'x FedAvg':>10}{'memory':>9}{'error: float64':>17}{'float32':>10}")
    for row in rows:
        figures = f"{row['milliseconds']:>9.2f}{row['ratio']:>10.2f}{row['memory_ratio']:>9.2f}"
        found = f"{row['error']:>17.0e}{row['error_float32']:>10.0e}" if "error" in row else ""
        print(f"{row['model'] + ' ' + row['variant']:<32}{figures}{found}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--models", nargs="+", choices=list(ANCHORS), default=list(ANCHORS))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    set_threads(1)
    rows = [row for name in arguments.models for row in measure(ANCHORS[name], arguments.repeats)]
    if not arguments.json:
        table(rows)
        return
    used = {row["model"]: row["ratio"] for row in rows if row["variant"] == "FedMix"}
    short = {"lenet5": "ratio_lenet5", "vgg9": "ratio_vgg"}
    print(json.dumps({**{short[name]: ratio for name, ratio in used.items()}, "rows": rows}))


if __name__ == "__main__":
    main()
