"""What devices' networks are worth alone, as an ensemble, and when their weights are averaged.

Every device trains once, from the same initial weights or from its own. This is where averaging
without matching fails: the same unit of two networks need not be the same feature.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

import numpy as np
import torch
from scipy.special import softmax

from benchmarks.studies.runs import Runner
from edgefed.algorithms.averaging.training import loss_of, schedule_of
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.models.run_model import load_dataset, make_model
from edgefed.data.devices.partition import deal
from edgefed.files.writing import write_atomic
from edgefed.learn.base.types import Array, Job, Tensors
from edgefed.learn.training.trainer import Trainer
from edgefed.seeds import derive

Start = Literal["shared", "independent"]
STARTS: tuple[Start, ...] = ("shared", "independent")


def local_scores(
    runner: Runner, words: str, recipe: Recipe, start: Start
) -> dict[str, float] | None:
    """Return the test accuracy of local networks: their mean, their ensemble's, their average's.

    Args:
        runner: names the folder of what is known.
        words: what the line of progress begins with.
        recipe: of one round of FedAvg.
        start: whether all devices train from the same initial weights.
    """
    path = runner.folder / "locals" / f"{start}-{runner.file(recipe).name}"
    if not path.exists():
        if runner.lacking:
            return None
        found = _scores(recipe, start)
        write_atomic(path, json.dumps(found).encode())
        if runner.tell:
            print(f"  {words}; {found}", flush=True)
    known: dict[str, float] = json.loads(path.read_text())
    return known


def _scores(recipe: Recipe, start: Start) -> dict[str, float]:
    torch.set_num_threads(1)
    dataset = load_dataset(recipe, None)
    model = make_model(recipe, dataset.shape, dataset.classes, 0)
    trainer = Trainer(model)
    shards = deal(dataset, recipe.data, recipe.simulation.devices, 0.0, recipe.seed)
    ended = []
    for number, shard in enumerate(shards):
        own = recipe.seed if start == "shared" else derive(recipe.seed, "independent", number)
        other = recipe.model_copy(update={"seed": own})
        weights = make_model(other, dataset.shape, dataset.classes, 0).weights()
        seed = derive(recipe.seed, "training", number)
        schedule = schedule_of(recipe.training, 1, recipe.rounds.count)
        job = Job(weights, loss_of(recipe.training), schedule, seed)
        ended.append(trainer.train(job, shard.train).weights)
    average = averaged(ended, [len(shard.train) for shard in shards])
    inputs, labels = dataset.test.inputs, dataset.test.targets
    logits = [trainer.predict(each, inputs) for each in ended]
    return {
        "alone": fmean(_right(each, labels) for each in logits),
        "ensemble": _right(np.mean([softmax(each, axis=1) for each in logits], axis=0), labels),
        "average": _right(trainer.predict(average, inputs), labels),
    }


def averaged(networks: Sequence[Tensors], samples: Sequence[int]) -> Tensors:
    """Return the mean of networks, weighted by their samples."""
    shares = np.array(samples, np.float64) / sum(samples)
    return {
        name: np.tensordot(shares, [each[name] for each in networks], 1).astype(np.float32)
        for name in networks[0]
    }


def _right(scores: Array, labels: Array) -> float:
    return float((scores.argmax(axis=1) == labels).mean())
