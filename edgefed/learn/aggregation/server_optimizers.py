"""Apply a mean delta on the coordinator: by addition, with momentum, or with an adaptive step.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization,
ICLR 2021, algorithm 2. The variant ``kingma`` is Kingma and Ba: Adam, ICLR 2015, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np

from edgefed.errors import DataError, UsageError
from edgefed.learn.base.types import Array, Tensors

OptimizerName = Literal["sgd", "momentum", "adam", "yogi", "adagrad"]
AdamVariant = Literal["reddi", "kingma"]

BLOCK = 64 * 1024
"""Values of a tensor that are handled at a time, so that float64 copies stay small."""

FIRST = "first/"
"""Before a tensor's name: the memory of its first moment, m."""

SECOND = "second/"
"""Before a tensor's name: the memory of its second moment, v."""


@dataclass(frozen=True)
class ServerOptimizer:
    """Settings of the coordinator's step, with D for the mean delta and η for the learning rate.

        sgd       w ← w + η D                          (η = 1 is FedAvg)
        momentum  m ← b1 m + D;         w ← w + η m
        adaptive  m ← b1 m + (1-b1) D;  w ← w + η m / (√v + tau)
          adagrad   v ← v + D²
          yogi      v ← v - (1-b2) D² sign(v - D²)
          adam      v ← b2 v + (1-b2) D²

    m starts at 0 and v at tau²; there is no bias correction. The variant ``kingma`` of adam starts
    v at 0 and divides m by 1 - b1^t and v by 1 - b2^t in step t.

    Attributes:
        name: which of them.
        learning_rate: η, above 0.
        beta1, beta2: b1 and b2, each from 0 and below 1.
        tau: how little a coordinate adapts, above 0.
        adam_variant: for adam only; ``kingma`` is meant for beta2 0.999 and tau 1e-8.

    Raises:
        UsageError: a value that is out of range.
    """

    name: OptimizerName = "sgd"
    learning_rate: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    adam_variant: AdamVariant = "reddi"

    def __post_init__(self) -> None:
        in_range = {
            "name": self.name in ("sgd", "momentum", "adam", "yogi", "adagrad"),
            "learning_rate": self.learning_rate > 0,
            "beta1": 0 <= self.beta1 < 1,
            "beta2": 0 <= self.beta2 < 1,
            "tau": self.tau > 0,
            "adam_variant": self.adam_variant in ("reddi", "kingma"),
        }
        for key, good in in_range.items():
            if not good:
                raise UsageError(
                    f"The server optimiser cannot use {key} = {getattr(self, key)!r}.",
                    code="optimizer.setting",
                    hint=f"correct {key} in the recipe's [algorithm] table",
                )

    def step(
        self,
        weights: Tensors,
        delta: Tensors,
        memory: Tensors,
        round: int,  # noqa: A002
        plain: Collection[str] = (),
    ) -> tuple[Tensors, Tensors]:
        """Return the new weights and the new memory; the arguments are not changed.

        Values are computed in float64 and stored in the weights' own dtype, so the result is the
        same on every machine.

        Args:
            weights: the global weights.
            delta: mean of the devices' weight changes; weights that it does not name stay.
            memory: the result of the step before, empty before the first.
            round: number of this step, counted from 1.
            plain: weights that delta is simply added to, such as running statistics; integers
                always are.

        Raises:
            DataError: delta names a tensor that is not among the weights, or has another shape.
        """
        _check(weights, delta)
        stepped = dict(weights)
        remembered: Tensors = dict(memory)
        for name, change in delta.items():
            old = weights[name]
            if name in plain or old.dtype.kind != "f":
                stepped[name] = (old + change).astype(old.dtype)
                continue
            keys = [key for key in (FIRST + name, SECOND + name) if key in memory]
            before = {key: memory[key].reshape(-1) for key in keys}
            new, flat = np.empty(old.size, old.dtype), (old.reshape(-1), change.reshape(-1))
            moments: Tensors = {}
            # One block at least, so that an empty tensor has moments too
            for start in range(0, max(1, old.size), BLOCK):
                block = slice(start, start + BLOCK)
                d = flat[1][block].astype(np.float64)
                part = {key: moment[block] for key, moment in before.items()}
                direction, now = self._direction(name, d, part, round)
                new[block] = (flat[0][block] + self.learning_rate * direction).astype(old.dtype)
                for key, moment in now.items():
                    moments.setdefault(key, np.empty_like(new))[block] = moment.astype(old.dtype)
            stepped[name] = new.reshape(old.shape)
            remembered |= {key: moment.reshape(old.shape) for key, moment in moments.items()}
        return stepped, remembered

    def _direction(
        self,
        name: str,
        d: Array,
        memory: Tensors,
        round: int,  # noqa: A002
    ) -> tuple[Array, Tensors]:
        """Return the factor of the learning rate, and the block's new memory, in float64."""
        if self.name == "sgd":
            return d, {}
        first, second = FIRST + name, SECOND + name
        m = memory.get(first, np.zeros_like(d)).astype(np.float64)
        if self.name == "momentum":
            m = self.beta1 * m + d
            return m, {first: m}
        m = self.beta1 * m + (1 - self.beta1) * d
        kingma = self.name == "adam" and self.adam_variant == "kingma"
        start = np.full_like(d, 0.0 if kingma else self.tau**2)
        v = self._second(memory.get(second, start).astype(np.float64), d * d)
        moments = {first: m, second: v}
        if kingma:
            m = m / (1 - self.beta1**round)
            v = v / (1 - self.beta2**round)
        return m / (np.sqrt(v) + self.tau), moments

    def _second(self, v: Array, square: Array) -> Array:
        """Return the second moment after D² = ``square``."""
        if self.name == "adagrad":
            return v + square
        if self.name == "yogi":
            toward: Array = np.sign(v - square)
            return v - (1 - self.beta2) * square * toward
        return self.beta2 * v + (1 - self.beta2) * square


def _check(weights: Tensors, delta: Tensors) -> None:
    """Check that every tensor of ``delta`` can be added to one of ``weights``."""
    for name, change in delta.items():
        if name not in weights or weights[name].shape != change.shape:
            raise DataError(
                f"A delta of {name} with shape {change.shape} does not fit the weights.",
                code="merge.shape",
                hint="merge answers of this model only",
            )
