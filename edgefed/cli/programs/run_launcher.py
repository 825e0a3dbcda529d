"""Start runs from the dashboard as ``edgefed run start`` does."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from edgefed.cli.common.context import Globals
from edgefed.config.fleet.settings_files import Surroundings, expand
from edgefed.config.loading.load import load_recipe
from edgefed.config.loading.write import toml_value
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.layers import ValueLayer, document_layer, leaves, merge, single
from edgefed.config.values.problems import ProblemsError, dotted, problems_error
from edgefed.config.values.toml import parse_value, read_toml
from edgefed.errors import EdgeFedError
from edgefed.tui.state.launching import AdvisedRecipe, CheckedValues, PastRun, ValueProblem


class Asker(Protocol):
    """The coordinator's interface for starting a run."""

    def ask(self, action: str, /, **arguments: Any) -> Any:
        """Send a request and return the coordinator's answer."""
        ...

    def order(self, action: str, /, **arguments: Any) -> Any:
        """Give an order and return the coordinator's answer."""
        ...


@dataclass(frozen=True)
class StartOptions:
    """The parts of the dashboard's command line that apply to the runs that it starts.

    Attributes:
        around: settings files and variables, which add to a recipe.
        words: the common options that were typed.
    """

    around: Surroundings
    words: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        """``edgefed`` with these options, as it can be called again."""
        name = "edgefed" if shutil.which("edgefed") else sys.argv[0]
        return shlex.join((name, *self.words))

    @classmethod
    def of(cls, options: Globals) -> StartOptions:
        """Return those of a command; a broker's address with a login is left out."""
        login = options.broker is not None and "@" in options.broker
        passed = replace(
            options,
            broker=None if login else options.broker,
            json=False,
            quiet=False,
            verbose=False,
            no_color=False,
        )
        return cls(options.surroundings(), passed.words())


@dataclass(frozen=True)
class RunLauncher:
    """Makes drafts from recipe files and past runs.

    Attributes:
        coordinator: knows past runs and starts new ones.
        around: settings files and variables, which add to a recipe.
        options: the common options with which the dashboard was started, for command lines.
        state: the state folder, with advice.
    """

    coordinator: Asker
    around: Surroundings
    options: Sequence[str] = ()
    state: Path = Path()

    @property
    def folder(self) -> Path:
        """The current folder."""
        return self.around.cwd

    def past_runs(self) -> tuple[PastRun, ...]:
        """Return the coordinator's runs, the newest first."""
        rows = self.coordinator.ask("run.list")
        names = ("run", "name", "algorithm", "status", "created")
        return tuple(PastRun(*(str(row[name]) for name in names)) for row in rows)

    def from_file(self, path: Path | None) -> RecipeDraft:
        """Return the draft of a recipe file, or of the defaults for None."""
        if path is None:
            return RecipeDraft(self, ValueLayer(), "the defaults")
        name = str(path.relative_to(self.folder) if path.is_relative_to(self.folder) else path)
        document = read_toml(self.folder / expand(path), name)
        return RecipeDraft(self, document_layer(document), name, file=name)

    def from_run(self, run: str) -> RecipeDraft:
        """Return a draft with the recipe of a past run."""
        record = self.coordinator.ask("run.show", run=run)
        layer = ValueLayer(record["recipe"])
        sets = dict(_sets_of(layer, self.around))
        return RecipeDraft(self, layer, f"run {record['run']}", sets=sets)


class RecipeDraft:
    """A recipe with changes.

    Args:
        launcher: its maker.
        base: the recipe as it was written.
        title: its source.
        file: the recipe's file on a command line; empty where there is none.
        sets: options that make the same recipe on a command line without a file.
    """

    def __init__(
        self,
        launcher: RunLauncher,
        base: ValueLayer,
        title: str,
        *,
        file: str = "",
        sets: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        from edgefed.cli.common.recipe_schema import full_schema, simulation_keys

        self.title = title
        self.schema: Mapping[str, Any] = full_schema("recipe")
        self.unused = simulation_keys()
        self._launcher = launcher
        self._base = base
        self._file = (file,) if file else ()
        self._own_sets = sets

    def check(self, sets: Mapping[str, str]) -> CheckedValues:
        """Return the values with changes, and their problems."""
        from edgefed.algorithms.composed.merging_check import least_devices
        from edgefed.algorithms.composed.registry import check_fleet, make
        from edgefed.algorithms.private.privacy_plan import check_privacy

        try:
            recipe = self._recipe(sets)
            check_fleet(make(recipe))
            check_privacy(recipe)
            least = least_devices(recipe)
            values = recipe.model_dump(mode="json")
            return CheckedValues(values, (), least.count, least.because)
        except ProblemsError as error:
            problems = [ValueProblem(problem.key, problem.text) for problem in error.problems]
        except EdgeFedError as error:
            problems = [ValueProblem("", error.message)]
        return CheckedValues(self._as_written(sets), tuple(dict.fromkeys(problems)))

    def command(self, sets: Mapping[str, str]) -> str:
        """Return the command line that starts the same run."""
        all_sets = {**self._own_sets, **sets}.items()
        changes = (word for key, text in all_sets for word in ("--set", f"{key}={text}"))
        start = ("edgefed", *self._launcher.options, "run", "start")
        return shlex.join((*start, *self._file, *changes))

    def advice(self, sets: Mapping[str, str]) -> AdvisedRecipe:
        """Return the advice for the recipe, by its name, in this machine's state folder."""
        from edgefed.advise.checks import RECIPE, advice_folder, read_advice
        from edgefed.advise.tables import advice_table

        launcher = self._launcher
        folder = advice_folder(launcher.state, self._recipe(sets).name)
        draft = partial(launcher.from_file, folder / RECIPE)
        advice = read_advice(folder)
        return AdvisedRecipe(advice_table(advice), advice["recommended"], draft)

    def start(self, sets: Mapping[str, str]) -> str:
        """Start the run and return its id."""
        recipe = self._recipe(sets).model_dump(mode="json")
        return str(self._launcher.coordinator.order("run.start", recipe=recipe)["run"])

    def _recipe(self, sets: Mapping[str, str]) -> Recipe:
        from edgefed.api.recipe_sections import open_problems
        from edgefed.api.recipe_source import checked

        around = self._launcher.around
        loaded = load_recipe(self._base, around, sets=sets, further=open_problems)
        problems = open_problems(loaded.layer)
        if problems:
            raise problems_error(problems)
        return checked(loaded)

    def _as_written(self, sets: Mapping[str, str]) -> Mapping[str, Any]:
        """Return the values of a recipe that cannot be used as it is."""
        changes = [single(tuple(key.split(".")), parse_value(text), _NOWHERE)
                   for key, text in sets.items()]  # fmt: skip
        return merge([*changes, self._base, ValueLayer(Recipe().model_dump(mode="json"))]).values


_NOWHERE = ValueLayer().origin(())


def _sets_of(recipe: ValueLayer, around: Surroundings) -> Iterator[tuple[str, str]]:
    """Yield the ``--set`` options that turn the recipe of a bare ``run start`` into this one."""
    bare = dict(_flat(load_recipe(None, around).value.model_dump(mode="json")))
    for key, value in _flat(recipe.values):
        named = key == "name"  # without it, a run is named after its data set and its algorithm
        if value is not None and (named or key not in bare or bare[key] != value):
            text = value if isinstance(value, str) and parse_value(value) == value else None
            yield key, toml_value(value) if text is None else text


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for path, value in leaves(values):
        if value != {}:
            yield dotted(path), value
