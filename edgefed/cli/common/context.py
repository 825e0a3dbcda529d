"""The common options of ``edgefed``; the settings, recipes and coordinator that they select."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from edgefed.terminal.common_options import CommonOptions, common_options

if TYPE_CHECKING:
    from edgefed.config.fleet.settings import Settings
    from edgefed.config.fleet.settings_files import Surroundings
    from edgefed.config.loading.load import Flag, Loaded
    from edgefed.config.recipes.recipe import Recipe
    from edgefed.control.coordinator_client import CoordinatorClient

_ELSEWHERE = ("broker.unreachable", "coordinator.unreachable", "run.unknown")


@dataclass(frozen=True)
class Globals(CommonOptions):
    """The common options, and the settings, recipes and coordinator that they lead to."""

    def surroundings(self) -> Surroundings:
        """Return the files, variables and folder that settings come from.

        Raises:
            UsageError: the current folder is gone.
        """
        from edgefed.config.fleet.settings_files import Surroundings

        return Surroundings.of_process(self.config, self.no_config)

    def settings(self) -> Loaded[Settings]:
        """Return the settings, each with where it was written.

        Raises:
            RecipeError: a file cannot be read, or values are wrong.
        """
        from edgefed.config.loading.load import Flag, load_settings

        flags = [
            Flag("--broker", "broker", self.broker),
            Flag("--insecure", "insecure", self.insecure or None),
            Flag("--fleet", "fleet", self.fleet),
            Flag("--state", "state", self.state),
        ]
        return load_settings(self.surroundings(), flags)

    def recipe(
        self,
        path: Path | None,
        *,
        sets: Mapping[str, str] | None = None,
        flags: Iterable[Flag] = (),
    ) -> Loaded[Recipe]:
        """Return a recipe, each value with where it was written; see ``load_recipe``.

        Raises:
            RecipeError: a file cannot be read, or values are wrong.
        """
        from edgefed.config.loading.load import load_recipe

        return load_recipe(path, self.surroundings(), sets=sets, flags=flags)

    @contextmanager
    def connected(self, local: str = "") -> Iterator[CoordinatorClient]:
        """Yield the fleet's coordinator, connected within the block.

        Args:
            local: the command that searches this machine for unknown runs, without its ``--local``;
                the hint of an error names it.

        Raises:
            UnreachableError: there is no broker.
        """
        from edgefed.config.fleet.broker_address import broker_address
        from edgefed.control.coordinator_client import CoordinatorClient
        from edgefed.errors import EdgeFedError

        try:
            settings = self.settings().value
            coordinator = CoordinatorClient(broker_address(settings), settings.fleet)
            coordinator.connect()
            try:
                yield coordinator
            finally:
                coordinator.close()
        except EdgeFedError as error:
            if local and error.code in _ELSEWHERE:
                hint = f"for a run of this machine, such as a simulation: {local.rstrip()} --local"
                error.hint = "; ".join(filter(None, (error.hint, hint)))
            raise


def newest(coordinator: CoordinatorClient) -> str:
    """Return the id of the newest run.

    Raises:
        UnknownNameError: there is none.
        NotAllowedError: ``run.gateway``: this is a gateway, and its devices work for a run.
    """
    from edgefed.errors import NotAllowedError, UnknownNameError

    runs = coordinator.ask("run.list")
    if not runs and (shown := coordinator.ask("snapshot")["snapshot"]["run"]):
        raise NotAllowedError(
            f"Run {shown['run']} is at the coordinator to which this gateway belongs.",
            code="run.gateway",
            hint="use the same command there",
        )
    if not runs:
        raise UnknownNameError("There is no run yet.", code="run.unknown", hint="edgefed run start")
    return str(runs[0]["run"])


def globals_of(context: typer.Context) -> Globals:
    """Return the common options that this command was called with."""
    return Globals(**vars(common_options(context)))
