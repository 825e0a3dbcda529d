"""Trainers and algorithms that stay warm from task to task."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

from edgefed.algorithms.composed.method import fields_of
from edgefed.algorithms.composed.registry import make_device_half
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.learn.training.trainer import Trainer
from edgefed.learn.training.warm_trainers import FrozenBlob, Trainers
from edgefed.wire.messages import Task

MAX_ALGORITHMS = 32
"""Algorithms with their settings that stay warm."""


class TrainerCache:
    """Keeps trainers and algorithms; virtual devices share one.

    Args:
        accelerator: the processor, as ``pick_device`` takes it.
        user_models: whether a task may name a model of a user's own, whose code is then run.
        memory: most bytes that models and their training may take; 0 for half of the free memory.
    """

    def __init__(
        self, accelerator: str | None = None, *, user_models: bool = False, memory: int = 0
    ) -> None:
        self.user_models = user_models
        self._trainers = Trainers(accelerator, memory)
        self._algorithms: OrderedDict[str, CompleteAlgorithm[Any]] = OrderedDict()

    def trainer(
        self,
        model: dict[str, Any],
        shape: tuple[int, ...],
        classes: int,
        frozen: FrozenBlob | None = None,
    ) -> Trainer:
        """Return the trainer for a model; its initial weights do not matter.

        Raises:
            ModelTooLargeError: training it takes more than ``memory``.
            DataError: the frozen weights are not the model's.
        """
        return self._trainers.get(model, shape, classes, allow_user=self.user_models, frozen=frozen)

    def most_bytes(self) -> int:
        """Return the most bytes that training may take."""
        return self._trainers.most_bytes()

    def algorithm(self, task: Task) -> CompleteAlgorithm[Any]:
        """Return the algorithm that a task names, with its settings."""
        method = fields_of(task)
        key = json.dumps(method, sort_keys=True)
        if key not in self._algorithms:
            self._algorithms[key] = make_device_half(method)
            if len(self._algorithms) > MAX_ALGORITHMS:
                self._algorithms.popitem(last=False)
        self._algorithms.move_to_end(key)
        return self._algorithms[key]
