"""What secure aggregation does not go with is refused before there is a run, with one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from edgefed.algorithms.composed.registry import make, make_device_half
from edgefed.algorithms.secure.secure_phases import threshold_of
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.recipes.secure_aggregation_section import SecureAggregationSection
from edgefed.config.values.address import Address
from edgefed.coordinator.process.run_check import check_start
from edgefed.coordinator.process.service_settings import ServiceSettings
from edgefed.errors import RecipeError, UsageError
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation
from tests.algorithms.play import task_fields
from tests.algorithms.secure.test_secure_aggregation import devices
from tests.algorithms.secure_play import Round, algorithm


def recipe(**tables: Any) -> Recipe:
    secure = {"enabled": True, **tables.pop("secure_aggregation", {})}
    wire = {"uplink": "fp32", **tables.pop("wire", {})}
    return Recipe.model_validate({"secure_aggregation": secure, "wire": wire, **tables})


UNFIT: list[tuple[dict[str, Any], str]] = [
    *(
        ({"algorithm": {"name": name}}, f"{name} does more with updates than to sum them")
        for name in ("ensemble", "fedma", "fedmoe", "ifca", "pfnm")
    ),
    ({"algorithm": {"divergence": True}}, "algorithm.divergence compares single updates"),
    ({"wire": {"uplink": "bf16"}}, "wire.uplink = bf16 codes updates"),
    ({"wire": {"uplink": "int8"}}, "wire.uplink = int8 codes updates"),
    ({"merging": {"rule": "median"}}, "merging.rule = median"),
    ({"merging": {"rule": "norm_clipping"}}, "merging.rule = norm_clipping"),
    ({"checks": {"norm_factor": 3}}, "checks.norm_factor"),
    ({"checks": {"samples_factor": 3}}, "checks.samples_factor"),
    ({"checks": {"announced_factor": 3}}, "checks.announced_factor"),
    ({"privacy": {"mechanism": "local", "epsilon": 8}}, "privacy.mechanism = local"),
    ({"privacy": {"mechanism": "central", "epsilon": 8}}, "privacy.mechanism = central"),
]


@pytest.mark.parametrize(("tables", "reason"), UNFIT, ids=[reason for _, reason in UNFIT])
def test_what_needs_single_updates_is_refused(tables: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecipeError, match="Secure aggregation cannot sum these updates") as raised:
        make(recipe(**tables))
    assert reason in raised.value.message
    assert raised.value.code == "secure.unfit"
    assert raised.value.hint


@pytest.mark.parametrize(
    ("tables", "code"),
    [
        ({"rounds": {"cohort": 257}}, "secure.cohort"),
        ({"rounds": {"cohort": 5}, "secure_aggregation": {"threshold": 6}}, "secure.threshold"),
        ({"rounds": {"cohort": 10, "over_selection": 0.6}}, "secure.threshold"),
        ({"rounds": {"cohort": 5}, "secure_aggregation": {"colluders": 4}}, "secure.threshold"),
    ],
)
def test_a_cohort_that_cannot_be_summed_is_refused(tables: dict[str, Any], code: str) -> None:
    with pytest.raises(RecipeError) as raised:
        make(recipe(**tables))
    assert raised.value.code == code


@pytest.mark.parametrize("threshold", [0.5, 0.3, -1, 1.5, 2.5])
def test_a_threshold_is_more_than_half_or_a_number_of_devices(threshold: float) -> None:
    with pytest.raises(ValidationError):
        SecureAggregationSection(threshold=threshold)


@pytest.mark.parametrize(
    ("threshold", "asked", "wanted"),
    [
        (0, 10, 7),
        (0, 4, 3),
        (0, 3, 2),
        (0, 2, 2),
        (2 / 3, 10, 7),
        (2 / 3, 9, 6),
        (2 / 3, 3, 2),
        (2 / 3, 1, 2),
        (0.51, 2, 2),
        (0.501, 10, 7),
        (1.0, 10, 10),
        (8, 10, 8),
    ],
)
def test_thresholds_in_devices(threshold: float, asked: int, wanted: int) -> None:
    assert threshold_of(SecureAggregationSection(threshold=threshold), asked) == wanted


@pytest.mark.parametrize("threshold", [4, 5])
def test_a_number_of_devices_that_is_no_majority_is_refused_before_the_round(
    threshold: int,
) -> None:
    with pytest.raises(UsageError, match="more than half of the devices asked") as raised:
        Round.of(algorithm(secure_aggregation={"threshold": threshold}), devices()).plan()
    assert raised.value.code == "secure.threshold"


def test_run_check_and_run_start_refuse_it_alike(tmp_path: Path) -> None:
    unfit = recipe(algorithm={"name": "ifca"})
    with pytest.raises(RecipeError, match="ifca does more"):
        check_start(unfit, ServiceSettings(Address("127.0.0.1", 1), "fleet", tmp_path))


def test_a_simulation_refuses_it_before_it_writes_anything(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="ifca does more"):
        Simulation(recipe(algorithm={"name": "ifca"}), tmp_path / "one", SystemClock())
    with pytest.raises(RecipeError, match="a label audit reads single updates"):
        Simulation(recipe(), tmp_path / "two", SystemClock(), audit=True)
    assert not list(tmp_path.iterdir())


def test_a_device_takes_no_task_that_is_noised_and_masked() -> None:
    plan = recipe()
    noised = Recipe.model_validate({"privacy": {"mechanism": "local", "noise_multiplier": 1.0}})
    fields = task_fields(plan, privacy=noised.privacy.model_dump(mode="json"))
    with pytest.raises(RecipeError, match=r"privacy\.mechanism = local"):
        make_device_half(fields)
