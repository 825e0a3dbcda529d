"""Runs that carry a recurrent state from batch to batch, and those that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.carried_state import check_carried_state
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.coordinator.models.run_model import load_dataset
from edgefed.data.devices.partition import deal_recipe
from edgefed.errors import RecipeError
from edgefed.learn.modeling.model_building import build
from tests.run_fixture import EXACT, World
from tests.run_fixture import recipe as small_recipe
from tests.simulator.work import with_notes

TEXT = "To be, or not to be: that is the question.\n"
LSTM = build(ModelSection.model_validate({"name": "lstm", "hidden": 3}), (5,), 6, 1)
MLP = build(ModelSection.model_validate({"name": "mlp", "hidden": [3]}), (5,), 6, 1)


def recipe(folder: Path, engine: str = "sequential", **training: Any) -> Recipe:
    """Return two rounds of three roles."""
    path = folder / "roles.jsonl"
    roles = {"hamlet": TEXT * 3, "ophelia": TEXT[::-1] * 2, "yorick": TEXT.upper() * 2}
    lines = (json.dumps({"role": role, "text": text}) for role, text in roles.items())
    path.write_text("\n".join(lines) + "\n")
    data = {"name": "shakespeare", "path": str(path), "window": 6, "partition": "natural"}
    return Recipe.model_validate(
        {
            "seed": 5,
            "model": {"name": "lstm", "hidden": 4, "layers": 1, "embedding": 3},
            "data": data,
            "rounds": {"count": 2},
            "training": {"batch_size": 6, "learning_rate": 0.5, "carry_state": True, **training},
            "simulation": {"devices": 3, "engine": engine, "workers": 1},
            "wire": EXACT,
        }
    )


def simulated(folder: Path, chosen: Recipe) -> tuple[str, list[str]]:
    """Return the digest in the end, and what was said."""
    result, said = with_notes(chosen, folder)
    return str(result.record.weights_digest), said


def test_devices_train_on_their_text_in_order(tmp_path: Path) -> None:
    carried, _ = simulated(tmp_path / "a", recipe(tmp_path))
    again, _ = simulated(tmp_path / "b", recipe(tmp_path))
    without, _ = simulated(tmp_path / "c", recipe(tmp_path, carry_state=False))
    assert carried == again
    assert carried != without


def test_a_virtual_device_has_its_samples_in_the_order_of_the_text(tmp_path: Path) -> None:
    plan = recipe(tmp_path)
    data = {**plan.data.model_dump(), "merge_groups": True}
    only = {"devices": 1, "workers": 1}
    plan = Recipe.model_validate({**plan.model_dump(), "data": data, "simulation": only})
    dataset = load_dataset(plan, None)
    (shard,) = deal_recipe(dataset, plan, 0.0)
    assert np.array_equal(shard.train.inputs, dataset.train.inputs)
    plain = plan.model_copy(update={"training": TrainingSection()})
    (other,) = deal_recipe(dataset, plain, 0.0)
    assert not np.array_equal(other.train.inputs, dataset.train.inputs)


def test_a_stacked_engine_trains_one_device_after_another_and_says_so(tmp_path: Path) -> None:
    stacked, said = simulated(tmp_path / "a", recipe(tmp_path, "stacked"))
    alone, _ = simulated(tmp_path / "b", recipe(tmp_path))
    assert stacked == alone
    assert said == ["trains one device after another: training.carry_state is set"]


# -- refused --------------------------------------------------------------------------------------


def carrying(name: str, carry: bool = True, **sections: Any) -> Any:
    algorithm = {"name": name, **sections.pop("settings", {})}
    training = {"carry_state": carry}
    return make(Recipe.model_validate({"algorithm": algorithm, "training": training, **sections}))


ONE_PASS = ("fedavg", "fedprox", "fedopt", "fedlc", "fedrs", "ifca", "fedma", "ensemble")


@pytest.mark.parametrize("name", ONE_PASS)
def test_an_algorithm_whose_loss_is_one_pass_carries(name: str) -> None:
    check_carried_state(carrying(name), LSTM)
    check_carried_state(carrying("fedprox", personal={"preset": "biased"}), LSTM)


@pytest.mark.parametrize("name", ["fedmix", "naivemix", "localmix", "globalmix", "fedmoe"])
def test_an_algorithm_of_several_passes_is_refused(name: str) -> None:
    with pytest.raises(
        RecipeError, match=f"settings {name} calls the model more than once"
    ) as refused:
        check_carried_state(carrying(name), LSTM)
    assert refused.value.code == "train.carry_state"
    assert refused.value.hint
    check_carried_state(carrying(name, carry=False), LSTM)


def test_a_model_without_a_state_is_refused() -> None:
    with pytest.raises(RecipeError, match="the model has none") as refused:
        check_carried_state(carrying("fedavg"), MLP)
    assert refused.value.code == "train.carry_state"
    check_carried_state(carrying("fedavg", carry=False), MLP)


def test_supplements_for_labels_are_refused() -> None:
    with pytest.raises(RecipeError, match="more than the device's own samples"):
        check_carried_state(carrying("fedavg", labels={"supplement": 1.0}), LSTM)


def test_a_coordinator_refuses_it_before_any_device_is_asked(tmp_path: Path) -> None:
    here = World(tmp_path, small_recipe(training={"carry_state": True}))
    record = here.engine().run()
    assert (record.status, record.error) == ("failed", "train.carry_state")
    assert not {"exchange", "reply", "round"} & {event.kind for event in here.events}
