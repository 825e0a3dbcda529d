"""``edgefed sim``: recipes on virtual devices in one process, once or as a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import (
    AlgorithmName,
    Devices,
    Jobs,
    On,
    RayAddress,
    RecipeFile,
    Recompute,
    Rounds,
    Seed,
    Sets,
    named_run,
)
from edgefed.cli.laboratory.trial_progress import (
    log_when_verbose,
    parse_seeds,
    raise_failures,
    run_plan,
)
from edgefed.errors import CheckFailedError, UsageError
from edgefed.files.user_code import classes_allowed
from edgefed.process.stop_signals import terminable
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns, data, hide_progress, json_out, show_progress, talk
from edgefed.terminal.units import score_of

if TYPE_CHECKING:
    from edgefed.cli.common.recipes import Typed
    from edgefed.config.recipes.recipe import Recipe
    from edgefed.coordinator.exchanges.recorded_order import RecordedOrder
    from edgefed.coordinator.storage.stored_runs import RunRecord
    from edgefed.events.base.model import Event
    from edgefed.simulator.sweep.plan import Plan
    from edgefed.simulator.sweep.table import Table

app = CommandLine(help="Run recipes on virtual devices.")


@app.callback()
def sim() -> None:
    """Run recipes on virtual devices."""


@app.command(
    epilog=examples(
        "edgefed sim sweep sweep.toml",
        "edgefed sim sweep sweep.toml --seeds 1,2,3,4,5 --out results",
        "edgefed sim sweep sweep.toml --set rounds.count=10 --json",
        "edgefed sim sweep sweep.toml --jobs 4 --figures pdf,png",
    ),
    json=True,
)
@classes_allowed()
def sweep(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Sweep file.", metavar="SWEEP.toml")],
    *,
    seeds: Annotated[
        str, typer.Option("--seeds", help="Seeds to use instead of the file's.", metavar="1,2,3")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for results; by default SWEEP-results beside the file.",
            metavar="FOLDER",
        ),
    ] = None,
    sets: Sets = None,
    recompute: Recompute = False,
    figures: Annotated[
        str,
        typer.Option(
            "--figures",
            help="Pictures for a paper beside the SVG ones; they need matplotlib.",
            metavar="pdf,png",
        ),
    ] = "",
    jobs: Jobs = 1,
    on: On = "local",
    address: RayAddress = "",
) -> None:
    """Run a recipe under every setting of a sweep file, each with several seeds.

    The same command resumes an interrupted sweep: finished runs are kept, and changed ones are run
    again, also if the code of a plug-in or of a module of your own has changed.
    """
    from edgefed.charts.paper_figure import formats_of
    from edgefed.simulator.backend import place
    from edgefed.simulator.sweep.outputs import file_names, summary
    from edgefed.simulator.sweep.seed_outputs import SeedOutputs

    options = globals_of(context)
    formats = formats_of(figures.split(","), "--figures")
    plan = _plan(options, file, seeds, sets)
    folder = _folder(file, out)
    outputs = SeedOutputs(plan, folder, formats, lambda text: talk(f"! {text}"))
    with place(on, address, [trial.recipe for trial in plan.trials()], jobs) as executors:
        outcome = run_plan(
            options,
            plan,
            folder,
            executors,
            recompute=recompute,
            jobs=jobs,
            after_seed=outputs.write,
        )
    table = outputs.write(outcome)
    if options.json:
        json_out(summary(plan, table, folder))
    else:
        _show(options, table, folder, file_names(plan, outcome, formats))
    raise_failures(plan, outcome, folder)


def _folder(file: Path, out: Path | None) -> Path:
    file = file.expanduser()
    return (out.expanduser() if out else file.with_name(f"{file.stem}-results")).absolute()


def _plan(options: Globals, file: Path, seeds: str, sets: list[str] | None) -> Plan:
    from edgefed.api.recipe_source import checked
    from edgefed.config.loading.load import parse_sets
    from edgefed.simulator.sweep.file import read_sweep
    from edgefed.simulator.sweep.plan import make_plan

    around = options.surroundings()
    written = read_sweep(around.cwd / file.expanduser(), str(file.expanduser()))
    wanted = parse_seeds(seeds)
    return make_plan(written, around, checked, sets=parse_sets(sets or ()), seeds=wanted)


def _show(options: Globals, table: Table, folder: Path, files: Sequence[str]) -> None:
    from edgefed.simulator.sweep.table_text import choice_lines, difference_text, text_rows

    data(columns(text_rows(table)))
    if differences := difference_text(table):
        data(f"\ndifference to {table.baseline}, paired by seed, with 95 % intervals")
        data(columns(differences))
    for number, line in enumerate(choice_lines(table)):
        data(line if number else f"\n{line}")
    if not options.quiet:
        seeds = ", ".join(map(str, table.seeds))
        talk(f"  mean ± standard deviation over seeds {seeds}; bytes up and down")
        talk(f"  {folder}: {', '.join(files)}")


@app.command(
    epilog=examples(
        "edgefed sim run recipe.toml --seed 1 --json",
        "edgefed sim run --algorithm fedprox --devices 20 --rounds 30",
        "edgefed sim run recipe.toml --on ray --address 192.0.2.10:6379",
        "edgefed sim run recipe.toml --out results",
        "edgefed sim run --order latest",
    ),
    json=True,
)
@classes_allowed()
def run(
    context: typer.Context,
    recipe: RecipeFile = None,
    *,
    algorithm: AlgorithmName = None,
    rounds: Rounds = None,
    seed: Seed = None,
    devices: Devices = None,
    sets: Sets = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for this run alone: the same command again goes on where it was killed.",
            metavar="FOLDER",
            rich_help_panel="Run",
        ),
    ] = None,
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
    order: Annotated[
        str,
        typer.Option(
            "--order",
            help="Repeat this run, whose rounds were buffered: ask and merge in its order.",
            metavar="RUN",
            rich_help_panel="Run",
        ),
    ] = "",
) -> None:
    """Run a recipe on virtual devices and print the result.

    A simulation uses the same code, seeds and codecs as a fleet. On a CPU the resulting weights
    are identical, bit for bit. On a GPU many devices train at once, and weights agree up to
    rounding.
    """
    options = globals_of(context)
    with terminable():
        from edgefed.api.simulate import simulate
        from edgefed.cli.common.recipes import Typed, describe_result
        from edgefed.coordinator.trackers.choose import make_trackers
        from edgefed.files.writing import make_state_private
        from edgefed.process.clock import SystemClock

        log_when_verbose(options)
        settings = options.settings().value
        typed = Typed(recipe, sets, algorithm, rounds, seed, devices)
        made, record, followed = _wanted(options, typed, order, settings.state)
        if out is None:
            make_state_private(settings.state)
        ended = simulate(
            made,
            folder=settings.state if out is None else None,
            out=out,
            data_folder=settings.state / "data",
            on=on,
            address=address,
            audit=audit,
            memory=settings.memory,
            trackers=make_trackers(settings.trackers, settings.state, SystemClock()),
            on_event=_Reporter(made.rounds.count, quiet=options.quiet),
            order=followed,
        )
        hide_progress()
        result = ended.to_json()
        options.answer(result, describe_result)
        if record is not None and record.weights_digest:
            _compare(record, result["weights_digest"], options)


def _wanted(
    options: Globals, typed: Typed, order: str, state: Path
) -> tuple[Recipe, RunRecord | None, RecordedOrder | None]:
    """Return the recipe to run, and of a run that is repeated its row and its order."""
    from edgefed.cli.common.local_runs import recorded_order
    from edgefed.cli.common.recipes import checked_recipe
    from edgefed.config.recipes.recipe import Recipe

    if not order:
        return checked_recipe(options, typed), None, None
    _refuse_options(typed)
    record, followed = recorded_order(state, named_run(order))
    return Recipe.model_validate_json(record.recipe), record, followed


def _refuse_options(typed: Typed) -> None:
    """Refuse a recipe and its options beside ``--order``.

    Raises:
        UsageError: there is one.
    """
    if any(value is not None for value in vars(typed).values()):
        raise UsageError(
            "--order repeats a run with its own recipe.",
            hint="leave out the recipe, --set and the options of the run",
        )


def _compare(record: RunRecord, digest: str, options: Globals) -> None:
    """Say that a repeated run has ended in the same digest.

    Raises:
        CheckFailedError: ``order.digest``: it has not.
    """
    if record.weights_digest != digest:
        raise CheckFailedError(
            f"The digest is not that of {record.run}.",
            code="order.digest",
            hint="simulate the data of its devices; on a GPU, weights agree up to rounding",
        )
    if not options.quiet:
        talk(f"the digest is that of {record.run}")


class _Reporter:
    """Reports a simulation on stderr: on a terminal its rounds as a bar, and its notes."""

    def __init__(self, rounds: int, *, quiet: bool) -> None:
        self._rounds = rounds
        self._quiet = quiet
        self._done = 0
        self._scores = ""
        self._note = ""

    def __call__(self, event: Event) -> None:
        """Tell of an event."""
        if self._quiet:
            return
        fields = event.fields
        if event.kind == "note":
            talk(f"{'! ' if fields.get('level') == 'warning' else ''}{fields['text']}")
            self._note = fields["text"]
        elif event.kind == "run" and fields.get("status") == "finished":
            # It ended before its last round, or learned nothing, of which a note says more.
            if fields.get("reason") and not self._note.startswith(fields["reason"]):
                talk(fields["reason"])
        elif event.kind == "scored":
            self._done = fields["round"]
            self._scores = score_of(fields)
            self._show()
        elif event.kind == "exchange":
            self._show()

    def _show(self) -> None:
        show_progress("rounds", self._done, self._rounds, self._scores)
