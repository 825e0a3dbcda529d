"""``edgefed-agent update``: run the agent under its updater, and look after its updates."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from device_agent.commands.options import Name, agent_settings
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.common_options import common_options
from edgefed.terminal.console import columns
from edgefed.terminal.units import counted

if TYPE_CHECKING:
    from edgefed.config.fleet.settings import AgentSettings

app = CommandLine(help="Run the agent under its updater, and look after its updates.")

Further = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- OPTIONS", help="Options of edgefed-agent run, with full paths."),
]

SHOWN = ("current", "previous", "phase", "release", "reason", "number", "signed_at")


@app.command()
def run(context: typer.Context, further: Further = None, *, name: Name = None) -> None:
    """Run the agent under its updater, which installs releases as the settings allow.

    The updater keeps each release in a slot of its own, above the packages of this environment, so
    that torch stays. A release that fails its trial is switched back.
    """
    from device_agent.identity.device_name import agent_folder, device_name
    from device_agent.updater.state import TrialLimits, UpdaterSettings
    from edgefed.config.fleet.broker_address import broker_address
    from edgefed.files.optional import wanted

    options = common_options(context)
    wanted("tuf.ngclient", "updates", code="updates.missing", package="tuf")
    settings = agent_settings(options, name=name)
    root = _root(settings)
    address = broker_address(settings, (device_name(settings),))
    config = options.config and options.config.absolute()
    passed = replace(options, config=config, state=settings.state.absolute())
    named = ("--name", name) if name else ()
    updater = UpdaterSettings(
        home=_home(settings),
        folder=agent_folder(settings).absolute(),
        root=root,
        mode=settings.updates,
        hours=settings.update_hours,
        host=address.host,
        port=address.port,
        words=(*passed.words(), "run", *named, *(further or ())),
        limits=TrialLimits(stay=settings.update_trial),
    )
    plain = json.dumps(asdict(updater), default=str)
    words = [sys.executable, "-m", "device_agent.updater", plain]
    os.execv(sys.executable, words)  # a process without what a new version may break


@app.command(json=True)
def status(context: typer.Context, *, name: Name = None) -> None:
    """Show the version that runs, the update at work, and the outcome of the last one."""
    options = common_options(context)
    settings = agent_settings(options, name=name)
    state = {"updates": settings.updates, **_state(settings)}
    needs = state.get("needs", {})
    rows = [
        (key, str(state[key])) for key in ("updates", *SHOWN) if state.get(key) not in (None, "")
    ]
    if needs:
        rows.append(("downloads", counted(len(needs), "file")))
    options.answer(state, columns(rows))


@app.command(json=True)
def check(context: typer.Context, *, name: Name = None) -> None:
    """Check that updates can be installed here: settings, packages, the pinned root, the updater.

    Exit code 8 if they cannot.
    """
    import importlib.util

    from edgefed.errors import CheckFailedError, EdgeFedError

    options = common_options(context)
    settings = agent_settings(options, name=name)
    problems = ['updates = "off"'] if settings.updates == "off" else []
    problems += [
        f"the package {package} is not installed: pip install 'edgefed[updates]'"
        for package in ("tuf", "packaging", "pip")
        if importlib.util.find_spec(package) is None
    ]
    for look in (_root, _state):
        try:
            look(settings)
        except EdgeFedError as error:
            problems.append(error.message)
    if problems:
        raise CheckFailedError(
            f"Updates cannot be installed: {'; '.join(problems)}", code="updates.check"
        )
    options.answer({"updates": settings.updates}, f"updates can be installed: {settings.updates}")


@app.command()
def approve(context: typer.Context, *, name: Name = None) -> None:
    """Install the release that waits for approval."""
    _order(context, name, "approve", "waiting")


@app.command()
def rollback(context: typer.Context, *, name: Name = None) -> None:
    """Go back to the version before, if it can read the state of this one.

    It has to pass a trial as any version.
    """
    _order(context, name, "rollback", "idle")


def _order(context: typer.Context, name: str | None, order: str, phase: str) -> None:
    """Leave an order to the updater.

    Raises:
        NotAllowedError: ``updates.order``: there is nothing that it could be about.
    """
    from edgefed.errors import NotAllowedError
    from edgefed.files.writing import write_atomic

    options = common_options(context)
    settings = agent_settings(options, name=name)
    state = _state(settings)
    about = state.get("release" if order == "approve" else "previous")
    if state.get("phase") != phase or not about:
        raise NotAllowedError(
            f"There is no release to {order}.",
            code="updates.order",
            hint="edgefed-agent update status",
        )
    write_atomic(_home(settings) / "order.json", json.dumps({"order": order}).encode())
    options.note(f"{order}: {about}; see edgefed-agent update status")


def _home(settings: AgentSettings) -> Path:
    from device_agent.identity.device_name import device_name

    return settings.state.absolute() / "updates" / settings.fleet / device_name(settings)


def _state(settings: AgentSettings) -> dict[str, Any]:
    """Return the stored state of the updater.

    Raises:
        UnknownNameError: ``updates.unknown``: no updater has run here.
    """
    from device_agent.updater.disk import read_json
    from edgefed.errors import UnknownNameError

    state = read_json(_home(settings) / "state.json")
    if not state:
        raise UnknownNameError(
            f"No updater has run with state in {_home(settings)}.",
            code="updates.unknown",
            hint="start it in place of edgefed-agent run: edgefed-agent update run",
        )
    return state


def _root(settings: AgentSettings) -> Path:
    """Return the pinned root metadata.

    Raises:
        UsageError: ``updates.root``.
    """
    from edgefed.errors import UsageError

    root = settings.update_root
    if settings.updates != "off" and (root is None or not root.is_file()):
        raise UsageError(
            f"The pinned root metadata is missing: {root or 'update_root is not set'}.",
            code="updates.root",
            hint='update_root = "FILE" in edgefed-agent.toml, the release manager\'s 1.root.json',
        )
    if settings.updates != "off" and root is not None:
        _check_root(root)
    return (root or Path("/nonexistent")).absolute()


def _check_root(root: Path) -> None:
    import importlib.util

    from edgefed.errors import UsageError

    if importlib.util.find_spec("tuf") is None:
        return
    from device_agent.updater.verification import RefusedReleaseError, check_root

    try:
        check_root(root)
    except RefusedReleaseError as error:
        raise UsageError(
            f"{root} is not the root metadata of a release manager: {error}.",
            code="updates.root",
            hint="update_root names a copy of the release manager's 1.root.json",
        ) from error
