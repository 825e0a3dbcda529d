"""``edgefed backup`` and ``edgefed restore``: the coordinator's state in one file, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.console import columns, confirm, talk
from edgefed.terminal.units import size

if TYPE_CHECKING:
    from edgefed.config.fleet.settings import Settings
    from edgefed.coordinator.backups.restore import Restoring

BACKUP_EPILOG = examples("edgefed backup monday.tar", "edgefed --fleet plant-a backup plant-a.tar")
RESTORE_EPILOG = examples(
    "edgefed restore monday.tar", "edgefed restore monday.tar --admit cam-1 --admit cam-2"
)

FIND_TIMEOUT, ANSWER_TIMEOUT = 3.0, 10.0
"""Seconds in which a coordinator that runs shows itself, and answers."""


def backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file to write.", show_default=False)],
) -> None:
    """Write the coordinator's state into one file, also while it runs.

    The file has all runs with their models, the enrolled parties and the private keys of the
    authority. Only its owner can read it (mode 600); keep it as safe as the keys. It does not
    contain files of trackers, the broker's database, or settings files.
    """
    from edgefed.config.fleet.broker_address import trust_folder
    from edgefed.coordinator.backups.snapshot import back_up
    from edgefed.process.clock import SystemClock

    options = globals_of(context)
    settings = options.settings().value
    target = file.expanduser()
    folder = settings.state / "coordinator" / settings.fleet
    made = back_up(folder, trust_folder(settings), settings.fleet, target, SystemClock())
    answer = {
        "file": str(target),
        "fleet": made.fleet,
        "created": made.created,
        "files": len(made.files),
        "bytes": target.stat().st_size,
    }
    shown = {**answer, "bytes": size(target.stat().st_size)}
    options.answer(answer, columns([(name, str(value)) for name, value in shown.items()]))
    if any(name.startswith("trust/") for name in made.files):
        options.note("! it holds private keys: keep it where only operators can read it")


def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="What edgefed backup wrote.", show_default=False)],
    *,
    admit: Annotated[
        list[str] | None,
        typer.Option(
            "--admit",
            metavar="NAME",
            help="Admit this device (or operator.NAME, viewer.NAME) and of the others of the backup"
            " only those that are named too; may be repeated. Answers the question.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Admit everybody on the list; do not ask.")
    ] = False,
) -> None:
    """Restore a backup, here or on another machine, once the old coordinator has stopped.

    Devices that are known to be removed since the backup stay removed; the others on the list are
    confirmed by an operator. Coordinator, broker and the operators on this machine get new keys.
    The present state is moved to STATE/replaced.
    """
    from datetime import timedelta

    options = globals_of(context)
    from broker.secured_files import write_access
    from edgefed.coordinator.backups.parties import to_confirm
    from edgefed.coordinator.backups.restore import install, unpacked
    from edgefed.data.base.paths import require_file
    from edgefed.process.clock import SystemClock

    require_file(file.expanduser())
    loaded = options.settings()
    settings, clock = loaded.value, SystemClock()
    fleet = settings.fleet if "fleet" in loaded.layer.values else None
    with unpacked(file.expanduser(), settings.state, fleet, clock) as made:
        settings = settings.model_copy(update={"fleet": made.manifest.fleet})
        unknown = _refuse_while_it_runs(settings, made)
        for warning in [*made.warnings, *([unknown] if unknown else [])]:
            talk(f"! {warning}")
        # Before the folder in which they are listed is moved
        listed = [party.user for party in to_confirm(made.trust, made.parties)]
        refused = _refused(made, len(listed), admit, yes=yes, quiet=options.quiet)
        old = install(
            made,
            refused,
            clock,
            timedelta(days=settings.certificate_days),
            lambda trust, users, revoked: write_access(trust, settings.fleet, users, revoked),
        )
        answer = _answer(made, listed, refused, old)
    shown = [(name.replace("_", " "), _words(value)) for name, value in answer.items()]
    options.answer(answer, columns(shown))
    up, run, move = (
        options.command(words, fleet=settings.fleet)
        for words in ("broker up", "coordinator", "broker address --host NEW_HOST")
    )
    options.note(f"next: {up}, and {run}; if the address has changed:\n  {move}")


def _refuse_while_it_runs(settings: Settings, made: Restoring) -> str:
    """Refuse to go on while a coordinator of the fleet answers at its broker.

    Returns:
        Why nobody could be asked; empty if no coordinator is there.

    Raises:
        NotAllowedError: ``restore.running``.
    """
    from edgefed.config.fleet.broker_address import CLIENT, broker_address, credentials_folder
    from edgefed.control.coordinator_client import CoordinatorClient
    from edgefed.errors import EdgeFedError, NotAllowedError, UnreachableError

    present = credentials_folder(made.place("trust"), CLIENT)  # there may be less than these
    state = made.staging if present is None else settings.state
    try:
        address = broker_address(settings.model_copy(update={"state": state}))
        client = CoordinatorClient(address, settings.fleet)
        client.connect()
    except EdgeFedError as error:
        return f"whether the old coordinator still runs is not known: {error.message}"
    try:
        client.wait_until_online(FIND_TIMEOUT)
        client.call("run.list", {}, ANSWER_TIMEOUT)
    except UnreachableError:
        return ""
    except EdgeFedError:
        pass  # it answers
    finally:
        client.close()
    raise NotAllowedError(
        f"The coordinator of fleet {settings.fleet} answers at {address}.",
        code="restore.running",
        hint="stop it first; two coordinators would disturb each other's runs",
    )


def _refused(
    made: Restoring, count: int, admit: list[str] | None, *, yes: bool, quiet: bool
) -> list[str]:
    """Return the users of a backup that are not admitted: those that ``--admit`` leaves out.

    Without it the operator is asked whether to admit all ``count`` of them; a no ends the program.
    """
    from edgefed.coordinator.backups.restore import refused_by

    if admit is not None:
        return refused_by(made, admit)
    if not quiet and not yes:
        talk(_list(made))
    confirm("Restoring a fleet", _question(made, count), yes=yes)
    return []


def _answer(
    made: Restoring, listed: list[str], refused: list[str], old: Path | None
) -> dict[str, Any]:
    """Return the result of a restore, in the form of ``--json``."""
    return {
        "fleet": made.manifest.fleet,
        "created": made.manifest.created,
        "folder": str(made.place("coordinator")),
        "admitted": [user for user in listed if user not in refused],
        "not_admitted": sorted([*refused, *(party.user for party in made.removed)]),
        "continues": [record.run for record in made.unfinished],
        "replaced": "" if old is None else str(old),
    }


def _list(made: Restoring) -> str:
    """Return the users that would be admitted, and the others."""
    from edgefed.coordinator.backups.parties import to_confirm

    admitted = [
        ("+", e.user, f"enrolled {e.enrolled}") for e in to_confirm(made.trust, made.parties)
    ]
    gone = [("-", e.user, f"{e.reason or 'removed'} {e.ended}") for e in made.removed]
    lines = [
        f"backup of fleet {made.manifest.fleet}, {made.manifest.created}",
        columns([*admitted, *gone]) if admitted or gone else "no devices to admit",
    ]
    if admitted:
        lines.append("a device that was removed after the backup must not be on the list with +")
    return "\n".join(lines)


def _question(made: Restoring, count: int) -> str:
    fleet = made.manifest.fleet
    if not count:
        return f"Restore fleet {fleet}?"
    return f"Restore fleet {fleet}, and admit {'this one' if count == 1 else f'these {count}'}?"


def _words(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
