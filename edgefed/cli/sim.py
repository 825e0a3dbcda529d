"""``edgefed sim``: the same recipe on virtual devices in one process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.context import Globals, globals_of
from edgefed.cli.help import examples
from edgefed.cli.options import (
    AlgorithmName,
    Devices,
    Json,
    On,
    RayAddress,
    RecipeFile,
    Rounds,
    Seed,
    Sets,
)
from edgefed.cli.sweep import EPILOG as SWEEP_EPILOG
from edgefed.cli.sweep import sweep
from edgefed.command_line import CommandLine
from edgefed.console import data, json_out, reported, talk
from edgefed.units import score

if TYPE_CHECKING:
    from edgefed.config.recipe import Recipe
    from edgefed.events.model import Event
    from edgefed.simulator.executors import Maker

app = CommandLine(help="Run recipes on virtual devices.")
app.command(epilog=SWEEP_EPILOG)(sweep)


@app.callback()
def sim() -> None:
    """Run recipes on virtual devices."""


@app.command(
    epilog=examples(
        "edgefed sim run recipe.toml --seed 1 --json",
        "edgefed sim run --algorithm fedprox --devices 20 --rounds 30",
        "edgefed sim run recipe.toml --on ray --address 192.0.2.10:6379",
    )
)
def run(
    context: typer.Context,
    recipe: RecipeFile = None,
    *,
    algorithm: AlgorithmName = None,
    rounds: Rounds = None,
    seed: Seed = None,
    devices: Devices = None,
    sets: Sets = None,
    on: On = "local",
    address: RayAddress = "",
    audit: Annotated[
        bool,
        typer.Option(
            "--audit",
            help="Record what each answer tells of its device's labels; see edgefed run audit.",
            rich_help_panel="Run",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a recipe on virtual devices and print the result.

    A simulation uses the same code, seeds and codecs as a fleet. On a CPU the resulting weights
    are identical, bit for bit. On a GPU many devices train at once, and weights agree up to
    rounding.
    """
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.recipes import (
            Typed,
            checked_recipe,
            describe_result,
            failure_of,
            result_of,
        )
        from edgefed.cli.simulation_backend import place

        made = checked_recipe(options, Typed(recipe, sets, algorithm, rounds, seed, devices))
        with place(on, address, [made]) as executors:
            record, folder = _simulate(options, made, executors, audit=audit)
        failure = failure_of(record)
        if failure is not None:
            raise failure
        result = result_of(record, str(folder / "model.safetensors"))
        if as_json:
            json_out(result)
        else:
            data(describe_result(result))


def _simulate(
    options: Globals, recipe: Recipe, executors: Maker | None, *, audit: bool
) -> tuple[dict[str, Any], Path]:
    """Return the record of the finished run, and its folder."""
    from dataclasses import asdict

    from edgefed.clock import SystemClock
    from edgefed.coordinator.trackers.choose import make_trackers
    from edgefed.simulator.run import Simulation

    settings, clock = options.settings().value, SystemClock()
    simulation = Simulation(
        recipe,
        settings.state / "simulations",
        clock,
        settings.state / "data",
        make_trackers(settings.trackers, settings.state, clock),
        executors,
        settings.memory,
        audit=audit,
    )
    if not options.quiet:
        simulation.journal.listen(_reporter(recipe.rounds.count))
    ended = simulation.run()
    if sys.stderr.isatty() and not options.quiet:
        talk("")
    return asdict(ended.record), ended.folder


def _reporter(rounds: int) -> Callable[[Event, int], None]:
    live = sys.stderr.isatty()

    def report(event: Event, number: int) -> None:
        del number
        if event.kind == "scored" and live:
            found = score(event.fields.get("accuracy"), event.fields.get("loss"))
            told = f"round {event.fields['round']}/{rounds}  {found}".rstrip()
            sys.stderr.write(f"\r\x1b[K{told}")
            sys.stderr.flush()
        elif event.kind == "note":
            warning = event.fields.get("level") == "warning"
            talk(f"{'! ' if warning else ''}{event.fields['text']}")

    return report
