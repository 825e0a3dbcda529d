"""Classes and functions of a user's own: passed to ``simulate``, or named by a recipe."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import edgefed
from edgefed.algorithms.composed.registry import find, make_device_half
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.address import Address
from edgefed.coordinator.process.run_check import check_start
from edgefed.coordinator.process.service_settings import ServiceSettings
from edgefed.errors import EdgeFedError, PluginError, RecipeError, UsageError
from edgefed.extension import FedAvg, Selector
from tests.algorithms.play import task_fields
from tests.api import own_classes
from tests.api.own_classes import DEALT, Failing, Last, Stepping, Unfinished, Wrong, dealt
from tests.api.small import TRAIN, arrays, npz, recipe
from tests.cli.commands import edgefed as command
from tests.cli.commands import recipe_file
from tests.notebook import Notebook

HERE = "tests.api.own_classes"


def digest(tables: dict[str, Any], **more: Any) -> str:
    return edgefed.simulate(tables, data=arrays(TRAIN), **more).weights_digest


def of_factor(factor: float) -> type[FedAvg]:
    class Scaled(Stepping):
        def __init__(self, settings: Any, *more: Any) -> None:
            super().__init__(settings.model_copy(update={"step": factor}), *more)

    return Scaled


@pytest.mark.parametrize("workers", [1, 2])
def test_a_class_ends_in_the_weights_of_the_same_algorithm_by_its_name(workers: int) -> None:
    """Also one that only a function has, in worker processes that inherit it."""
    tables = recipe(simulation={"workers": workers})
    named = digest({**tables, "algorithm": {"name": "fedavg"}})
    assert digest(tables, algorithm=Stepping) == named
    assert digest(tables, algorithm=of_factor(1.0)) == named
    half = digest({**tables, "algorithm": {"name": f"{HERE}:Stepping", "step": 0.5}})
    assert half != named
    assert digest({**tables, "algorithm": {"step": 0.5}}, algorithm=Stepping) == half
    assert digest(tables, algorithm=of_factor(0.5)) == half


def test_each_kind_is_taken_as_an_object_and_by_its_path(tmp_path: Path) -> None:
    tables = recipe(rounds={"cohort": 2})
    plain, chosen = digest(tables), digest({**tables, "selection": {"name": f"{HERE}:Last"}})
    assert digest(tables, selection=Last) == chosen != plain
    split = digest(recipe(data={"partition": f"{HERE}:dealt"}))
    assert digest(recipe(), partition=dealt) == digest(recipe(), partition=DEALT) == split
    skipping = recipe(data={"partition": f"{HERE}:DEALT", "skip": 20})
    assert digest(skipping) == digest(recipe(data={"skip": 20}), partition=DEALT) != split
    of_file = edgefed.simulate(recipe(data=npz(tmp_path)))
    read = edgefed.simulate(recipe(data={"name": f"{HERE}:read"}))
    assert read.weights_digest == of_file.weights_digest


def test_a_result_names_the_objects_and_their_sources(tmp_path: Path) -> None:
    result = edgefed.simulate(
        recipe(rounds={"cohort": 2}), data=arrays(TRAIN), algorithm=Stepping, partition=DEALT,
        selection=Last, folder=tmp_path,
    )  # fmt: skip
    assert result.recipe.algorithm.name == f"{HERE}:Stepping"
    assert result.recipe.data.partition == f"{HERE}:DEALT"
    assert result.recipe.selection.name == f"{HERE}:Last"
    (source,) = command("run", "show", "--local", "--json", "latest", state=tmp_path).json[
        "versions"
    ]["modules"]
    assert (source["name"], len(source["digest"])) == (HERE, 32)
    again = edgefed.simulate(result.recipe, data=arrays(TRAIN))
    assert again.weights_digest == result.weights_digest


# -- objects that cannot be used ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"algorithm": object}, "algorithm.plugin", "builtins:object cannot be used: it is no sub"),
        ({"algorithm": dealt}, "algorithm.plugin", "is no subclass of edgefed.extension.Algorithm"),
        ({"algorithm": lambda: 1}, "algorithm.plugin", "<lambda> cannot be used: it is no subc"),
        ({"algorithm": Wrong}, "algorithm.plugin", "Settings that are no subclass of Algorithm"),
        ({"selection": Unfinished}, "selection.plugin", "it does not define order"),
        ({"selection": Stepping}, "selection.plugin", "is no subclass of edgefed.extension.Sel"),
        ({"partition": 3}, "partition.plugin", "is no edgefed.extension.Partitioner"),
        ({"algorithm": type("A" * 200, (FedAvg,), {})}, "algorithm.plugin", "more than 128"),
        ({"selection": type("N", (Last,), {"name": 3})}, "selection.plugin", "has no name"),
    ],
)
def test_an_object_of_another_kind_is_one_error(given: Any, code: str, words: str) -> None:
    with pytest.raises(PluginError) as caught:
        edgefed.simulate(recipe(), data=arrays(TRAIN), **given)
    assert (caught.value.code, words in caught.value.message) == (code, True), caught.value.message
    assert caught.value.hint


class Nameless:
    """A tracker but for its name."""

    def begin(self, run: object) -> None: ...
    def round(self, row: object) -> None: ...
    def end(self, record: object) -> None: ...


class Named(Nameless):
    name = "named"


class Endless:
    name, begin, round = "endless", Nameless.begin, Nameless.round


class Counting(Named):
    """A tracker that counts rounds."""

    rounds = 0

    def round(self, row: Any) -> None:
        self.rounds += 1


def test_an_object_that_is_no_tracker_is_refused() -> None:
    for wrong in (Nameless(), Named, Endless()):
        with pytest.raises(UsageError, match=r"trackers: .* is no tracker\."):
            edgefed.simulate(recipe(), data=arrays(TRAIN), trackers=[wrong])  # type: ignore[list-item]
    edgefed.simulate(recipe(rounds={"count": 1}), data=arrays(TRAIN), trackers=[Named()])
    with pytest.raises(UsageError, match="callbacks is a list, not 5"):
        edgefed.simulate(recipe(), data=arrays(TRAIN), callbacks=5)  # type: ignore[arg-type]


def test_one_tracker_needs_no_list(tmp_path: Path) -> None:
    tracker = Counting()
    edgefed.simulate(recipe(rounds={"count": 1}), data=arrays(TRAIN), trackers=tracker)
    source = {"recipe": recipe(data=npz(tmp_path), rounds={"count": 2}), "seeds": [1]}
    edgefed.sweep(source, out=tmp_path / "out", trackers=tracker)
    assert tracker.rounds == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{HERE}:Absent", f"{HERE} has no Absent"),
        (f"{HERE}:NUMBER", "is no subclass"),
        ("no_such_module:Mine", "there is no module 'no_such_module'"),
        ("__main__:Absent", "__main__ has no Absent"),
        ("a:b:c", "does not name an algorithm of your own"),
    ],
)
def test_a_name_of_no_such_class_is_one_error(name: str, words: str, tmp_path: Path) -> None:
    file = recipe_file(tmp_path, f'[algorithm]\nname = "{name}"\n')
    command("sim", "run", file, state=tmp_path).failed(2, "algorithm.plugin", words)


def test_a_missing_module_has_a_hint_about_the_path(tmp_path: Path) -> None:
    file = recipe_file(tmp_path, '[algorithm]\nname = "no_such_module:Mine"\n')
    assert "PYTHONPATH=." in command("sim", "run", file, state=tmp_path).err


@pytest.mark.parametrize(
    ("value", "words", "hint"),
    [
        (Stepping, "not Stepping itself", f"'{HERE}:Stepping'"),
        (lambda: 1, "not <lambda> itself", "'__main__:Mine', of a class or function with a name"),
    ],
)
def test_a_class_in_a_grid_is_to_be_named(
    value: Any, words: str, hint: str, tmp_path: Path
) -> None:
    grid = {"algorithm.name": ["fedavg", value]}
    with pytest.raises(RecipeError, match=words) as caught:
        edgefed.sweep({"recipe": recipe(), "grid": grid}, out=tmp_path)
    assert hint in str(caught.value.hint)


def test_code_that_fails_is_named() -> None:
    with pytest.raises(EdgeFedError) as caught:
        digest(recipe(), algorithm=Failing)
    assert caught.value.code == "algorithm.plugin"
    told = f"The algorithm {HERE}:Failing failed in merge: KeyError: 'steps'."
    assert caught.value.message == told
    with pytest.raises(EdgeFedError, match=r"of module tests\..* failed: ZeroDivisionError"):
        digest(recipe(), partition=lambda request, rng: 1 // 0)


# -- where a user's own classes are not run -------------------------------------------------------


@pytest.mark.parametrize(
    "tables",
    [
        {"algorithm": {"name": "no.such:Class", "own": 1}},
        {"data": {"name": "no.such:read"}},
        {"data": {"partition": "no.such:split", "own": 1}},
        {"selection": {"name": "no.such:Class"}},
    ],
)
def test_they_are_not_even_imported_on_a_fleet_or_where_they_are_refused(
    tables: dict[str, Any], tmp_path: Path
) -> None:
    settings = ServiceSettings(Address("127.0.0.1", 1), "tests", tmp_path, user_models=True)
    with pytest.raises(PluginError) as caught:
        check_start(Recipe.model_validate(tables), settings)
    assert caught.value.code == "code.refused"
    with pytest.raises(EdgeFedError) as refused:
        edgefed.simulate({**recipe(), **tables}, user_models=False)
    assert refused.value.code == "code.refused"


def test_an_object_is_refused_where_code_of_users_is() -> None:
    with pytest.raises(PluginError) as caught:
        digest(recipe(), algorithm=Stepping, user_models=False)
    assert caught.value.code == "code.refused"


def test_a_device_imports_no_class_that_a_task_names() -> None:
    fields = {**task_fields(Recipe()), "algorithm": f"{HERE}:Stepping"}
    with pytest.raises(PluginError) as caught:
        make_device_half(fields)
    assert caught.value.code == "code.refused"


def test_nothing_is_offered_or_allowed_after_the_call() -> None:
    digest(recipe(), algorithm=Stepping)
    with pytest.raises(PluginError, match="only simulations"):
        find(f"{HERE}:Stepping")


def test_a_command_checks_the_recipe_without_its_class_and_simulates_with_it(
    tmp_path: Path,
) -> None:
    text = '[algorithm]\nname = "{}"\nstep = {}\n[rounds]\ncount = 1\n[simulation]\ndevices = 2\n'
    absent = recipe_file(tmp_path, text.format("no.such:Class", 0.5))
    assert command("config", "check", absent, "--json", state=tmp_path).json["problems"] == []
    file = recipe_file(tmp_path, text.format(f"{HERE}:Stepping", 2))
    command("sim", "run", file, state=tmp_path).failed(2, "recipe.value", "algorithm.step")
    keys = f'[data]\npartition = "{HERE}:DEALT"\nskip = -1\n'
    both = recipe_file(tmp_path, text.format(f"{HERE}:Stepping", 2) + keys)
    told = command("sim", "run", both, state=tmp_path).err
    assert "algorithm.step" in told
    assert "data.skip" in told


@pytest.mark.parametrize("where", ["object", "main", "model"])
def test_ray_takes_only_code_that_its_workers_can_import(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # it is refused before Ray is asked
    Notebook(monkeypatch).cell("from tests.api.own_classes import *\nfrom torch import nn\n")
    given: dict[str, Any] = {"algorithm": of_factor(1.0)} if where == "object" else {}
    names = {"main": {"algorithm": {"name": "__main__:Stepping"}}}
    names["model"] = {"model": {"name": "__main__:nn.Module"}}
    with pytest.raises(UsageError) as caught:
        digest({**recipe(), **names.get(where, {})}, on="ray", **given)
    assert (caught.value.code, "top level of a module" in caught.value.hint) == ("ray.code", True)
    with pytest.raises(UsageError) as caught:
        digest(recipe(), on="ray", algorithm=own_classes.Stepping, partition=lambda *_: ())
    assert caught.value.code == "ray.missing"


def test_functions_of_a_notebook_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch)
    notebook.cell("from edgefed.extension import FedAvg\nclass Mine(FedAvg):\n    pass\n")
    mine: Callable[..., Any] = notebook["Mine"]
    named = digest({**recipe(), "algorithm": {"name": "__main__:Mine"}})
    assert digest(recipe(), algorithm=mine) == named == digest(recipe())
    assert issubclass(Last, Selector)
