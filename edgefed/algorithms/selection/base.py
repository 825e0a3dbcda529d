"""The interface of a selector, which chooses the devices of a cohort."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict


class SelectorSettings(BaseModel):
    """A selector's own keys of the recipe's ``[selection]`` table: described, ranged, frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


SettingsT = TypeVar("SettingsT", bound=SelectorSettings)


@dataclass(frozen=True)
class Candidate:
    """A device that can be asked, with the measurements of the run.

    Attributes:
        device: its id.
        samples: training samples that it announced; at least 1.
        asked: how often it was asked to train, in rounds that have ended.
        last: the last of these rounds; 0 for none.
        loss: mean training loss of its last merged answer; None before the first.
        seconds: from the question to that answer; None before the first, and in simulations
            without virtual time.
    """

    device: str
    samples: int
    asked: int = 0
    last: int = 0
    loss: float | None = None
    seconds: float | None = None


class Selector(ABC, Generic[SettingsT]):
    """Orders devices by preference. A selector has no state: the run's measurements are given.

    Attributes:
        name: in recipes.
        summary: one line for lists.
        paper: authors, place and number; empty for none.
        needs_loss: whether it uses the training loss, which private methods do not send.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str] = ""
    needs_loss: ClassVar[bool] = False
    Settings: ClassVar[type[SelectorSettings]] = SelectorSettings

    def __init__(self, settings: SettingsT) -> None:
        self.settings = settings

    @abstractmethod
    def order(
        self, candidates: Sequence[Candidate], count: int, number: int, rng: np.random.Generator
    ) -> Sequence[str]:
        """Return ids of candidates in the order in which they are asked.

        Args:
            candidates: sorted by id.
            count: devices to ask; fewer than candidates. The order has at least so many.
            number: of the round, from 1.
            rng: draws of this choice; they derive from the run's seed.
        """


def draw_by_weight(weights: Sequence[float], rng: np.random.Generator) -> list[int]:
    """Return all indices in the order of a draw without replacement by weight.

    An exponential variate divided by its weight is smallest for index i with the probability
    w_i / sum(w) (Efraimidis, Spirakis: Weighted random sampling with a reservoir, 2006).

    Args:
        weights: above 0.
        rng: draws the order.
    """
    keys = rng.exponential(size=len(weights)) / np.asarray(weights, np.float64)
    return [int(index) for index in np.argsort(keys, kind="stable")]
