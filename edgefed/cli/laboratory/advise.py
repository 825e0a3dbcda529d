"""``edgefed advise``: which method suits a fleet, by a race on its twin."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import Jobs, On, RayAddress, RecipeFile, RunOrFolder, Sets
from edgefed.cli.laboratory.trial_progress import parse_seeds, run_plan
from edgefed.files.user_code import classes_allowed
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns, data, reported, talk
from edgefed.terminal.units import counted, duration, size

if TYPE_CHECKING:
    from edgefed.advise.advice import Advice, AdviceRow
    from edgefed.advise.profile import Profile
    from edgefed.advise.stand_in import StandIn
    from edgefed.config.recipes.recipe import Recipe

app = CommandLine(
    help="Find the method that suits a fleet, on a simulated twin of it.", no_args_is_help=False
)

DEFAULT_MINUTES = 10.0

MOST_DRAWN = 24
"""Devices whose labels are drawn."""

ProfileFile = Annotated[
    Path | None,
    typer.Option(
        "--profile",
        help="Profile of the fleet; by default one is made from the connected fleet.",
        metavar="FILE",
    ),
]
StandInData = Annotated[
    str,
    typer.Option(
        "--stand-in",
        help="Data in place of the devices': NAME or NAME:PATH, such as npz:pool.npz; by default"
        " those of the recipe.",
        metavar="NAME[:PATH]",
    ),
]
Minutes = Annotated[
    float, typer.Option("--minutes", help="Most time for the race.", min=0.01, metavar="N")
]
Seeds = Annotated[str, typer.Option("--seeds", help="Seeds of every candidate.", metavar="1,2,3")]
Methods = Annotated[
    str, typer.Option("--methods", help="Only these methods enter.", metavar="NAME,NAME")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Folder of the advice; by default advice/RECIPE in the state folder.",
        metavar="FOLDER",
    ),
]


@app.callback(
    invoke_without_command=True,
    epilog=examples("edgefed advise", "edgefed advise race recipe.toml --minutes 60"),
)
def advise(context: typer.Context) -> None:
    """Find the method that suits a fleet, on a simulated twin of it.

    Without a command: profile of the connected fleet, twin, and a race of ten minutes.
    """
    if context.invoked_subcommand is None:
        # Groups do not report errors, as their commands do
        with reported(globals_of(context).json):
            race(context)


@app.command(
    epilog=examples(
        "edgefed advise profile --out profile.toml", "edgefed advise profile r-0007 --json"
    ),
    json=True,
)
def profile(
    context: typer.Context,
    run: RunOrFolder = "",
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write it to this file, .toml or .json.", metavar="FILE"),
    ] = None,
) -> None:
    """Print the profile of the connected fleet: samples, labels, speeds, uplinks, memory.

    Speeds are those that the named run, or the newest one, has measured, if its folder is on this
    machine. The file may be edited.
    """
    from edgefed.advise.profile import profile_toml, write_profile
    from edgefed.advise.skew import skew_of

    options = globals_of(context)
    made = _fleet_profile(options, run)
    if out is not None:
        write_profile(made, out.expanduser())
    body = made.model_dump(mode="json", exclude_none=True)
    options.answer(body, f"wrote {out}" if out else profile_toml(made))
    if not options.quiet and made.devices:
        talk(columns([(f"  {name}", text) for name, text in skew_of(made).lines()]))
        if made.with_labels:
            talk(f"\n{_labels_drawn(made)}")


@app.command(
    epilog=examples(
        "edgefed advise twin recipe.toml --profile profile.toml",
        "edgefed advise twin recipe.toml --stand-in npz:pool.npz --json",
    ),
    json=True,
)
@classes_allowed()
def twin(
    context: typer.Context,
    recipe: RecipeFile = None,
    *,
    profile: ProfileFile = None,
    stand_in: StandInData = "",
    seeds: Seeds = "1",
    sets: Sets = None,
    out: Out = None,
) -> None:
    """Predict accuracy, time and bytes of a recipe's run on the fleet."""
    from edgefed.advise.advice import predicted
    from edgefed.advise.advising import predict
    from edgefed.api.recipe_source import checked

    options = globals_of(context)
    made, known, folder = _given(options, recipe, sets, profile, out)
    run = partial(run_plan, options, folder=folder, owner="edgefed advise twin")
    score, prepared = predict(
        made, known, folder, parse_seeds(seeds), checked, run, _stand_in(options, stand_in)
    )
    row = predicted(score, made, len(known.devices), prepared)
    options.answer({**asdict(row), "notes": prepared.notes}, columns(_prediction(row)))
    _say(options, prepared.notes)


@app.command(
    epilog=examples(
        "edgefed advise race recipe.toml --profile profile.toml --minutes 60",
        "edgefed advise race recipe.toml --methods fedavg,fedmix,scaffold --seeds 1,2,3,4,5",
    ),
    json=True,
)
@classes_allowed()
def race(
    context: typer.Context,
    recipe: RecipeFile = None,
    *,
    profile: ProfileFile = None,
    stand_in: StandInData = "",
    minutes: Minutes = DEFAULT_MINUTES,
    seeds: Seeds = "1,2,3",
    methods: Methods = "",
    sets: Sets = None,
    jobs: Jobs = 1,
    on: On = "local",
    address: RayAddress = "",
    out: Out = None,
) -> None:
    """Compare methods on the fleet's twin, and recommend one, with a recipe for run start.

    The same command resumes a race that was killed: finished runs are kept.
    """
    from edgefed.advise.advising import Wishes, advise
    from edgefed.advise.checks import RECIPE
    from edgefed.api.recipe_source import checked
    from edgefed.process.clock import SystemClock
    from edgefed.simulator.backend import place

    options = globals_of(context)
    made, known, folder = _given(options, recipe, sets, profile, out)
    names = tuple(filter(None, methods.replace(" ", "").split(",")))
    wishes = Wishes(60 * minutes, parse_seeds(seeds), names, jobs)
    data_of_twin = _stand_in(options, stand_in)
    with place(on, address, [made], jobs) as executors:
        plan = partial(run_plan, options, folder=folder, owner="edgefed advise race")
        run = partial(plan, executors=executors, jobs=jobs)
        answer = advise(made, known, folder, wishes, checked, run, SystemClock(), data_of_twin)
    options.answer({**answer.to_json(), "folder": str(folder)}, _table(answer))
    if not options.json:
        data(f"\n{answer.recommended}: {answer.reason}")
    _say(options, [*_refused(answer), *answer.notes, *filter(None, [answer.record])])
    if not options.quiet and not options.json:
        talk(f"  start it: {options.command(f'run start {folder / RECIPE}')}")


@app.command(
    epilog=examples("edgefed advise check", "edgefed advise check r-0007 --out advice"), json=True
)
def check(context: typer.Context, run: RunOrFolder = "", *, out: Out = None) -> None:
    """Print predicted and reached values of a run that followed an advice, and keep them.

    Later advice states how good the earlier one was.
    """
    from edgefed.advise.checks import check_followed, compare, keep_check, read_advice
    from edgefed.cli.common.context import newest
    from edgefed.errors import UsageError
    from edgefed.events.base.snapshot import Snapshot

    options = globals_of(context)
    with options.connected() as coordinator:
        record = coordinator.ask("run.show", run=run or newest(coordinator))
        snapshot = Snapshot.model_validate(coordinator.ask("snapshot")["snapshot"])
    if record["status"] != "finished":
        raise UsageError(
            f"Run {record['run']} is {record['status']}; only a finished run can be compared.",
            code="advise.unfinished",
            hint="wait for its end, or name another run",
        )
    folder = _folder(options, record["name"], out)
    advice = read_advice(folder)
    check_followed(folder, record)
    compared = compare(advice, record, len(snapshot.devices))
    keep_check(folder, record["run"], compared)
    rows = [("", "PREDICTED", "REACHED", "DIFFERENCE")]
    for value in compared:
        error = "" if value.error is None else f"{100 * value.error:+.1f}"
        unit = " points" if value.name == "accuracy" else " %"
        shown = (_shown(value.name, value.predicted), _shown(value.name, value.reached))
        rows.append((value.name, *shown, error and error + unit))
    options.answer([{**asdict(value), "error": value.error} for value in compared], columns(rows))


def _labels_drawn(profile: Profile) -> str:
    """Return the label histograms of the devices as text bars."""
    from edgefed.cli.printed.histogram import drawn_on

    known = profile.with_labels[:MOST_DRAWN]
    devices = [{"device": d.name, "train": d.samples, "labels": list(d.labels)} for d in known]
    counts = [sum(column) for column in zip(*(d.labels for d in known), strict=True)]
    totals = {"labels": counts, "train": sum(counts)}
    report = {"devices": devices, "totals": totals, "classes": len(counts)}
    left_out = len(profile.with_labels) - len(known)
    more = f"\n{counted(left_out, 'device')} more are in the profile" if left_out else ""
    return drawn_on(sys.stderr, report) + more


def _given(
    options: Globals,
    recipe: Path | None,
    sets: list[str] | None,
    profile: Path | None,
    out: Path | None,
) -> tuple[Recipe, Profile, Path]:
    """Return the recipe, the profile and the folder of an advice."""
    from edgefed.advise.profile import LEAST_DEVICES, read_profile, too_few_devices
    from edgefed.cli.common.recipes import Typed, checked_recipe

    made = checked_recipe(options, Typed(recipe, sets))
    if profile is not None:
        known = read_profile(profile.expanduser())
    else:
        known = _fleet_profile(options, "")
        if len(known.devices) < LEAST_DEVICES:
            raise too_few_devices(len(known.devices))
    return made, known, _folder(options, made.name, out)


def _folder(options: Globals, name: str, out: Path | None) -> Path:
    from edgefed.advise.checks import advice_folder

    place = advice_folder(options.settings().value.state, name)
    return (out.expanduser() if out else place).absolute()


def _fleet_profile(options: Globals, run: str) -> Profile:
    from edgefed.advise.profile import profile_of
    from edgefed.cli.common.run_folders import is_folder, typed_folder
    from edgefed.config.recipes.recipe import Recipe
    from edgefed.errors import EdgeFedError
    from edgefed.events.base.snapshot import Snapshot
    from edgefed.report.speeds import MeasuredSpeed, round_overhead, speeds_of_folder

    with options.connected() as coordinator:
        snapshot = Snapshot.model_validate(coordinator.ask("snapshot")["snapshot"])
        presence = coordinator.ask("device.presence")
        named = run or (snapshot.run.run if snapshot.run else "")
        folder, recipe = Path(), None
        if is_folder(run):
            folder = typed_folder(run)
        elif named:
            record = coordinator.ask("run.show", run=named)
            folder, recipe = Path(record["folder"]), Recipe.model_validate(record["recipe"])
    speeds: tuple[MeasuredSpeed, ...] = ()
    overhead = 0.0
    try:
        if named:
            speeds, _ = speeds_of_folder(folder)
            overhead = round_overhead(folder)
    except EdgeFedError as error:
        if run:
            raise
        options.note(f"  times are unknown: {error.message}")
    return profile_of(snapshot, speeds, named, recipe, presence, overhead)


def _stand_in(options: Globals, text: str) -> StandIn:
    from edgefed.advise.stand_in import StandIn

    name, _, path = text.partition(":")
    place = {"path": str(Path(path).expanduser().absolute())} if path else {}
    section = {"name": name, **place} if name else None
    return StandIn(section, options.settings().value.state / "data")


def _say(options: Globals, lines: Any) -> None:
    if not options.quiet:
        for line in lines:
            talk(f"  {line}")


def _prediction(row: AdviceRow) -> list[tuple[str, str]]:
    return [
        ("accuracy", _accuracy(row)),
        ("bytes", f"{_shown('bytes', row.bytes)} a device, up and down, in all rounds"),
        ("time", _shown("seconds", row.seconds)),
        *([("energy", f"{row.joules:,.0f} J a device to train")] if row.joules else []),
    ]


def _table(answer: Advice) -> str:
    private = any(row.epsilon is not None for row in answer.rows)
    head = ("CANDIDATE", "ACCURACY", "AFTER", "BYTES/DEVICE", "TIME", "LEAVES A DEVICE")
    rows = [(*head, *(["EPSILON"] if private else []))]
    for row in answer.rows:
        epsilon = [] if not private else [f"{row.epsilon:.3g}" if row.epsilon else ""]
        rows.append(
            (
                f"{'▶ ' if row.candidate == answer.recommended else '  '}{row.candidate}",
                _accuracy(row) if not row.reason else f"failed: {row.reason}",
                counted(row.rounds, "round"),
                _shown("bytes", row.bytes),
                _shown("seconds", row.seconds),
                row.leaves,
                *epsilon,
            )
        )
    return columns(rows)


def _refused(answer: Advice) -> list[str]:
    """Return the candidates that did not enter, a line for each reason."""
    names: dict[str, list[str]] = {}
    for name, reason in answer.refused.items():
        names.setdefault(reason, []).append(name)
    return [f"not in the race: {', '.join(of)}: {reason}" for reason, of in names.items()]


def _accuracy(row: AdviceRow) -> str:
    value = row.accuracy
    if value.mean is None:
        return "not tested"
    margin = "" if value.margin is None else f" ± {value.margin:.3f}"
    return f"{value.mean:.3f}{margin}"


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    if name == "accuracy":
        return f"{value:.3f}"
    return size(value) if name == "bytes" else duration(value)
