"""``edgefed rotate-keys``: replace keys of parties of the fleet while it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from edgefed.cli.common import completion
from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.console import columns, confirm

EPILOG = examples(
    "edgefed rotate-keys coordinator broker",
    "edgefed rotate-keys cam-1",
    "edgefed rotate-keys --all --yes",
)

ADVICE = {
    "asked": "a device replaces its keys itself, at once or when it comes back; see the column KEY"
    " of: edgefed device enrolled",
    "elsewhere": "keys on another machine: edgefed operator remove, then edgefed operator invite",
}


def rotate_keys(
    context: typer.Context,
    users: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="USER...",
            help="coordinator, broker, operator.NAME or the name of a device.",
            show_default=False,
            autocompletion=completion.enrolled_users,
        ),
    ] = None,
    *,
    everybody: Annotated[bool, typer.Option("--all", help="Of all parties of the fleet.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --all.")] = False,
) -> None:
    """Replace keys and certificates in the running fleet, and revoke the old certificates.

    The keys of the coordinator, the broker and the operators on their machine are replaced at once.
    Runs go on. The authority's own key stays as it is.
    """
    from edgefed.errors import UsageError

    options = globals_of(context)
    named = users or []
    if bool(named) == everybody:
        raise UsageError(
            "Name whose keys are to be replaced, or all of them.",
            code="usage.users",
            hint="edgefed rotate-keys coordinator broker, or edgefed rotate-keys --all",
        )
    if everybody:
        confirm("Replacing all keys", "Replace the keys of everybody in the fleet?", yes=yes)
    with options.connected() as coordinator:
        results = coordinator.order("member.rotate", users=named)
    head = ("USER", "OUTCOME", "KEY")
    rows = [(result["user"], result["outcome"], result["fingerprint"]) for result in results]
    options.answer(results, columns([head, *rows]))
    for outcome in sorted({result["outcome"] for result in results} & ADVICE.keys()):
        options.note(f"{outcome}: {ADVICE[outcome]}")
