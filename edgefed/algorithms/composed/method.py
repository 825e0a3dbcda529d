"""A method: an algorithm's name, and the tables of a recipe of which both halves are composed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from edgefed.algorithms.interface.base import Algorithm, AlgorithmSettings
from edgefed.algorithms.private.privacy_plan import privacy_plan
from edgefed.config.recipes.images_section import NO_IMAGES, ImagesSection
from edgefed.config.recipes.privacy_section import NO_PRIVACY, PrivacySection
from edgefed.config.recipes.recipe import LabelsSection, PersonalSection, Recipe, RoundsSection
from edgefed.config.recipes.secure_aggregation_section import SecureAggregationSection
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.errors import WireError
from edgefed.wire.messages import Task

SectionT = TypeVar("SectionT", bound=BaseModel)


def complete_section(model: type[SectionT], values: Mapping[str, Any], what: str) -> SectionT:
    """Return a section of a task, checked.

    Args:
        model: of the section.
        values: as the task carries them.
        what: name of the section in messages.

    Raises:
        WireError: ``wire.incomplete`` or ``wire.malformed``.
    """
    missing = sorted(model.model_fields.keys() - values.keys())
    if missing:
        raise WireError(
            f"The task does not contain {', '.join(missing)} of {what}.",
            code="wire.incomplete",
            hint="install the same release on coordinator and device",
        )
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise WireError(
            f"{key} of {what}: {first['msg']}.",
            code="wire.malformed",
            hint="install the same release on coordinator and device",
        ) from error


OPTIONAL: Mapping[str, type[BaseModel]] = {
    "images": ImagesSection,
    "labels": LabelsSection,
    "personal": PersonalSection,
    "privacy": PrivacySection,
    "secure_aggregation": SecureAggregationSection,
}
"""The tables that a task leaves empty where the recipe does not use them."""

EQUAL_WORK: Mapping[str, Any] = {"least_epochs": 0, "seconds": 0.0}
"""The keys of ``training`` that a task leaves out where all devices do the same work; devices of
earlier releases expect that."""


@dataclass(frozen=True)
class Method:
    """How a run trains and merges. A task has a field for each attribute, of the same name.

    Attributes:
        algorithm: its name.
        settings: the algorithm's own settings.
        training, images, labels, personal, privacy, secure_aggregation: tables of the recipe.
    """

    algorithm: str
    settings: AlgorithmSettings
    training: TrainingSection
    images: ImagesSection = NO_IMAGES
    labels: LabelsSection = field(default_factory=LabelsSection)
    personal: PersonalSection = field(default_factory=PersonalSection)
    privacy: PrivacySection = NO_PRIVACY
    secure_aggregation: SecureAggregationSection = field(default_factory=SecureAggregationSection)

    @classmethod
    def of(cls, recipe: Recipe, settings: AlgorithmSettings) -> Method:
        """Return the method of a recipe, whose settings of the algorithm are checked already."""
        tables = {name: getattr(recipe, name) for name in OPTIONAL}
        return cls(recipe.algorithm.name, settings, recipe.training, **tables)

    @classmethod
    def read(cls, task: Mapping[str, Any], settings: type[AlgorithmSettings]) -> Method:
        """Return the method of a task.

        Args:
            task: the fields of ``fields_of``; an optional table may be missing.
            settings: the class of the algorithm's settings.

        Raises:
            WireError: ``wire.incomplete``: a value is missing, which this release would fill in
                with a default of its own; or ``wire.malformed``: one is unknown or out of range.
        """
        name = task["algorithm"]
        own = complete_section(settings, task["settings"], f"algorithm '{name}'")
        training = complete_section(TrainingSection, {**EQUAL_WORK, **task["training"]}, "training")
        tables: dict[str, Any] = {
            table: complete_section(model, task[table], table)
            for table, model in OPTIONAL.items()
            if task.get(table)
        }
        return cls(name, own, training, **tables)

    def asked(self, question: str, rounds: RoundsSection) -> Method:
        """Return the method as tasks have it: a test has no privacy, other tasks the noise.

        Args:
            question: the name of the exchange.
            rounds: the recipe's table, from which the noise multiplier follows.
        """
        if not self.privacy.wanted:
            return self
        is_test = question == "evaluate"
        privacy = NO_PRIVACY if is_test else privacy_plan(self.privacy, rounds).section
        return replace(self, privacy=privacy)

    def task_fields(self) -> dict[str, Any]:
        """Return the fields of a task, with every setting written out."""
        tables = {name: getattr(self, name) for name in OPTIONAL}
        unused = () if self.training.varies else EQUAL_WORK
        return {
            "algorithm": self.algorithm,
            "settings": self.settings.model_dump(mode="json"),
            "training": self.training.model_dump(mode="json", exclude=set(unused)),
            **{
                name: table.model_dump(mode="json") if table.wanted else {}
                for name, table in tables.items()
            },
        }

    def bare(
        self, kind: type[Algorithm[Any]], rounds: RoundsSection | None = None
    ) -> Algorithm[Any]:
        """Return the algorithm alone; ``compose`` adds the parts that the other tables define."""
        return kind(self.settings, self.training, rounds, self.images)


def fields_of(task: Task) -> dict[str, Any]:
    """Return the fields of a task that ``Method.read`` reads."""
    return {attribute.name: getattr(task, attribute.name) for attribute in fields(Method)}
