"""``edgefed model``: roll a run's model out to the inference programs on the devices."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import DEFAULT_STAGES, RunId, Stages, StopAt, percents
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns
from edgefed.terminal.units import counted

app = CommandLine(help="Roll a run's model out to the devices, in stages.")


@app.command(
    epilog=examples(
        "edgefed model rollout r-0007", "edgefed model rollout r-0007 --best --stages 1,10,100"
    ),
    json=True,
)
def rollout(
    context: typer.Context,
    run: RunId,
    *,
    best: Annotated[
        bool, typer.Option("--best", help="The model of the run's best round.")
    ] = False,
    stages: Stages = DEFAULT_STAGES,
    stop_at: StopAt = 10.0,
) -> None:
    """Offer a run's model to the devices as the current model of their inference programs.

    Each device tests it on its own held-out samples, and refuses one that is worse than its
    current model. The next stage begins when the devices of the stage before have answered.
    """
    options = globals_of(context)
    shares = [percent / 100 for percent in percents(stages)]
    with options.connected() as coordinator:
        begun = coordinator.order(
            "model.rollout", run=run, best=best, shares=shares, stop_at=stop_at / 100
        )
    options.done(begun, f"{begun['rollout']}: {counted(begun['asked'], 'device')} asked")


@app.command(epilog=examples("edgefed model status", "edgefed model status --json"), json=True)
def status(
    context: typer.Context,
    rollout: Annotated[
        str,
        typer.Argument(
            help="Rollout id; by default the newest.", show_default=False, metavar="[ROLLOUT]"
        ),
    ] = "",
) -> None:
    """Show a rollout: its stage, and each device's answer with the scores of its test."""
    options = globals_of(context)
    with options.connected() as coordinator:
        answer = coordinator.ask("model.status", rollout=rollout)
    options.answer(answer, _text(answer))


@app.command(epilog=examples("edgefed model rollback"), json=True)
def rollback(context: typer.Context) -> None:
    """Order the devices to go back from the newest rollout's model to the one before.

    A device that had none before has no current model then. Devices that are away go back when
    they return.
    """
    options = globals_of(context)
    with options.connected() as coordinator:
        withdrawn = coordinator.order("model.rollback")
    options.done(withdrawn, f"{withdrawn['rollout']}: withdrawn")


def _text(status: dict[str, Any]) -> str:
    """Return a rollout for people: its state, then a line for each answer."""
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(status["outcomes"].items()))
    best = ", its best" if status["best"] else ""
    head = [
        ("rollout", status["rollout"]),
        ("model", f"run {status['run']}, round {status['round']}{best}"),
        ("status", status["status"]),
        ("stage", f"{status['stage']} of {len(status['shares'])}"),
        ("devices", f"{status['asked']} of {status['devices']} asked"),
        ("answers", outcomes or "none yet"),
    ]
    rows = [("DEVICE", "OUTCOME", "METRIC", "SCORE", "BEFORE", "REASON")]
    for device, answer in sorted(status["answers"].items()):
        scores = (_number(answer[name]) for name in ("score", "before"))
        rows.append((device, answer["outcome"], answer["metric"], *scores, answer["reason"]))
    table = columns(rows) if status["answers"] else ""
    return "\n".join(filter(None, (columns(head), table)))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
