"""The paths of settings files, checks of their owners, and the state that they depend on."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from edgefed.config.fleet.settings import home
from edgefed.config.values.toml import Document, read_toml
from edgefed.errors import RecipeError, UsageError

Program = Literal["edgefed", "edgefed-agent"]

SYSTEM_FOLDER = Path("/etc/edgefed")


@dataclass(frozen=True)
class Surroundings:
    """The parts of the process and the command line that select settings files.

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
        level: one of the levels.
        path: of the file.
        name: its name in messages.
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
    own = user_file(program, around.environment)
    return (
        SettingsLocation("project", around.cwd / file, f"./{file}"),
        SettingsLocation("user", own, str(own)),
        SettingsLocation("system", around.system / file, str(around.system / file)),
    )


def read_places(
    program: Program, around: Surroundings
) -> Iterator[tuple[SettingsLocation, Document]]:
    """Read the files that exist, the strongest first.

    Raises:
        RecipeError: one cannot be read, or the one that was asked for is missing; ``config.owner``:
            others may have written the project's file.
    """
    for place in places(program, around):
        document = _read(place)
        if document is not None:
            yield place, document


def _read(place: SettingsLocation) -> Document | None:
    """Read one file; None if nobody asked for it and it is not there."""
    try:
        if place.level == "project":  # found because of the current folder, and not asked for
            return read_toml(place.path, place.name, partial(_check_owner, place.name))
        return read_toml(place.path, place.name)
    except RecipeError as error:
        asked_for = place.level in ("flag", "environment")
        if asked_for or error.code != "recipe.missing":
            raise
    return None


def _check_owner(name: str, status: os.stat_result) -> None:
    """Check that only this user could write a file."""
    user = os.geteuid()
    if status.st_uid != user:
        reason, hint = f"belongs to {_user_name(status.st_uid)}", "chown it"
    elif status.st_mode & stat.S_IWOTH:
        reason, hint = "can be written by everybody", f"chmod go-w {name}"
    elif status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, user):
        reason, hint = "can be written by a group", f"chmod g-w {name}"
    else:
        return
    raise RecipeError(
        f"{name}: {reason}, and is not read.",
        code="config.owner",
        hint=f"{hint} if you trust it, or name it: --config {name}; --no-config reads no file",
    )


def _is_private_group(group: int, user: int) -> bool:
    """Whether nobody but a user is in a group."""
    try:
        name, known = pwd.getpwuid(user).pw_name, grp.getgrgid(group)
    except KeyError:  # as in a container that runs with any number
        return False
    if set(known.gr_mem) - {name}:
        return False
    # The users with this as their own group are not among its members. Of a user's private group,
    # the name says so; to ask for all users may take long where a directory has them.
    return known.gr_name == name or all(
        account.pw_name == name for account in pwd.getpwall() if account.pw_gid == group
    )


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


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


def user_file(program: Program, environment: Mapping[str, str]) -> Path:
    """Return the user's file in ``$XDG_CONFIG_HOME/edgefed``, by default ``~/.config/edgefed``."""
    base = Path(environment.get("XDG_CONFIG_HOME", ""))
    folder = (base if base.is_absolute() else home(environment) / ".config") / "edgefed"
    return folder / ("config.toml" if program == "edgefed" else f"{program}.toml")


def _is_on(text: str) -> bool:
    """Return whether a variable that switches something says yes."""
    return text.strip().lower() not in ("", "0", "false", "no", "off")
