"""What training does to the images of each batch, from a recipe's ``[training]`` table."""

from __future__ import annotations

from edgefed.config.recipe import TrainingSection
from edgefed.learn.augment import Augment


def augment_of(training: TrainingSection) -> Augment | None:
    """Return what is done to the images of each batch; None for nothing.

    A key that is left out does nothing here: a task says in plain values what the run's data set
    declares.
    """
    if not training.crop and not training.flip:
        return None
    return Augment(training.crop or 0, training.crop_fill or "reflect", bool(training.flip))
