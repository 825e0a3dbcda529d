"""The contract tests of models, data sets and partitions fail for each wrong example."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from edgefed.data.base.types import Dataset, no_samples
from edgefed.data.partitioners.cover import Cover
from edgefed.data.partitioners.registry import Partitioner, PartitionRequest
from edgefed.data.sets.dataset_reader import DatasetReader
from edgefed.data.sets.options import DataOptions
from edgefed.files.samples import Samples
from edgefed.learn.networks.base import Network, NetworkSettings
from edgefed.testing.datasets import check_dataset
from edgefed.testing.models import check_model
from edgefed.testing.partitioners import check_partitioner
from tests.extensions.plugin_examples import PLAIN, ROWS, PlainSettings, make_plain

# -- models ---------------------------------------------------------------------------------------


class Centred(nn.Module):
    """Subtracts the mean of the batch."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs - inputs.mean(dim=0)


class Noisy(nn.Module):
    """Adds noise of Python's global generator in training."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + random.random() if self.training else inputs


class Unused(nn.Module):
    """Has a weight that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Parameter(torch.ones(2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + 0 * self.idle.sum()


class Loud(nn.Module):
    """Has outputs that are not finite."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs / 0


def behind(part: Callable[[], nn.Module]) -> Network:
    """Return a network with a part behind it."""

    def make(settings: PlainSettings, shape: Any, classes: int) -> nn.Module:
        return nn.Sequential(make_plain(settings, shape, classes), part())

    return replace(PLAIN, make=make)


def drawn(settings: PlainSettings, shape: Any, classes: int) -> nn.Module:
    module = make_plain(settings, shape, classes)
    with torch.no_grad():
        next(module.parameters()).add_(random.random())
    return module


class Open(NetworkSettings):
    """Settings that take any key."""

    model_config: ClassVar[Any] = {"extra": "allow", "frozen": True}


MODELS = {
    "batch": (behind(Centred), "depend on the other samples of its batch"),
    "noise": (behind(Noisy), "draws from the global generator of random"),
    "idle": (behind(Unused), "training does not move 1.idle"),
    "loud": (behind(Loud), "its outputs are not finite"),
    "drawn": (replace(PLAIN, make=drawn), "draws from the global generator of random"),
    "open": (replace(PLAIN, settings=Open), "settings take unknown keys"),
    "wide": (behind(lambda: nn.Linear(3, 4)), "(1, 4) for a batch of 1"),
    "name": (replace(PLAIN, name="My Model"), "odd characters"),
    "summary": (replace(PLAIN, summary=""), "no summary"),
    "kind": (behind(lambda: nn.Linear(3, 3).double()), "raises"),
}


def test_the_good_model_passes() -> None:
    check_model(PLAIN, shape=(4,))


@pytest.mark.parametrize("name", MODELS)
def test_a_wrong_model(name: str) -> None:
    network, said = MODELS[name]
    with pytest.raises(AssertionError) as caught:
        check_model(network, shape=(4,))
    assert said in str(caught.value)


# -- data sets ------------------------------------------------------------------------------------


def reading(inputs: Callable[[], Any]) -> DatasetReader:
    """Return a data set of these inputs."""

    def read(options: DataOptions, folder: Path | None) -> Dataset:
        made = np.asarray(inputs(), np.float32)
        return Dataset(Samples(made, np.arange(len(made)) % 2), no_samples((4,)), 2, (4,))

    return DatasetReader("Made", DataOptions, read)


DATASETS = {
    "unseeded": (
        reading(lambda: np.random.default_rng().random((6, 4))),
        "its training samples differ when it is read again",
    ),
    "global": (reading(lambda: np.random.random((6, 4))), "global generator of numpy"),
    "nan": (reading(lambda: np.full((6, 4), np.nan)), "inputs that are not finite"),
    "empty": (reading(lambda: np.zeros((0, 4))), "no training samples"),
    "shape": (reading(lambda: np.zeros((6, 5))), "inputs of shape (5,)"),
    "summary": (replace(ROWS, summary=""), "no summary"),
}


def test_the_good_data_set_passes() -> None:
    check_dataset(ROWS)


@pytest.mark.parametrize("name", DATASETS)
def test_a_wrong_data_set(name: str) -> None:
    reader, said = DATASETS[name]
    with pytest.raises(AssertionError) as caught:
        check_dataset(reader)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("mode", "said"),
    [("raise", "reading it raises KeyError"), ("text", "returns str"), ("labels", "labels from 0")],
)
def test_a_data_set_whose_reader_is_wrong(mode: str, said: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_dataset(ROWS, {"mode": mode})
    assert said in str(caught.value)


def test_a_source_that_is_not_there() -> None:
    with pytest.raises(AssertionError, match="no source for devices"):
        check_dataset(ROWS, source=Path("rows"))


# -- partitions -----------------------------------------------------------------------------------


def dealt(request: PartitionRequest, rng: np.random.Generator) -> Any:
    return np.array_split(rng.permutation(len(request.labels)), request.devices)


def altered(change: Callable[[PartitionRequest, np.random.Generator, Any], Any]) -> Partitioner:
    """Return a partition that is right but for one change."""
    return Partitioner(
        lambda request, rng: tuple(change(request, rng, dealt(request, rng))),
        Cover.ALL,
        by_label=False,
    )


def in_place(request: PartitionRequest, rng: np.random.Generator, parts: Any) -> Any:
    request.labels[0] = 1 - request.labels[0]
    return parts


def global_draw(request: PartitionRequest, rng: np.random.Generator, parts: Any) -> Any:
    np.random.shuffle(parts[0])
    return parts


def by_labels(request: PartitionRequest, rng: np.random.Generator, parts: Any) -> Any:
    if request.labels.ndim == 1 and request.labels[5] == request.labels[6]:
        return parts[::-1]
    return parts


def scarce(request: PartitionRequest, rng: np.random.Generator, parts: Any) -> Any:
    if len(request.labels) == request.devices:
        raise IndexError("nothing left")
    return parts


PARTITIONS = {
    "twice": (lambda q, r, p: [np.append(p[0], p[1][0]), *p[1:]], "a sample is in two parts"),
    "left out": (lambda q, r, p: [p[0][1:], *p[1:]], "a sample is left out"),
    "empty": (lambda q, r, p: [p[0][:0], np.append(p[0], p[1]), *p[2:]], "without samples"),
    "few": (lambda q, r, p: p[1:], "gives 2 parts"),
    "floats": (lambda q, r, p: [each.astype(float) for each in p], "no arrays of whole numbers"),
    "unseeded": (
        lambda q, r, p: [np.random.default_rng().permutation(each) for each in p],
        "twice with the same seed",
    ),
    "global": (global_draw, "draws from the global generator of numpy"),
    "fixed": (
        lambda q, r, p: np.array_split(np.arange(len(q.labels)), q.devices),
        "five seeds give the same parts",
    ),
    "in place": (in_place, "changes the labels"),
    "labels": (by_labels, "by_label is False"),
    "scarce": (scarce, "raises IndexError: nothing left; raise DataError"),
}


def test_the_good_partition_passes() -> None:
    check_partitioner(altered(lambda request, rng, parts: parts))


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_wrong_partition(name: str) -> None:
    change, said = PARTITIONS[name]
    with pytest.raises(AssertionError) as caught:
        check_partitioner(altered(change))
    assert said in str(caught.value)


def test_a_partition_that_does_not_keep_the_least_number_of_samples() -> None:
    def split(request: PartitionRequest, rng: np.random.Generator) -> Any:
        order = rng.permutation(len(request.labels))
        return tuple(np.split(order, np.arange(1, request.devices)))

    with pytest.raises(AssertionError, match="below min_samples"):
        check_partitioner(Partitioner(split, Cover.ALL), keeps_min_samples=True)
