"""The tables of the studies are recipes that can be run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.averaged_data import __main__ as averaged_data
from benchmarks.expert_study import __main__ as expert_study
from benchmarks.label_supplements import __main__ as label_supplements
from benchmarks.late_class import __main__ as late_class
from benchmarks.poisoning.__main__ import DEFENCES, Case
from benchmarks.studies.trials import Tables, merged, recipe_of
from edgefed.algorithms.composed.registry import make
from edgefed.config.recipes.recipe import Recipe


def settings() -> Iterator[Tables]:
    """Yield the tables of every setting that the studies of data on devices try."""
    for setup in averaged_data.SETUPS.values():
        for method in averaged_data.METHODS:
            yield from averaged_data.choices(setup, method).values()
    for one in label_supplements.SETUPS.values():
        for name in one.methods:
            method_of = label_supplements.METHODS[name]
            yield from label_supplements.choices(one, "lenet5", method_of).values()
    for experiment in expert_study.SETUPS.values():
        for chosen in expert_study.EVERY.values():
            for tables in expert_study.choices(chosen).values():
                yield merged(*expert_study.tables_of(experiment, chosen), tables)


def test_every_setting_that_is_tried_is_one_of_its_algorithm(tmp_path: Path) -> None:
    recipes = [recipe_of(tmp_path / "images.npz", 1, tables) for tables in settings()]
    assert len(recipes) > 200
    assert {make(recipe).name for recipe in recipes} >= {"fedavg", "fedmix", "fedmoe", "ifca"}


def test_every_way_and_every_defence_is_a_recipe() -> None:
    for way in late_class.WAYS.values():
        changes = (late_class.TABLES["changes"][name] for name in way.changes)
        make(Recipe.model_validate(merged(late_class.TABLES["recipe"], *changes)))
    for name in DEFENCES:
        assert make(Case("none", name, 1, 2, "iid").recipe()).name == "fedavg"
