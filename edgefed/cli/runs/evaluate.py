"""``edgefed run evaluate``: test the saved model of a run, on its fleet or on this machine."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edgefed.cli.common.context import Globals, globals_of, newest
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import Local, RunIdOrLast
from edgefed.cli.printed.class_output import class_tables
from edgefed.terminal.console import columns, hide_progress, show_progress
from edgefed.terminal.units import counted

if TYPE_CHECKING:
    from edgefed.config.fleet.settings import Settings
    from edgefed.control.coordinator_client import CoordinatorClient
    from edgefed.coordinator.storage.stored_runs import Checkpoint, RunRecord
    from edgefed.learn.base.types import Tensors

EPILOG = examples(
    "edgefed run evaluate",
    "edgefed run evaluate r-0001 --on devices --json",
    "edgefed run evaluate r-0001 --on devices --mode fitted",
    "edgefed run evaluate --best",
    "edgefed run evaluate --local",
)

ASK_EVERY = 0.5
"""Seconds between two questions whether the evaluation is done."""

Place = Annotated[
    Literal["coordinator", "devices", "both"] | None,
    typer.Option(
        "--on",
        help="Samples to test on: the coordinator's, those that devices hold out, or both; by"
        " default as the recipe says.",
        show_default=False,
    ),
]
Mode = Annotated[
    Literal["known", "new", "fitted", "marginal"] | None,
    typer.Option(
        "--mode",
        help="How devices predict. known: with what they keep; new: with personal weights as they"
        " start; fitted: with a gate fitted to their labels; marginal: with other devices' gates,"
        " averaged. By default, each with the best that it has.",
        show_default=False,
    ),
]


def evaluate(
    context: typer.Context,
    run: RunIdOrLast = "",
    *,
    on: Place = None,
    mode: Mode = None,
    best: Annotated[
        bool, typer.Option("--best", help="Test the model of the best round, not of the last.")
    ] = False,
    local: Local = False,
) -> None:
    """Test the saved model of a run that is paused or has ended; the run does not change.

    All devices that are online test it, or as many as the algorithm chooses. With --local, a run
    in this machine's state folder, such as a simulation, is tested on the coordinator's samples.
    """
    options = globals_of(context)
    wanted = {"on": on, "mode": mode or "", "best": best}
    answer = _locally(options, run, wanted) if local else _by_coordinator(options, run, wanted)
    options.answer(answer, _shown)


def _by_coordinator(options: Globals, run: str, wanted: dict[str, Any]) -> dict[str, Any]:

    command = f"edgefed run evaluate {run}".rstrip()
    with options.connected(command) as coordinator:
        started = coordinator.order("run.evaluate", run=run or newest(coordinator), **wanted)
        return _result(coordinator, started["evaluation"], quiet=options.quiet)


def _result(coordinator: CoordinatorClient, evaluation: str, *, quiet: bool) -> dict[str, Any]:
    """Wait for an evaluation, which the deadline of its exchange ends."""
    while (answer := coordinator.ask("run.evaluation", evaluation=evaluation)["result"]) is None:
        if not quiet:
            show_progress("evaluating", 0, 0)
        time.sleep(ASK_EVERY)
    hide_progress()
    return dict(answer)


def _locally(options: Globals, run: str, wanted: dict[str, Any]) -> dict[str, Any]:
    from edgefed.errors import UsageError

    if wanted["on"] in ("devices", "both") or wanted["mode"]:
        raise UsageError(
            "With --local there are no devices to ask.",
            code="usage.evaluate",
            hint="leave out --on and --mode, or ask the coordinator without --local",
        )
    return evaluate_local(options.settings().value, run, best=wanted["best"])


def _shown(answer: dict[str, Any]) -> str:
    tested = counted(len(answer["devices"]), "device")
    rows = [
        ("run", answer["run"]),
        ("round", str(answer["round"])),
        ("devices", tested if answer["devices"] else ""),
        *((name, _number(name, value)) for name, value in sorted(answer["scores"].items())),
    ]
    text = columns([(name, value) for name, value in rows if value])
    if answer["devices"]:
        head = ("DEVICE", "MODE", "SAMPLES", "ACCURACY", "LOSS")
        text = f"{text}\n\n{columns([head, *map(_row, answer['devices'])])}"
    return text + class_tables(answer["confusions"])


def _number(name: str, value: float | None) -> str:
    if value is None:
        return "not finite"
    return f"{value:.0f}" if name.startswith("devices_") else f"{value:.4f}"


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    scores = (f"{row[name]:.4f}" if name in row else "" for name in ("accuracy", "loss"))
    return (row["device"], row["mode"], str(row["samples"]), *scores)


def evaluate_local(settings: Settings, name: str, *, best: bool = False) -> dict[str, Any]:
    """Return the scores of a run's model on the coordinator's samples.

    Args:
        settings: of the program.
        name: an id or the beginning of one; empty for the newest.
        best: whether to test the model of its best round, and not of the last.

    Raises:
        UnknownNameError: no run, or several, have this name.
        NotAllowedError: it is at work.
        EdgeFedError: it has no model yet, or there are no samples.
    """
    from edgefed.cli.common.local_runs import as_left
    from edgefed.cli.common.run_folders import found
    from edgefed.coordinator.models.frozen_weights import read_frozen
    from edgefed.coordinator.storage.run_store import Store
    from edgefed.files.user_code import classes_allowed
    from edgefed.simulator.work_folder import SIMULATIONS

    folder = found(settings.state, name)
    place = folder.parent.parent
    with closing(Store(place)) as store:
        record = as_left(store.run(folder.name), store)
        checkpoint = store.checkpoint(folder.name)
    simulated = place.name == SIMULATIONS
    allowed = settings.user_models or simulated
    best_of = folder if best else None
    with classes_allowed(simulated):
        return _scores(settings, record, checkpoint, read_frozen(folder), allowed, best_of)


def _scores(
    settings: Settings,
    record: RunRecord,
    checkpoint: Checkpoint | None,
    frozen: Tensors,
    user_models: bool,
    best_of: Path | None,
) -> dict[str, Any]:
    """Return the scores; ``best_of`` is the run's folder if its best model is tested."""
    from edgefed.algorithms.composed.registry import make
    from edgefed.config.recipes.recipe import Recipe
    from edgefed.coordinator.models.run_model import load_dataset, make_run_model
    from edgefed.coordinator.rounds.evaluation import coordinator_scores
    from edgefed.coordinator.rounds.saved_evaluation import (
        best_state,
        evaluation_result,
        no_model,
        no_samples,
    )
    from edgefed.errors import NotAllowedError
    from edgefed.events.base.model import UNFINISHED

    if record.status in UNFINISHED and record.status != "paused":
        raise NotAllowedError(
            f"Run {record.run} is {record.status}.",
            code="run.busy",
            hint="wait for its end",
        )
    if checkpoint is None or record.spec is None:
        raise no_model(record.run)
    recipe = Recipe.model_validate_json(record.recipe)
    run_model = make_run_model(
        recipe,
        load_dataset(recipe, settings.state / "data"),
        record.spec,
        user_models=user_models,
        memory=settings.memory,
        frozen=frozen,
    )
    if not len(run_model.test):
        raise no_samples("evaluate runs of a fleet without --local, on devices")
    algorithm, state = make(recipe), checkpoint.state
    if best_of is not None:
        state = best_state(algorithm, state, best_of, run_model.model)
    scores = coordinator_scores(recipe, algorithm, state, run_model)
    return evaluation_result(record, state, scores, ())
