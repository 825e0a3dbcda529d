"""Sections of a task with every value written out, as a coordinator sends them."""

from __future__ import annotations

from typing import Any

from edgefed.algorithms.composed.registry import algorithms
from edgefed.config.recipes.images_section import ImagesSection
from edgefed.config.recipes.training_section import TrainingSection


def complete(values: dict[str, Any]) -> dict[str, Any]:
    """Return a task's values, with defaults for the settings and training keys that it lacks."""
    known = algorithms().get(values["algorithm"])
    settings = known.Settings().model_dump(mode="json") if known is not None else {}
    training = TrainingSection().model_dump(mode="json")
    images = ImagesSection().model_dump(mode="json")
    return {
        **values,
        "settings": {**settings, **values["settings"]},
        "training": {**training, **values["training"]},
        **({"images": {**images, **values["images"]}} if "images" in values else {}),
    }
