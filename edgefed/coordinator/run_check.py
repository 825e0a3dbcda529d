"""Handle ``run check``: describe the run of a recipe, and which devices fit it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from edgefed.algorithms.base import Roster
from edgefed.algorithms.privacy_plan import check_privacy, privacy_plan
from edgefed.algorithms.registry import check_fleet, make
from edgefed.config.recipe import Recipe
from edgefed.coordinator.augmentation import with_augmentation
from edgefed.coordinator.compatibility import Compatibility, DataSpec, check_compatibility
from edgefed.coordinator.device_admission import QUARANTINED
from edgefed.coordinator.run_model import check_dataset, load_dataset, make_model
from edgefed.coordinator.service_settings import ServiceSettings
from edgefed.coordinator.starting_weights import weights_source
from edgefed.coordinator.training_check import check_training
from edgefed.coordinator.user_code_check import check_code_allowed
from edgefed.data.types import Dataset
from edgefed.errors import NotAllowedError
from edgefed.learn.models import Model
from edgefed.learn.robust.aggregate import merging_bytes


class RunCheck:
    """Checks recipes against the devices that are there, one at a time, as it reads data.

    Args:
        settings: of the coordinator; data sets are kept in its folder.
        quarantined: whether a device takes part in no run.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        quarantined: Callable[[str], bool] = lambda device: False,
    ) -> None:
        self._settings = settings
        self._quarantined = quarantined
        self._busy = threading.Lock()

    def report(self, recipe: Recipe, roster: Roster) -> dict[str, Any]:
        """Return what `run check` prints with ``--json``.

        Raises:
            NotAllowedError: another check is under way.
            EdgeFedError: the recipe cannot be run, or its data set cannot be used.
        """
        if not self._busy.acquire(blocking=False):
            raise NotAllowedError(
                "Another recipe is being checked.", code="run.busy", hint="try again in a moment"
            )
        try:
            return self._report(recipe, roster)
        finally:
            self._busy.release()

    def _report(self, recipe: Recipe, roster: Roster) -> dict[str, Any]:
        check_start(recipe, self._settings)
        dataset = load_dataset(recipe, self._settings.folder / "data")
        check_dataset(recipe, dataset)
        found = check_compatibility(recipe, dataset, roster)
        if found.spec is not None and found.problem is None:
            plan = with_augmentation(recipe, dataset.preparation)
            model = self._check_model(plan, found.spec, dataset)
            told = _found(found, roster, self._quarantined)
            fitting = sum(device["fits"] for device in told["devices"])
            merging = _merging(recipe, model, recipe.rounds.cohort or fitting)
            return {**told, **merging, **_planned(recipe)}
        return _found(found, roster, self._quarantined)

    def _check_model(self, recipe: Recipe, spec: DataSpec, dataset: Dataset) -> Model:
        """Check that the algorithm can train the model on the data, and return the model."""
        allowed, memory = self._settings.user_models, self._settings.memory
        model = make_model(recipe, spec.shape, spec.classes, memory, user_models=allowed)
        check_training(recipe, make(recipe), model, dataset)
        return model


def check_start(recipe: Recipe, settings: ServiceSettings) -> None:
    """Check what can be known of a run before it exists, without devices and data.

    Raises:
        EdgeFedError: the recipe cannot be run, names code that is not run here, or starts from
            weights that are not there.
    """
    check_code_allowed(recipe, settings.user_models)
    check_fleet(make(recipe))
    check_privacy(recipe)
    folder = settings.folder
    weights_source(recipe.model, folder / "data", lambda run: folder / "runs" / run)


def _planned(recipe: Recipe) -> dict[str, Any]:
    """Return what the run would cost in differential privacy; nothing without."""
    if not recipe.privacy.wanted:
        return {}
    return {"privacy": privacy_plan(recipe.privacy, recipe.rounds).as_json()}


def _merging(recipe: Recipe, model: Model, devices: int) -> dict[str, Any]:
    """Return what it takes to have all replies of a round at once, where the recipe needs that."""
    merging = recipe.merging
    if not (merging.needs_all or recipe.checks.compares):
        return {}
    update = sum(array.nbytes for array in model.weights().values())
    memory = merging_bytes(merging, update, devices)
    return {"merging": {"rule": merging.rule, "memory": memory, "held": devices * update}}


def _found(
    found: Compatibility, roster: Roster, quarantined: Callable[[str], bool]
) -> dict[str, Any]:
    reasons = {each.device: each.reason for each in found.misfits}
    reasons |= {each.device: QUARANTINED for each in roster if quarantined(each.device)}
    devices = [
        {
            "device": member.device,
            "fits": member.device not in reasons and found.problem is None,
            "reason": reasons.get(member.device, ""),
        }
        for member in roster
    ]
    spec = found.spec
    return {
        "fits": found.problem is None and all(device["fits"] for device in devices),
        "shape": list(spec.shape) if spec else [],
        "classes": spec.classes if spec else 0,
        "class_names": list(spec.class_names) if spec else [],
        "devices": devices,
        "problem": found.problem.to_json()["error"] if found.problem else None,
    }
