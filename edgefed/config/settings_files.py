"""The paths of settings files, and the process state that they depend on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgefed.config.settings import home
from edgefed.config.toml import Document, read_toml
from edgefed.errors import RecipeError, UsageError

Program = Literal["edgefed", "edgefed-agent"]

SYSTEM_FOLDER = Path("/etc/edgefed")


@dataclass(frozen=True)
class Surroundings:
    """What of the process and the command line decides which values count.

    Attributes:
        environment: its variables.
        cwd: the current folder, absolute.
        config: ``--config FILE``, which replaces every other file; None where it was not given.
        no_config: ``--no-config``, which reads no file at all.
        system: the folder of the system's files.
    """

    environment: Mapping[str, str]
    cwd: Path
    config: Path | None = None
    no_config: bool = False
    system: Path = SYSTEM_FOLDER

    @classmethod
    def of_process(cls, config: Path | None = None, no_config: bool = False) -> Surroundings:
        """Return those of this process.

        Raises:
            UsageError: the current folder is gone.
        """
        try:
            cwd = Path.cwd()
        except OSError as error:
            raise UsageError(
                "The current folder no longer exists.", hint="change to an existing folder"
            ) from error
        return cls(dict(os.environ), cwd, config, no_config)


@dataclass(frozen=True)
class SettingsLocation:
    """A settings file that counts if it exists.

    Attributes:
        level: which of the levels it is.
        path: where it is.
        name: how messages call it.
    """

    level: Literal["flag", "environment", "project", "user", "system"]
    path: Path
    name: str


def places(program: Program, around: Surroundings) -> tuple[SettingsLocation, ...]:
    """Return the files that a program looks for, the strongest first."""
    chosen = _chosen(around)
    if around.no_config or chosen:
        return (chosen,) if chosen and not around.no_config else ()
    if around.config is None and _is_on(around.environment.get("EDGEFED_NO_CONFIG", "")):
        return ()
    file = f"{program}.toml"
    user_file = _user_folder(around.environment) / ("config.toml" if program == "edgefed" else file)
    return (
        SettingsLocation("project", around.cwd / file, f"./{file}"),
        SettingsLocation("user", user_file, str(user_file)),
        SettingsLocation("system", around.system / file, str(around.system / file)),
    )


def read_places(
    program: Program, around: Surroundings
) -> Iterator[tuple[SettingsLocation, Document]]:
    """Read the files that exist, the strongest first.

    Raises:
        RecipeError: one cannot be read, or the one that was asked for is missing.
    """
    for place in places(program, around):
        document = _read(place)
        if document is not None:
            yield place, document


def _read(place: SettingsLocation) -> Document | None:
    """Read one file; None if nobody asked for it and it is not there."""
    try:
        return read_toml(place.path, place.name)
    except RecipeError as error:
        asked_for = place.level in ("flag", "environment")
        if asked_for or error.code != "recipe.missing":
            raise
    return None


def expand(path: Path) -> Path:
    """Return the path with ``~`` made a home folder, where there is one."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def _chosen(around: Surroundings) -> SettingsLocation | None:
    """Return the one file that ``--config`` or ``EDGEFED_CONFIG`` names."""
    if around.config is not None:
        return SettingsLocation("flag", around.cwd / expand(around.config), str(around.config))
    name = around.environment.get("EDGEFED_CONFIG", "")
    if name and not _is_on(around.environment.get("EDGEFED_NO_CONFIG", "")):
        return SettingsLocation("environment", around.cwd / expand(Path(name)), name)
    return None


def _user_folder(environment: Mapping[str, str]) -> Path:
    """Return ``$XDG_CONFIG_HOME/edgefed``, by default ``~/.config/edgefed``."""
    base = Path(environment.get("XDG_CONFIG_HOME", ""))
    return (base if base.is_absolute() else home(environment) / ".config") / "edgefed"


def _is_on(text: str) -> bool:
    """Return whether a variable that switches something says yes."""
    return text.strip().lower() not in ("", "0", "false", "no", "off")
