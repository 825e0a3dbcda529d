"""A cache of trainers that are reused from task to task, bounded in number and memory."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.base.processors import pick_device
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model_building import free_initial_weights
from edgefed.learn.modeling.model_memory import build_within, default_memory, needed_bytes
from edgefed.learn.training.trainer import Trainer

MAX_TRAINERS = 32
"""Trainers that stay warm, however small they are: an algorithm may change its model each round."""

UNBOUNDED = sys.maxsize
"""A memory bound for callers that have checked the model's size already."""


@dataclass(frozen=True)
class FrozenBlob:
    """A model's frozen weights, which are read only where its trainer is made.

    Attributes:
        digest: tells them from others.
        read: returns them.
    """

    digest: str
    read: Callable[[], Tensors]


class Trainers:
    """Trainers by a key of their model; the least recently used go first.

    The memory that the others hold, plus that of training with the one in use, is at most
    ``memory``; there are at most ``MAX_TRAINERS``.

    Args:
        accelerator: the processor, as ``pick_device`` takes it.
        memory: most bytes; 0 for half of the free memory when the first model is built.
    """

    def __init__(self, accelerator: str | None, memory: int) -> None:
        self._accelerator = accelerator
        self._memory = memory
        self._kept: OrderedDict[str, Trainer] = OrderedDict()

    def get(
        self,
        model: dict[str, Any],
        shape: tuple[int, ...],
        classes: int,
        *,
        allow_user: bool,
        frozen: FrozenBlob | None = None,
    ) -> Trainer:
        """Return the trainer of a model; its initial weights do not matter.

        Args:
            model: the ``[model]`` table.
            shape: of one input.
            classes: number of labels.
            allow_user: as ``build`` takes it.
            frozen: the model's frozen weights; None for a model without.

        Raises:
            ModelTooLargeError: training it takes more than ``memory``.
            RecipeError, DataError: the model cannot be built.
        """
        key = json.dumps([model, shape, classes, frozen and frozen.digest], sort_keys=True)
        # Taken out, so that making room cannot drop it; put back as the newest
        trainer = self._kept.pop(key, None)
        if trainer is None:
            built = build_within(
                ModelSection.model_validate(model),
                shape,
                classes,
                0,
                self.most_bytes(),
                allow_user=allow_user,
                make_room=self._make_room,
            )
            built.put_frozen(frozen.read() if frozen is not None else {})
            trainer = Trainer(built, self._accelerator)
            free_initial_weights(built, 0, allow_user=allow_user)
        if self._kept:
            # The others may have grown, and code of a user's own may tell its size only now.
            self._make_room(needed_bytes(trainer.model.module, trainer.model.frozen_names))
        self._kept[key] = trainer
        if len(self._kept) > MAX_TRAINERS:
            self._kept.popitem(last=False)
        return trainer

    def most_bytes(self) -> int:
        """Return the most bytes that training may take."""
        self._memory = self._memory or default_memory(pick_device(self._accelerator))
        return self._memory

    def _make_room(self, needed: int) -> None:
        """Forget the least recently used trainers until so many bytes are left."""
        held = {key: trainer.held_bytes() for key, trainer in self._kept.items()}
        total = sum(held.values())
        for key, freed in held.items():
            if total + needed <= self.most_bytes():
                return
            del self._kept[key]
            total -= freed
