"""Handle ``run check``: describe the run of a recipe, and which devices fit it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from edgefed.algorithms.composed.merging_check import least_devices
from edgefed.algorithms.composed.registry import check_fleet, make
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.private.privacy_plan import check_privacy, privacy_plan
from edgefed.config.recipes.checks_section import ChecksSection
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.devices.sites import relays_across_sites
from edgefed.coordinator.models.augmentation import with_augmentation
from edgefed.coordinator.models.run_model import check_dataset, load_dataset, make_model
from edgefed.coordinator.models.user_code_check import check_code_allowed
from edgefed.coordinator.process.service_settings import ServiceSettings
from edgefed.coordinator.rounds.starting_weights import (
    put_initial_weights,
    unknown_weights,
    weights_source,
)
from edgefed.coordinator.rounds.training_check import check_training
from edgefed.coordinator.storage.compatibility import Compatibility, DataSpec, check_compatibility
from edgefed.data.base.types import Dataset
from edgefed.errors import DataError, EdgeFedError, NotAllowedError
from edgefed.learn.modeling.model import Model
from edgefed.learn.robust.aggregate import merging_bytes

MORE_DEVICES = "start more agents, or change the recipe"


class RunCheck:
    """Checks recipes against the connected devices, one at a time, because it reads data.

    Args:
        settings: of the coordinator; data sets are kept in its folder.
        excluded: returns the devices that take part in no run with these checks, with reasons.
        gateway_of: returns the gateway that speaks for a device; empty for none.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        excluded: Callable[[ChecksSection], Mapping[str, str]] = lambda checks: {},
        gateway_of: Callable[[str], str] = lambda device: "",
    ) -> None:
        self._settings = settings
        self._excluded = excluded
        self._gateway_of = gateway_of
        self._busy = threading.Lock()

    def report(self, recipe: Recipe, roster: Roster) -> dict[str, Any]:
        """Return the report that ``run check --json`` prints.

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
        compatibility = check_compatibility(recipe, dataset, roster)
        report = _found(compatibility, roster, self._excluded(recipe.checks))
        if compatibility.spec is not None and compatibility.problem is None:
            plan = with_augmentation(recipe, dataset.preparation)
            model = self._check_model(plan, compatibility.spec, dataset)
            report |= self._weights(plan, compatibility.spec, model)
            fitting = sum(device["fits"] for device in report["devices"])
            _note_too_few(report, recipe, fitting)
            self._note_sites(report, recipe)
            merging = _merging(recipe, model, recipe.rounds.cohort or fitting)
            return {**report, **merging, **_planned(recipe)}
        return report

    def _check_model(self, recipe: Recipe, spec: DataSpec, dataset: Dataset) -> Model:
        """Check that the algorithm can train the model on the data, and return the model."""
        allowed, memory = self._settings.user_models, self._settings.memory
        model = make_model(recipe, spec.shape, spec.classes, memory, user_models=allowed)
        check_training(recipe, make(recipe), model, dataset)
        return model

    def _weights(self, recipe: Recipe, spec: DataSpec, model: Model) -> dict[str, Any]:
        """Return whether the run can start from the weights that it names; nothing for none."""
        section, folder = recipe.model, self._settings.folder
        if not (section.weights or section.start):
            return {}
        problem: EdgeFedError | None = None
        reason, usable = "", "yes"
        try:
            if reason := unknown_weights(section):
                usable = "unknown"
            else:
                runs = folder / "runs"
                put_initial_weights(model, section, spec, folder / "data", lambda run: runs / run)
        except EdgeFedError as error:
            problem, reason, usable = error, error.message, "no"
        report: dict[str, Any] = {"weights": {"usable": usable, "reason": reason}}
        if problem is not None:
            report |= {"fits": False, "problem": problem.to_json()["error"]}
        return report

    def _note_sites(self, report: dict[str, Any], recipe: Recipe) -> None:
        """Add that devices of different sites would send each other data, if they would."""
        mixes = recipe.labels.wanted and recipe.labels.mix_share > 0
        if not (mixes or recipe.secure_aggregation.wanted):
            return
        at: dict[str, str] = {}
        for device in (row["device"] for row in report["devices"] if row["fits"]):
            at.setdefault(self._gateway_of(device), device)
        if len(at) > 1:
            error = relays_across_sites(*list(at.values())[:2])
            report.update(fits=False, problem=error.to_json()["error"])


def check_start(recipe: Recipe, settings: ServiceSettings) -> None:
    """Check a run before it exists, as far as possible without devices and data.

    Raises:
        EdgeFedError: the recipe cannot be run, names code that is not run here, or starts from
            weights that are not there.
    """
    check_code_allowed(recipe, settings.user_models)
    check_fleet(make(recipe))
    check_privacy(recipe)
    folder = settings.folder
    weights_source(recipe.model, folder / "data", lambda run: folder / "runs" / run)


def _note_too_few(report: dict[str, Any], recipe: Recipe, fitting: int) -> None:
    """Add why the devices that fit do not suffice for a round, if they do not."""
    if problem := least_devices(recipe).shortage(fitting):
        error = DataError(problem, code="run.devices", hint=MORE_DEVICES)
        report.update(fits=False, problem=error.to_json()["error"])


def _planned(recipe: Recipe) -> dict[str, Any]:
    """Return the planned privacy cost of the run; nothing without differential privacy."""
    if not recipe.privacy.wanted:
        return {}
    return {"privacy": privacy_plan(recipe.privacy, recipe.rounds).as_json()}


def _merging(recipe: Recipe, model: Model, devices: int) -> dict[str, Any]:
    """Return the memory for all replies of a round at once, where the recipe needs that."""
    merging = recipe.merging
    if not (merging.needs_all or recipe.checks.compares):
        return {}
    update = model.trained_bytes
    memory = merging_bytes(merging, update, devices)
    return {"merging": {"rule": merging.rule, "memory": memory, "held": devices * update}}


def _found(
    compatibility: Compatibility, roster: Roster, excluded: Mapping[str, str]
) -> dict[str, Any]:
    reasons = {**excluded, **{misfit.device: misfit.reason for misfit in compatibility.misfits}}
    devices = [
        {
            "device": member.device,
            "fits": member.device not in reasons and compatibility.problem is None,
            "reason": reasons.get(member.device, ""),
        }
        for member in roster
    ]
    spec = compatibility.spec
    return {
        "fits": compatibility.problem is None and all(device["fits"] for device in devices),
        "shape": list(spec.shape) if spec else [],
        "classes": spec.classes if spec else 0,
        "class_names": list(spec.class_names) if spec else [],
        "devices": devices,
        "problem": compatibility.problem.to_json()["error"] if compatibility.problem else None,
    }
