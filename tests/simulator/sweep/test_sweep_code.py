"""Results of sweeps follow the code of plug-ins and users; code that fails costs its case alone."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.composed.registry import PLUGINS
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import StorageError
from edgefed.simulator.sweep.plan import trial_digest
from tests.plugin_package import ROOT, write_package
from tests.processes import clean_environment
from tests.programs.forked_programs import ended
from tests.simulator.sweep.sweeps import RECIPE, Swept, planned, write

pytest.importorskip("sklearn", reason="the digits are not installed")

FAILING = (
    *("__init__", "parts", "needed_columns", "check_recipe", "check_model", "start", "plan"),
    *("merge", "weights", "models", "model_shares", "round_metrics", "remarks", "evaluation"),
    *("merge_group", "max_reply_bytes", "reject_reason"),
)
"""The methods of the coordinator's half; the run that calls one ends with what it raised."""

DEVICE = ("prepare", "answer", "objective")
"""Those of a device's half; a round without answers ends with what the last device said."""

METHOD = """
    def {name}(self, *given, **named):
        if {at} == "{name}":
            raise ZeroDivisionError("one by none")
        return super().{name}(*given, **named)
"""

ALGORITHM = '''
from dataclasses import replace

from edgefed.extension import AveragingSettings, FedAvg

FACTOR = 0.5


class Settings(AveragingSettings):
    """Keys of [algorithm]."""

    at: str = ""
    """The method that fails."""


class Part(FedAvg):
    """FedAvg that takes a part of the step."""

    def merge(self, state, exchange, answers):
        merged = super().merge(state, exchange, answers)
        before, after = state.groups["weights"], merged.groups["weights"]
        weights = {
            name: (b + FACTOR * (after[name] - b)).astype(b.dtype) for name, b in before.items()
        }
        return replace(merged, groups={**merged.groups, "weights": weights})


class Stepping(Part):
    """The same, or fails."""

    name = "stepping"
    summary = "a part of the step"
    paper = "none"
    Settings = Settings
'''

OTHERS = '''
from torch import nn

from edgefed.extension import (
    Cover,
    Network,
    NetworkSettings,
    Partitioner,
    Selector,
    SelectorSettings,
)


class Broken(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.out = nn.Linear(inputs, classes)

    def forward(self, inputs):
        if self.training:
            raise ZeroDivisionError("one by none")
        return self.out(inputs.flatten(1))


NET = Network("broken", "fails in training", NetworkSettings, lambda own, shape, n: Broken(64, n))


def split(request, rng):
    raise ZeroDivisionError("one by none")


PARTS = Partitioner(split, Cover.ALL, by_label=False, summary="fails")


class Chooser(Selector):
    """Fails when it is made."""

    name = "chooser"
    summary = "fails"
    Settings = SelectorSettings

    def __init__(self, settings):
        raise ZeroDivisionError("one by none")

    def order(self, candidates, count, number, rng):
        return []
'''

LOSS = """
import torch

from own_helper import FACTOR


def loss(outputs, targets):
    return FACTOR * torch.nn.functional.cross_entropy(outputs, targets)


def failing(outputs, targets):
    if outputs.abs().sum() > 0:
        raise ZeroDivisionError("one by none")
    return loss(outputs, targets)


class Net(torch.nn.Sequential):
    def forward(self, inputs):
        if self.training:
            raise ZeroDivisionError("one by none")
        return super().forward(inputs)


def net(shape, classes):
    return Net(torch.nn.Flatten(), torch.nn.Linear(64, classes))
"""


@dataclass(frozen=True)
class Place:
    """A folder with a package of plug-ins, modules of a user, and sweeps."""

    folder: Path

    @property
    def algorithm(self) -> Path:
        return self.folder / "site" / "stepping_plugin" / "algorithm.py"

    @property
    def helper(self) -> Path:
        return self.folder / "site" / "own_helper.py"

    def sweep(self, text: str, *words: str, recipe: str = RECIPE) -> CompletedProcess[str]:
        """Run a sweep of two lines for each case of ``text``, with its results in one folder."""
        file = write(self.folder / "sweep", f'recipe = "recipe.toml"\nseeds = [1]\n{text}', recipe)
        given = ["--state", str(self.folder / "state"), *words, "sim", "sweep", str(file)]
        path = os.pathsep.join([str(self.folder / "site"), str(ROOT)])
        environment = {**clean_environment(), "PYTHONPATH": path}
        return ended(["edgefed.cli.main", *given], environment)

    def error(self, done: CompletedProcess[str], case: str) -> Path:
        """Return the file that the line of a failed case names at the end of a sweep."""
        lines = (line for line in done.stderr.splitlines() if f"  {case}, seed 1: " in line)
        path = Path(next(lines).rpartition(" (")[2].removesuffix(")"))
        assert path.parents[1] == self.folder / "sweep" / "sweep-results" / "runs"
        return path

    def results(self) -> list[Any]:
        """Return the results on disk."""
        folder = self.folder / "sweep" / "sweep-results" / "results"
        return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.algorithm.parent.mkdir(parents=True)
    methods = [METHOD.format(name=name, at="self.settings.at") for name in FAILING[1:]]
    methods += [METHOD.format(name=name, at="self.settings.at") for name in DEVICE]
    methods.append(METHOD.format(name="__init__", at="given[0].at"))
    made.algorithm.write_text(ALGORITHM + "".join(methods))
    (made.algorithm.parent / "__init__.py").write_text("")
    (made.algorithm.parent / "others.py").write_text(OTHERS)
    made.helper.write_text("FACTOR = 1\n")
    (tmp_path / "site" / "own_loss.py").write_text(LOSS)
    points = {"stepping": "stepping_plugin.algorithm:Stepping"}
    write_package(tmp_path / "site", "stepping-plugin", points)
    return made


def cases(key: str, values: Sequence[str]) -> str:
    return f"[grid]\n{key} = {json.dumps(list(values))}\n"


def told(done: CompletedProcess[str]) -> list[str]:
    """Return what each run of a sweep said at its end: ``done before``, a failure, or its score."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("[")]
    return [line.rpartition("  ")[2] for line in lines]


# -- the code is part of a result's name --------------------------------------------------------

SAME = "42c4f3c64c5f0ee81abaeff5"
"""The digest of a recipe without plug-ins and code of users, since before sources counted."""


def test_a_recipe_without_code_of_others_has_the_digest_that_it_had() -> None:
    model, algorithm = {"name": "mlp", "hidden": [16]}, {"name": "fedprox", "mu": 0.1}
    assert trial_digest(Recipe.model_validate({"model": model, "algorithm": algorithm})) == SAME


@pytest.mark.parametrize("of", ["plug-in", "loss"])
def test_changed_code_is_another_run_and_put_back_it_is_known_again(place: Place, of: str) -> None:
    file, grid = place.algorithm, cases("algorithm.name", ["stepping", "fedavg"])
    if of == "loss":
        file, grid = place.helper, cases("training.loss", ["own_loss:loss", "cross_entropy"])
    before = file.read_text()
    scores = told(place.sweep(grid))
    assert told(place.sweep(grid)) == ["done before"] * 2
    file.write_text(before.replace("FACTOR = ", "FACTOR = 3 + "))
    changed = told(place.sweep(grid))
    assert changed[1] == "done before", "the other case has none of this code"
    assert changed[0].startswith("accuracy")
    assert changed[0] != scores[0]
    file.write_text(before)
    assert told(place.sweep(grid)) == ["done before"] * 2
    digests = {result["digest"] for result in place.results()}
    assert len(digests) == 3
    sources = [result["versions"]["packages" if of == "plug-in" else "modules"]
               for result in place.results()]  # fmt: skip
    known = sorted((each["name"], each["version"]) for (each,) in filter(None, sources))
    assert known == [("stepping-plugin", "1.0") if of == "plug-in" else ("own_loss", "")] * 2
    assert len({each["digest"] for (each,) in filter(None, sources)}) == 2


class Added(FedAvg):
    """FedAvg by another name."""

    name = "added"
    summary = "FedAvg"
    paper = "none"


def test_an_object_that_was_added_is_known_by_its_module_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = 'recipe = "recipe.toml"\nseeds = [1]\n[grid]\nalgorithm.name = ["added"]\n'
    file, swept = write(tmp_path / "sweep", grid), Swept(tmp_path / "out")
    with PLUGINS.added("added", Added):
        ((result, *_),) = [list(swept.run(planned(file)).results.values())]
        assert [source.name for source in result.versions.modules] == [__name__]
        swept.run(planned(file))
        assert len(swept.told("known")) == 1
    monkeypatch.setattr(Added, "__module__", "__main__")
    monkeypatch.setattr(Added, "held", object(), raising=False)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    with PLUGINS.added("added", Added), pytest.raises(StorageError) as caught:
        swept.run(planned(file))
    assert caught.value.code == "source.unreadable"


def test_results_of_another_version_warn_and_are_run_again_only_if_asked(place: Place) -> None:
    grid = cases("algorithm.name", ["fedavg", "stepping", "fedprox"])
    place.sweep(grid)
    folder = place.folder / "sweep" / "sweep-results" / "results"
    first, second, _ = sorted(folder.iterdir())
    old = json.loads(first.read_text())
    version = old["versions"]["edgefed"]
    old["versions"].update(edgefed="0.0.9", torch="2.0")
    first.write_text(json.dumps(old))
    older = json.loads(second.read_text())
    del older["versions"]
    second.write_text(json.dumps(older))
    done = place.sweep(grid)
    assert told(done) == ["done before"] * 3
    (warning,) = (line for line in done.stderr.splitlines() if line.startswith("!"))
    assert warning == (
        "! 1 of 3 results is of EdgeFed 0.0.9 with torch 2.0; 1 of 3 results is of an unknown"
        " version of EdgeFed; code changed since: --recompute runs them again"
    )
    again = place.sweep(grid, "--quiet")
    assert warning in again.stderr
    forced = recomputed(place, grid)
    assert sorted(text.partition(" ")[0] for text in told(forced)) == [
        "accuracy", "accuracy", "done",
    ]  # fmt: skip
    assert "!" not in forced.stderr
    assert {result["versions"]["edgefed"] for result in place.results()} == {version}
    assert told(recomputed(place, grid)) == ["done before"] * 3


def recomputed(place: Place, grid: str) -> CompletedProcess[str]:
    """Run a sweep with ``--recompute``."""
    out = str(place.folder / "sweep" / "sweep-results")
    file = place.folder / "sweep" / "sweep.toml"
    assert grid in file.read_text()
    words = ["sim", "sweep", str(file), "--recompute", "--out", out]
    path = os.pathsep.join([str(place.folder / "site"), str(ROOT)])
    return ended(["edgefed.cli.main", *words], {**clean_environment(), "PYTHONPATH": path})


# -- code that fails ------------------------------------------------------------------------------


def failures(done: CompletedProcess[str], count: int) -> list[str]:
    """Return why each case failed, of a sweep that says nothing else on stderr."""
    assert done.returncode == 7, done.stderr
    assert "Traceback" not in done.stderr
    first = next(line for line in done.stderr.splitlines() if line.startswith("edgefed: error: "))
    every, reasons = f"{len(told(done))}", told_failures(done)
    all_failed = f"edgefed: error: All {every} runs failed: {reasons[0]}  [sweep.failed]"
    some_failed = f"edgefed: error: {count} of {every} runs failed:  [partly_done]"
    assert first == (all_failed if all(reasons) else some_failed)
    assert done.stdout.count("0, 1 failed") == count
    return [line for line in told_failures(done) if line]


def told_failures(done: CompletedProcess[str]) -> list[str]:
    lines = [line for line in done.stderr.splitlines() if line.startswith("[")]
    return [line.partition("  failed: ")[2] for line in lines]


def test_a_plug_in_that_raises_in_any_method_fails_its_case_alone(place: Place) -> None:
    methods = [*FAILING, *DEVICE]
    recipe = f'{RECIPE}holdout = 0.2\n[evaluation]\non = "both"\n[algorithm]\nname = "stepping"\n'
    recipe += '[checks]\nnorm_factor = 100\n[wire]\nuplink = "fp32"\n'
    done = place.sweep(cases("algorithm.at", ["", *methods]), recipe=recipe)
    reasons = dict(zip(["", *methods], told_failures(done), strict=True))
    assert reasons.pop("") == ""
    for method, reason in reasons.items():
        words = f"The algorithm 'stepping' of package stepping-plugin failed in {method}: "
        assert reason.startswith(f"{words}ZeroDivisionError: one by none."), (method, reason)
        text = place.error(done, f"at={method}").read_text()
        assert text.startswith(f"{reason}\n\n")
        assert 'algorithm.py", line' in text
        assert f', in {method}\n    raise ZeroDivisionError("one by none")' in text
    assert len(failures(done, len(methods))) == len(methods)


def test_a_sweep_whose_every_case_fails_says_why_of_each(place: Place) -> None:
    """Plug-ins of other kinds, and users' own code."""
    for group, point in (
        ("models", "broken = stepping_plugin.others:NET"),
        ("partitioners", "parts = stepping_plugin.others:PARTS"),
        ("selectors", "chooser = stepping_plugin.others:Chooser"),
    ):
        points = place.folder / "site" / "stepping-plugin-1.0.dist-info" / "entry_points.txt"
        points.write_text(f"{points.read_text()}\n[edgefed.{group}]\n{point}\n")
    text = "".join(
        f'[[cases]]\nname = "{name}"\n{setting}\n'
        for name, setting in {
            "model": 'model = { name = "broken" }',
            "partition": 'data.partition = "parts"',
            "selector": 'selection.name = "chooser"\nrounds.cohort = 1',
            "loss": 'training.loss = "own_loss:failing"',
            "own model": 'model = { name = "own_loss:net" }',
        }.items()
    )
    recipe = RECIPE.replace('name = "mlp"\nhidden = [16]\n', "")
    model, partition, selector, loss, own_model = failures(place.sweep(text, recipe=recipe), 5)
    assert model.startswith("Code of package stepping-plugin failed in forward: ZeroDivisionError")
    assert model.endswith(" Only 0 of 2 devices answered round 1, the quorum is 1; 2 could not.")
    assert partition.startswith("The partition 'parts' of package stepping-plugin failed: ZeroDiv")
    assert selector.startswith("The selector 'chooser' of package stepping-plugin failed in __init")
    assert "The loss own_loss:failing failed: ZeroDivisionError: one by none." in loss
    assert "The model own_loss:net failed in forward: ZeroDivisionError: one by none." in own_model
    assert (place.folder / "sweep" / "sweep-results" / "table.json").exists()


def test_where_a_plug_in_failed_is_shown_if_asked(place: Place) -> None:
    recipe = f'{RECIPE}[algorithm]\nname = "stepping"\n'
    done = place.sweep(cases("algorithm.at", ["merge"]), "--verbose", recipe=recipe)
    assert 'algorithm.py", line' in done.stderr
    assert 'raise ZeroDivisionError("one by none")' in done.stderr


# -- one folder -----------------------------------------------------------------------------------


def test_two_sweeps_in_one_folder_share_results_of_the_same_code(place: Place) -> None:
    first = place.sweep(cases("algorithm.name", ["stepping", "fedavg"]))
    second = place.sweep(cases("algorithm.name", ["fedprox", "stepping"]))
    assert all(text.startswith("accuracy") for text in told(first))
    assert told(second)[1] == "done before"
    assert len(place.results()) == 3
