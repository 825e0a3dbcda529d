"""Plug-ins for tests: some work, and others are wrong in one way each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path as Path  # noqa: PLC0414 - something that is no plug-in
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from torch import nn

from edgefed.extension import (
    Cover,
    DataOptions,
    Dataset,
    DatasetReader,
    Network,
    NetworkSettings,
    Partitioner,
    PartitionParts,
    PartitionRequest,
    Samples,
    Section,
    Shape,
)

# -- models ---------------------------------------------------------------------------------------


class PlainSettings(NetworkSettings):
    """Settings of the models here."""

    units: Annotated[int, Field(ge=1, le=64)] = 8
    """Units of the hidden layer."""


def make_plain(settings: PlainSettings, shape: Shape, classes: int) -> nn.Module:
    width = int(np.prod(shape))
    layers = (nn.Linear(width, settings.units), nn.ReLU(), nn.Linear(settings.units, classes))
    return nn.Sequential(nn.Flatten(), *layers)


def make_wide(settings: PlainSettings, shape: Shape, classes: int) -> nn.Module:
    return make_plain(settings, shape, classes + 1)


def make_text(settings: PlainSettings, shape: Shape, classes: int) -> Any:
    return "no module"


def make_failing(settings: PlainSettings, shape: Shape, classes: int) -> nn.Module:
    raise KeyError("weights")


def make_looking(settings: PlainSettings, shape: Shape, classes: int) -> nn.Module:
    module = make_plain(settings, shape, classes)
    assert any(float(weight.detach().sum()) for weight in module.parameters())
    return module


PLAIN = Network("plain", "One hidden layer", PlainSettings, make_plain)
LOOKING = replace(PLAIN, name="looking", make=make_looking)
WIDE = replace(PLAIN, name="wide", make=make_wide)
TEXT = replace(PLAIN, name="text-model", make=make_text)
FAILING = replace(PLAIN, name="failing", make=make_failing)
MISNAMED = replace(PLAIN, name="other")
UNSETTLED = replace(PLAIN, name="mine", settings=dict)  # type: ignore[arg-type] # wrong on purpose

# -- data sets ------------------------------------------------------------------------------------


class RowsOptions(DataOptions):
    """Keys of the data set here."""

    mode: Annotated[str, Field(max_length=16)] = "good"
    """What is wrong with it."""


def read_rows(options: RowsOptions, folder: Path | None) -> Any:
    rng = np.random.default_rng(1)
    inputs, labels = rng.random((10, 4), np.float32), np.arange(10) % 2
    shape: tuple[int, ...] = (4,)
    if options.mode == "raise":
        raise KeyError("mode")
    if options.mode == "exit":
        raise SystemExit(3)
    if options.mode == "text":
        return "no data set"
    if options.mode == "labels":
        labels = np.arange(10) % 8
    if options.mode == "shape":
        shape = (5,)
    if options.mode == "kind":
        inputs = inputs.astype(np.float64)
    samples = Samples(inputs, labels)
    return Dataset(samples, Samples(inputs[:0], labels[:0]), 2, shape)


ROWS = DatasetReader("Ten rows", RowsOptions, read_rows)
NO_OPTIONS = DatasetReader("Ten rows", Section, read_rows)  # type: ignore[arg-type] # on purpose
NO_SOURCE = DatasetReader("Ten rows", RowsOptions, read_rows, "file")  # type: ignore[arg-type]

# -- partitions -----------------------------------------------------------------------------------


class OddOptions(Section):
    """Keys of the partition here."""

    mode: Annotated[str, Field(max_length=16)] = "good"
    """What is wrong with it."""


class TakenOptions(Section):
    """Keys of which one is taken."""

    alpha: Annotated[float, Field(gt=0)] = 1.0
    """A key of every table."""


def split_odd(request: PartitionRequest, rng: np.random.Generator) -> PartitionParts:
    count, devices, mode = len(request.labels), request.devices, request.own.mode
    if mode == "raise":
        return (rng.permutation(count // 0),)
    if mode == "few":
        devices -= 1
    parts = np.array_split(rng.permutation(count), devices)
    if mode == "twice":
        parts[0] = np.append(parts[0], parts[1][0])
    if mode == "out":
        parts[0] = parts[0][1:]
    if mode == "beyond":
        parts[0] = np.append(parts[0], count)
    if mode == "empty":
        parts = [parts[0], np.concatenate(parts[1:]), np.zeros(0, np.int64)]
    return tuple(parts)


ODD = Partitioner(split_odd, Cover.ALL, by_label=False, options=OddOptions, summary="Odd")
NO_COVER = Partitioner(split_odd, "all")  # type: ignore[arg-type] # wrong on purpose
TAKEN_KEY = Partitioner(split_odd, Cover.ALL, options=TakenOptions)
