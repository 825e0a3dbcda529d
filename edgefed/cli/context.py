"""The common options of ``edgefed``, and the settings and recipes that they select."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from edgefed.common_options import CommonOptions, common_options

if TYPE_CHECKING:
    from edgefed.config.load import Flag, Loaded
    from edgefed.config.recipe import Recipe
    from edgefed.config.settings import Settings
    from edgefed.config.settings_files import Surroundings


@dataclass(frozen=True)
class Globals(CommonOptions):
    """The common options, and the settings and recipes that they lead to."""

    def surroundings(self) -> Surroundings:
        """Return the files, variables and folder that settings come from.

        Raises:
            UsageError: the current folder is gone.
        """
        from edgefed.config.settings_files import Surroundings

        return Surroundings.of_process(self.config, self.no_config)

    def settings(self) -> Loaded[Settings]:
        """Return the settings, each with where it was written.

        Raises:
            RecipeError: a file cannot be read, or values are wrong.
        """
        from edgefed.config.load import Flag, load_settings

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
        from edgefed.config.load import load_recipe

        return load_recipe(path, self.surroundings(), sets=sets, flags=flags)


def globals_of(context: typer.Context) -> Globals:
    """Return the common options that this command was called with."""
    return Globals(**vars(common_options(context)))
