"""``edgefed run``: start, show, follow and control runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.common.cells import ago, run_status
from edgefed.cli.common.context import Globals, globals_of, newest
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import (
    AlgorithmName,
    Local,
    RecipeFile,
    Rounds,
    RunId,
    RunIdOrLast,
    RunOrFolder,
    Seed,
    Sets,
)
from edgefed.cli.printed.run_text import run_text
from edgefed.cli.runs import (
    audit,
    compare,
    evaluate,
    export,
    means,
    replay,
    report,
    run_check,
    speeds,
    tables,
)
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns, confirm, data, talk
from edgefed.terminal.units import size

if TYPE_CHECKING:
    from edgefed.config.recipes.recipe import Recipe
    from edgefed.control.coordinator_client import CoordinatorClient

app = CommandLine(help="Start, show, follow and control runs.")
app.command(epilog=report.EPILOG, json=True)(report.report)
app.command(epilog=compare.EPILOG, json=True)(compare.compare)
app.command(epilog=replay.EPILOG)(replay.replay)
app.command(epilog=tables.EPILOG)(tables.tables)
app.command(epilog=means.EPILOG, json=True)(means.means)
app.command(epilog=speeds.EPILOG, json=True)(speeds.speeds)
app.command(epilog=audit.EPILOG, json=True)(audit.audit)
app.command(epilog=run_check.EPILOG, json=True)(run_check.check)
app.command(epilog=evaluate.EPILOG, json=True)(evaluate.evaluate)
app.command(epilog=export.EPILOG, json=True)(export.export)


@app.command(
    epilog=examples(
        "edgefed run start recipe.toml",
        "edgefed run start --algorithm fedprox --rounds 20 --set algorithm.mu=0.1",
        "edgefed run start recipe.toml --dry-run",
    ),
    json=True,
)
def start(
    context: typer.Context,
    recipe: RecipeFile = None,
    *,
    algorithm: AlgorithmName = None,
    rounds: Rounds = None,
    seed: Seed = None,
    sets: Sets = None,
    paused: Annotated[
        bool, typer.Option("--paused", help="Start the run paused.", rich_help_panel="Run")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the checked recipe and start nothing.")
    ] = False,
    watch_it: Annotated[bool, typer.Option("--watch", help="Follow the run to its end.")] = False,
) -> None:
    """Start a run on the fleet and print its id."""
    from edgefed.cli.common.recipes import Typed, checked_recipe
    from edgefed.config.loading.write import to_toml

    options = globals_of(context)
    made = checked_recipe(options, Typed(recipe, sets, algorithm, rounds, seed))
    if dry_run:
        data(to_toml(made))
        return
    with options.connected() as coordinator:
        record = coordinator.order("run.start", recipe=made.model_dump(mode="json"), paused=paused)
        if not options.quiet and not options.json:
            _tell_too_few(made, coordinator)
    options.answer(record, record["run"])
    if watch_it:
        _follow(options, record["run"], options.json)
    elif not options.quiet and not options.json:
        watch = options.command(f"run watch {record['run']}")
        talk(f"  follow it: {watch}   or: {options.command('ui')}")


def _tell_too_few(recipe: Recipe, coordinator: CoordinatorClient) -> None:
    """Say that the run waits for devices that its merge needs beyond ``rounds.min_devices``."""
    from edgefed.algorithms.composed.merging_check import least_devices
    from edgefed.events.base.snapshot import Snapshot
    from edgefed.events.state.attention import devices_there

    least = least_devices(recipe)
    if least.because:
        snapshot = Snapshot.model_validate(coordinator.ask("snapshot")["snapshot"])
        if reason := least.shortage(devices_there(snapshot)):
            talk(f"  {reason} The run waits for more.")


@app.command(
    "list", epilog=examples("edgefed run list", "edgefed run list --local --json"), json=True
)
def list_(context: typer.Context, local: Local = False) -> None:
    """List runs, newest first: id, status, algorithm, rounds, accuracy, age, bytes, name."""
    from edgefed.cli.common.local_runs import local_runs

    options = globals_of(context)
    if local:
        runs = local_runs(options.settings().value.state)
    else:
        with options.connected("edgefed run list") as coordinator:
            runs = list(coordinator.ask("run.list"))
    head = ("RUN", "STATUS", "ALGORITHM", "ROUND", "ACCURACY", "STARTED", "BYTES", "NAME")
    rows = columns([head, *(_row(run) for run in runs)])
    options.answer(runs, rows, empty=f"No run yet. Start one: {options.command('run start')}")


app.command("ls", hidden=True, json=True)(list_)


@app.command(
    epilog=examples("edgefed run show", "edgefed run show r-0001 --local --json"), json=True
)
def show(context: typer.Context, run: RunOrFolder = "", local: Local = False) -> None:
    """Show one run: settings, rounds, result, files."""
    from edgefed.cli.common.local_runs import local_run
    from edgefed.cli.common.run_folders import is_folder

    options = globals_of(context)
    if local or is_folder(run):
        record = local_run(options.settings().value.state, run)
    else:
        with options.connected(f"edgefed run show {run}") as coordinator:
            record = coordinator.ask("run.show", run=run or newest(coordinator))
    options.answer(record, run_text)


@app.command(epilog=examples("edgefed run watch", "edgefed run watch r-0001 --json"), json=True)
def watch(context: typer.Context, run: RunIdOrLast = "") -> None:
    """Follow a run with a progress line until it ends; the exit code is the run's outcome.

    With --json, print one object per round. Ctrl-C stops watching, not the run.
    """
    options = globals_of(context)
    _follow(options, run, options.json)


def _follow(options: Globals, run: str, as_json: bool) -> None:
    from edgefed.api.run_summary import failure_of
    from edgefed.cli.programs.follow_run import ENDED, follow
    from edgefed.config.fleet.broker_address import broker_address
    from edgefed.events.base.snapshot import RoundView
    from edgefed.process.clock import SystemClock

    with options.connected() as coordinator:
        record = coordinator.ask("run.show", run=run or newest(coordinator))
    if record["status"] not in ENDED:
        settings = options.settings().value
        follow(
            broker_address(settings),
            settings.fleet,
            record["run"],
            SystemClock(),
            quiet=options.quiet,
            as_json=as_json,
        )
        with options.connected() as coordinator:
            record = coordinator.ask("run.show", run=record["run"])
    elif as_json:
        for row in record["history"]:
            data(RoundView.model_validate(row).model_dump_json())
    failure = failure_of(record)
    if failure is not None:
        raise failure
    if not as_json:
        data(run_text(record))


def _order(context: typer.Context, run: str, action: str) -> None:
    options = globals_of(context)
    with options.connected() as coordinator:
        answer = coordinator.order("run.order", run=run or newest(coordinator), action=action)
    options.done(answer, f"{answer['run']}: {answer['told']}")


@app.command(epilog=examples("edgefed run pause"))
def pause(context: typer.Context, run: RunIdOrLast = "") -> None:
    """Pause a run after its current exchange; devices keep their replies."""
    _order(context, run, "pause")


@app.command(epilog=examples("edgefed run resume", "edgefed run resume r-0001"))
def resume(context: typer.Context, run: RunIdOrLast = "") -> None:
    """Resume a paused, failed or aborted run from its last checkpoint."""
    _order(context, run, "resume")


@app.command(epilog=examples("edgefed run step"))
def step(context: typer.Context, run: RunIdOrLast = "") -> None:
    """Run one exchange, then pause."""
    _order(context, run, "step")


@app.command(epilog=examples("edgefed run finish"))
def finish(context: typer.Context, run: RunIdOrLast = "") -> None:
    """End a run after its current round and save its model."""
    _order(context, run, "finish")


@app.command(epilog=examples("edgefed run abort r-0001", "edgefed run abort --yes"))
def abort(
    context: typer.Context,
    run: RunIdOrLast = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """End a run now; keep the model of the last finished exchange and drop open replies."""
    name = run or "the newest run"
    question = f"Abort {name}? Replies of the open exchange are lost"
    confirm(f"Aborting {name}", question, yes=yes)
    _order(context, run, "abort")


@app.command(
    epilog=examples("edgefed run delete r-0007", "edgefed run delete r-0007 --local --yes"),
    json=True,
)
def delete(
    context: typer.Context,
    run: RunId,
    *,
    local: Local = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a run that has ended: its models, events, replies and records.

    With --local, a run in this machine's state folder whose coordinator does not run. Files of
    trackers and of devices stay.
    """
    options = globals_of(context)
    answer = _deleted(options, run, local=local, yes=yes)
    options.done(answer, f"deleted: {answer['run']}")


def _deleted(options: Globals, run: str, *, local: bool, yes: bool) -> dict[str, Any]:
    """Delete the run that a name stands for, once its id was confirmed."""

    def ask(run_id: str) -> None:
        question = f"Delete {run_id} with its models and records? It cannot be undone"
        confirm(f"Deleting {run_id}", question, yes=yes)

    if local:
        from edgefed.cli.common.local_runs import delete_local
        from edgefed.cli.common.run_folders import found

        state = options.settings().value.state
        ask(found(state, run).name)
        return {"run": delete_local(state, run)}
    from edgefed.coordinator.storage.run_names import only_match

    with options.connected(f"edgefed run delete {run}") as coordinator:
        name = only_match(run, [row["run"] for row in coordinator.ask("run.list")])
        ask(name)
        return dict(coordinator.order("run.delete", run=name))


def _row(run: dict[str, Any]) -> tuple[str, ...]:
    accuracy = "" if run["accuracy"] is None else f"{run['accuracy']:.3f}"
    if accuracy and run.get("tested_devices", 0) < run.get("all_testers", 0):
        accuracy += f" ({run['tested_devices']} of {run['all_testers']})"
    progress = f"{run['round']}/{run['rounds']}"
    moved = size(run["bytes_up"] + run["bytes_down"])
    started = ago(run["created"])
    known = (
        run["run"],
        run_status(run["status"]),
        run["algorithm"],
        progress,
        accuracy,
        started,
        moved,
    )
    return (*known, run["name"])
