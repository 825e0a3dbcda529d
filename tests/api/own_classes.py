"""An algorithm, a partition, a selector and a data set of a user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from edgefed.extension import (
    AveragingSettings,
    Candidate,
    Cover,
    Dataset,
    FedAvg,
    Partitioner,
    PartitionRequest,
    Section,
    Selector,
)
from tests.api.small import TEST, TRAIN


class StepSettings(AveragingSettings):
    """Keys of [algorithm]."""

    step: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Fraction of the mean update."""


class Stepping(FedAvg):
    """FedAvg that takes a fraction of the step."""

    name = "stepping"
    Settings = StepSettings

    def merge(self, state: Any, exchange: Any, answers: Any) -> Any:
        merged = super().merge(state, exchange, answers)
        step = self.settings.step  # type: ignore[attr-defined]
        before, after = state.groups["weights"], merged.groups["weights"]
        weights = {
            name: (b + step * (after[name] - b)).astype(b.dtype) if step < 1 else after[name]
            for name, b in before.items()
        }
        return replace(merged, groups={**merged.groups, "weights": weights})


class ReversedKeys(Section):
    """Keys of [data]."""

    skip: Annotated[int, Field(ge=0)] = 0
    """Samples to leave out."""


def dealt(request: PartitionRequest, rng: np.random.Generator) -> Any:
    skip = getattr(request.own, "skip", 0)
    order = rng.permutation(len(request.labels))[skip:]
    return tuple(np.array_split(order, request.devices))


DEALT = Partitioner(dealt, Cover.SOME, by_label=False, options=ReversedKeys)


class Last(Selector[Any]):
    """The last devices."""

    name = "last"

    def order(
        self, candidates: Sequence[Candidate], count: int, number: int, rng: Any
    ) -> Sequence[str]:
        return [each.device for each in reversed(candidates)]


def read(options: Any, folder: Path | None) -> Dataset:
    return Dataset(TRAIN, TEST, 3, TRAIN.inputs.shape[1:])


class Failing(FedAvg):
    """Fails."""

    def merge(self, state: Any, exchange: Any, answers: Any) -> Any:
        raise KeyError("steps")


class Unfinished(Selector[Any]):
    """Defines nothing."""

    name = "unfinished"


class Wrong(FedAvg):
    """Has settings of another kind."""

    Settings = dict  # type: ignore[assignment]


NUMBER = 3
