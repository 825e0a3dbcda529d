"""``edgefed label``: the labels that devices lack, and the supplements from other devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.common import completion
from edgefed.cli.common.context import globals_of, newest
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import RUNS, Json, Local, RunOrFolder, named_run
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns, data, json_out, reported, talk
from edgefed.terminal.units import counted

if TYPE_CHECKING:
    from edgefed.cli.printed.label_views import LabelView
    from edgefed.events.base.bounty_tables import BountyView, BudgetView

app = CommandLine(help="Show and order supplements for labels that devices lack.")

Run = Annotated[
    str,
    typer.Argument(
        help=f"{RUNS[0].upper()}{RUNS[1:]}; by default the coordinator's current or last run, with"
        " --local the newest.",
        autocompletion=completion.runs,
        callback=named_run,
    ),
]
OfDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Bounties of this device only.",
        autocompletion=completion.devices,
    ),
]
OfLabel = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="LABEL",
        help="Bounties for this class or label number only.",
        autocompletion=completion.labels,
    ),
]
All = Annotated[bool, typer.Option("--all", help="All bounties of the run.")]


@app.command(
    epilog=examples(
        "edgefed label skew",
        "edgefed label skew --device jetson-07",
        "edgefed label skew r-0001 --local --json",
    )
)
def skew(
    context: typer.Context,
    run: Run = "",
    *,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="NAME",
            help="Show each label of this device.",
            autocompletion=completion.devices,
        ),
    ] = None,
    local: Local = False,
    as_json: Json = False,
) -> None:
    """Show how unevenly labels are spread, before and after supplements.

    SHARE is the fraction of a device's samples that have its most frequent label. Supplements are
    the mixes and the noise of bounties that are closed or cancelled.
    """
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.printed.label_skew_output import device_table, skew_json, skew_table
        from edgefed.cli.printed.label_views import label_view

        view = label_view(options, run, local)
        if as_json:
            json_out(skew_json(view, device))
            return
        if not view.snapshot.devices:
            talk("No device yet. Start one: edgefed-agent run --data npz:FILE")
            return
        data(skew_table(view) if device is None else device_table(view, device))
        if not view.snapshot.bounties and not options.quiet:
            talk(view.why_none)


@app.command(
    epilog=examples("edgefed label bounties", "edgefed label bounties r-0001 --local --json")
)
def bounties(
    context: typer.Context, run: Run = "", *, local: Local = False, as_json: Json = False
) -> None:
    """List label bounties: device, missing label, offered and received mixes, and noise."""
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.printed.label_views import label_view

        view = label_view(options, run, local)
        listed = view.snapshot.bounties
        if as_json:
            json_out([{**row.model_dump(), "name": view.name(row.label)} for row in listed])
        elif not listed:
            talk(view.why_none)
        else:
            data(columns(_bounty_rows(view, listed)))


@app.command(epilog=examples("edgefed label budget", "edgefed label budget --json"))
def budget(
    context: typer.Context, run: Run = "", *, local: Local = False, as_json: Json = False
) -> None:
    """List privacy budgets: each device's released mixes in all runs, their cost, and the rest.

    A device reports them when it offers mixes.
    """
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.printed.label_views import label_view

        view = label_view(options, run, local)
        listed = view.snapshot.budgets
        if as_json:
            json_out([row.model_dump() for row in listed])
        elif listed:
            data(columns(_budget_rows(listed)))
        elif view.snapshot.bounties:
            talk("No device has offered mixes.")
        else:
            talk(view.why_none)


@app.command(
    "open",
    epilog=examples("edgefed label open --device jetson-07", "edgefed label open --label cat"),
)
def open_(
    context: typer.Context,
    run: RunOrFolder = "",
    *,
    device: OfDevice = None,
    label: OfLabel = None,
    everything: All = False,
    as_json: Json = False,
) -> None:
    """Request the missing mixes again, before the next exchange of the run."""
    _order(context, run, "open", device, label, everything=everything, as_json=as_json)


@app.command(
    epilog=examples("edgefed label cancel --label cat", "edgefed label cancel --all --json")
)
def cancel(
    context: typer.Context,
    run: RunOrFolder = "",
    *,
    device: OfDevice = None,
    label: OfLabel = None,
    everything: All = False,
    as_json: Json = False,
) -> None:
    """Stop requesting mixes, from the next exchange of the run on."""
    _order(context, run, "cancel", device, label, everything=everything, as_json=as_json)


def _order(
    context: typer.Context,
    run: str,
    action: str,
    device: str | None,
    label: str | None,
    *,
    everything: bool,
    as_json: bool,
) -> None:
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.common.run_folders import is_folder, typed_folder
        from edgefed.errors import UsageError

        if everything == (bool(device) or bool(label)):
            raise UsageError(
                "Name a device, a label, or both; or --all for all bounties.",
                hint=f"edgefed label {action} --device NAME --label LABEL",
            )
        run = typed_folder(run).name if is_folder(run) else run
        with options.connected() as coordinator:
            answer = coordinator.order(
                "label.order",
                run=run or newest(coordinator),
                action=action,
                device=device or "",
                label=label or None,
            )
        if as_json:
            json_out(answer)
        elif not options.quiet:
            talk(_acknowledged(answer))


def _acknowledged(answer: dict[str, Any]) -> str:
    from edgefed.events.base.bounty_tables import totals_in_words

    count = counted(sum(answer["bounties"].values()), "bounty", "bounties")
    what = f"{answer['run']}: {answer['action']} {count} ({totals_in_words(answer['bounties'])})"
    return f"{what}, before its next exchange"


def _bounty_rows(view: LabelView, listed: Sequence[BountyView]) -> list[tuple[str, ...]]:
    head = ("DEVICE", "LABEL", "STATUS", "COUNT", "MIXES", "OFFERED", "RECEIVED", "NOISE")
    rows = [
        (
            row.device,
            view.name(row.label),
            row.status,
            *map(str, (row.count, row.mixes, row.offered, row.received, row.noise)),
        )
        for row in listed
    ]
    return [head, *rows]


def _budget_rows(listed: Sequence[BudgetView]) -> list[tuple[str, ...]]:
    head = ("DEVICE", "RELEASED", "LEFT", "EPSILON", "EPSILON LEFT")
    rows = [
        (
            row.device,
            str(row.released),
            _left(row.mixes_left) if row.shares else "shares none",
            "unbounded" if row.epsilon is None else f"{row.epsilon:.4g}",
            _left(row.epsilon_left),
        )
        for row in listed
    ]
    return [head, *rows]


def _left(value: float | None) -> str:
    return "no limit" if value is None else f"{value:.6g}"
