"""Training imports no large package that it does not need, which would cost memory and seconds."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys
found = {}

def note(step):
    packages = ("scipy", "torchvision", "torchvision.transforms", "torch._dynamo")
    found[step] = [name for name in packages if name in sys.modules]

import edgefed.learn.matching, edgefed.learn.matching.recurrence
note("matching")
import edgefed.learn.training.stacked_trainer
from edgefed.algorithms.composed.registry import algorithms
algorithms()
note("algorithms")
from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.modeling.model_memory import training_bytes
before = set(sys.modules)
training_bytes(ModelSection.model_validate({"name": "lstm"}), (12,), 7)
counted = len(set(sys.modules) - before)
from edgefed.learn.base.types import Schedule
from edgefed.learn.training.trainer import Trainer
from tests.learn import worlds
for name, schedule in (("cnn", Schedule()), ("mlp", Schedule(1, 6, optimizer="adam"))):
    model = worlds.model(name)
    Trainer(model, "cpu").train(worlds.job(model, schedule), worlds.samples(8))
note("training")
print(json.dumps([found, counted]))
"""


def test_training_imports_neither_scipy_nor_torchvision_nor_a_compiler() -> None:
    command = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    found, counted = json.loads(ended.stdout)
    assert found == {"matching": [], "algorithms": [], "training": []}
    assert counted < 50, "modules that counting a model's bytes imports"
