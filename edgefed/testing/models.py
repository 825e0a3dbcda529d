"""The contract of a network: the requirements on a package's own model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from edgefed.config.recipes.recipe import ModelSection
from edgefed.files.plugins import NAME
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Job, Schedule
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.networks.base import Network, Shape
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.training.trainer import Trainer
from edgefed.testing.common import called, check_settings, other_global_seeds, pure, require
from edgefed.testing.play import bits
from edgefed.wire.tensors import pack, unpack

SAMPLES = 6


def check_model(
    network: Network,
    shape: Shape = (1, 28, 28),
    classes: int = 3,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Check a network by building and training it.

    Args:
        network: the object that a package offers under ``edgefed.models``.
        shape: of one input that it takes.
        classes: number of labels.
        settings: its keys of the recipe's ``[model]`` table, where the defaults are too large.

    Raises:
        AssertionError: it breaks the contract; the text describes how.
    """
    values = dict(settings or {})
    where = f"model '{network.name}'"
    require(NAME.fullmatch(network.name) is not None, f"{where}: its name has odd characters")
    require(bool(network.summary), f"{where}: it has no summary")
    check_settings(network.settings, values, where)
    model = _built(network, shape, classes, values, 1)
    with other_global_seeds():
        again = _built(network, shape, classes, values, 1)
    require(
        bits(again.weights()) == bits(model.weights()),
        f"{where}: initial weights depend on more than the seed",
    )
    _check_outputs(where, model)
    _check_packing(where, model)
    _check_training(where, model)


def _built(
    network: Network, shape: Shape, classes: int, values: Mapping[str, Any], seed: int
) -> Model:
    where = f"model '{network.name}'"
    section = ModelSection(name=network.name, **values)
    with pure(f"{where}: building it", {}):
        return called(
            f"{where}: building it for inputs {shape} and {classes} classes",
            lambda: build(section, shape, classes, seed, {network.name: network}),
        )


def _check_outputs(where: str, model: Model) -> None:
    """Check shapes, values, and that a sample's outputs do not depend on the others'."""
    inputs = torch.from_numpy(_samples(model).inputs)
    params = {name: torch.from_numpy(array) for name, array in model.weights().items()}
    model.module.eval()
    with torch.no_grad():
        for count in (1, 2, SAMPLES):
            outputs = called(f"{where}: a batch of {count}", model.forward, params, inputs[:count])
            require(
                tuple(outputs.shape) == (count, model.classes),
                f"{where}: it returns {tuple(outputs.shape)} for a batch of {count}, not"
                f" ({count}, {model.classes})",
            )
            require(bool(torch.isfinite(outputs).all()), f"{where}: its outputs are not finite")
        together = model.forward(params, inputs)
        alone = torch.cat([model.forward(params, inputs[k : k + 1]) for k in range(SAMPLES)])
    require(
        torch.allclose(together, alone, rtol=1e-3, atol=1e-4),
        f"{where}: in evaluation, a sample's outputs depend on the other samples of its batch",
    )


def _check_packing(where: str, model: Model) -> None:
    weights = model.weights()
    packed = called(f"{where}: packing its weights for the wire", lambda: pack(weights))
    back = unpack(packed, None, max_bytes=len(packed))
    require(bits(back) == bits(weights), f"{where}: its weights change on the wire")


def _check_training(where: str, model: Model) -> None:
    """Check that training moves the weights, and is the same twice."""
    samples = _samples(model)
    weights = model.weights()
    schedule = Schedule(epochs=2, batch_size=3, learning_rate=0.05)
    job = Job(weights, CrossEntropy(), schedule, seed=3)
    results = []
    for _ in range(2):
        with other_global_seeds(), pure(f"{where}: training it", {"the weights": weights}):
            results.append(
                called(f"{where}: training it", lambda: Trainer(model, "cpu").train(job, samples))
            )
    first, second = results
    require(
        bits(first.weights) == bits(second.weights),
        f"{where}: training from the same seed ends in other weights the second time",
    )
    still = [
        name for name in model.parameter_names if np.array_equal(first.weights[name], weights[name])
    ]
    require(
        not still, f"{where}: training does not move {', '.join(still)}, which should be trained"
    )


def _samples(model: Model) -> Samples:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, model.classes, SAMPLES)
    if model.vocabulary is not None:
        tokens = rng.integers(0, min(model.vocabulary, 1000), (SAMPLES, *model.shape))
        return Samples(tokens.astype(np.int64), labels)
    inputs = rng.standard_normal((SAMPLES, *model.shape)).astype(np.float32)
    return Samples(inputs, labels)
