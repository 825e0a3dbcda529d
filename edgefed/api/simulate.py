"""Run a recipe on virtual devices from Python; ``edgefed sim run`` calls the same function."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

from edgefed.algorithms.interface.base import Algorithm
from edgefed.algorithms.selection.base import Selector
from edgefed.api.given_code import Over, PartitionSource, checked_trackers, given_code, listed
from edgefed.api.progress import round_bar
from edgefed.api.recipe_source import RecipeSource, recipe_of
from edgefed.api.result import Result, scores_of
from edgefed.api.rounds import Callback, Callbacks
from edgefed.api.run_summary import failure_of, result_of
from edgefed.config.fleet.settings import default_state_folder
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.recorded_order import RecordedOrder
from edgefed.coordinator.trackers.base import Tracker
from edgefed.data.sets.given import Data, GivenData, Part, given_data
from edgefed.data.sets.memory import MEMORY
from edgefed.errors import UsageError
from edgefed.events.base.model import Event
from edgefed.files.user_code import classes_allowed
from edgefed.files.writing import storage_error
from edgefed.learn.base.processors import set_threads
from edgefed.learn.modeling.model_file_reader import MODEL_FILE
from edgefed.process.clock import SystemClock
from edgefed.simulator.backend import place
from edgefed.simulator.run import Simulation, SimulationResult
from edgefed.simulator.work_folder import SIMULATIONS

log = logging.getLogger("edgefed")

_one_at_a_time = threading.RLock()
"""Training seeds torch's global generator, so two runs in one process would disturb each other."""


def simulate(
    recipe: RecipeSource | None = None,
    *,
    algorithm: type[Algorithm[Any]] | None = None,
    partition: PartitionSource | None = None,
    selection: type[Selector[Any]] | None = None,
    data: Data | None = None,
    test: Part | None = None,
    seed: int | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    folder: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    data_folder: str | os.PathLike[str] | None = None,
    on: Literal["local", "ray"] = "local",
    address: str = "",
    audit: bool = False,
    memory: int = 0,
    user_models: bool = True,
    trackers: Tracker | Sequence[Tracker] = (),
    on_event: Callable[[Event], None] | None = None,
    order: RecordedOrder | None = None,
    progress: bool | None = None,
) -> Result:
    """Run a recipe on virtual devices and return its result.

    The weights are those of ``edgefed sim run`` and, on a CPU, of a fleet, bit for bit. Settings
    files and ``EDGEFED_`` variables have no effect on them.

    Args:
        recipe: a ``Recipe``, a mapping with its tables, or the path of its TOML file; None for the
            defaults.
        algorithm: a class, in place of the algorithm that the recipe names; ``[algorithm]`` has its
            settings. It need not be installed or importable, except with ``ray``.
        partition: a ``Partitioner``, or a function that takes a ``PartitionRequest`` and a
            generator and returns an array of positions for each device; ``[data]`` has its
            settings.
        selection: a class, in place of the selector that the recipe names.
        data: in place of the data set that the recipe names. ``(inputs, targets)`` as arrays or
            tensors, an ``edgefed.Dataset``, or a map-style data set such as those of torch is
            partitioned as the recipe says. A mapping gives each device, by name, its own.
        test: the coordinator's test data, with ``data``. Without it, data to partition are split by
            ``test_share`` of ``[data]``, and devices with data of their own test on a part of them.
        seed: in place of the recipe's.
        callbacks: called in turn with each round's ``RoundResult``. Returning ``False``, or raising
            ``StopRun``, ends the run after the round. Another exception fails the run.
        folder: a state folder, in which the run is kept as ``edgefed --state FOLDER sim run`` does:
            commands with ``--state FOLDER --local`` find it there. None to keep no files.
        out: in place of ``folder``, a folder for this run alone. The same call again goes on from
            its last checkpoint if the run was killed, interrupted or has failed, with the same
            bits, and returns the result of a run that has finished.
        data_folder: for downloaded data sets; None for the state folder of ``edgefed``.
        on: ``local``, or ``ray`` to train on a cluster.
        address: of the Ray cluster; empty for one on this machine.
        audit: whether to record the label frequencies that answers disclose; see ``edgefed run
            audit``.
        memory: most bytes that training the model may take; 0 for half of the free memory.
        user_models: whether users' own code may be run, such as a model that the recipe names.
        trackers: one or several, notified of each round; see ``edgefed.coordinator.trackers.base``.
        on_event: called with each event of the run; None to log its notes as ``edgefed``.
        order: in which another run with buffered rounds asked and merged; this one repeats it.
        progress: whether to show the rounds as a bar with the time left: True in a notebook and on
            a terminal (stderr), None in a notebook only.

    Returns:
        The result of the finished run.

    Raises:
        EdgeFedError: the recipe or the data cannot be used, or the run failed. An exception of a
            callback is its ``__cause__``.
    """
    _check_together(data, test, folder, out, order)
    one = (callbacks,) if callable(callbacks) else callbacks
    watch = Callbacks(listed("callbacks", one, "callbacks=[function]"))
    with ExitStack() as opened:
        opened.enter_context(borrowed_process())
        opened.enter_context(classes_allowed(user_models))
        code = given_code(algorithm, partition, selection, allowed=user_models)
        chosen = recipe_of(recipe, _over(data, seed, opened.enter_context(code)))
        given = None if data is None else given_data(data, test, chosen)
        chosen = _with_evaluation(chosen, given)
        state = _folder(folder if out is None else out)
        kept = None if state is None else state / SIMULATIONS
        simulation = Simulation(
            chosen,
            kept or Path(opened.enter_context(_temporary_folder())) / SIMULATIONS,
            *(SystemClock(), data_folder_of(data_folder), checked_trackers(trackers)),
            *(opened.enter_context(place(on, address, [chosen])), memory),
            audit=audit,
            given=given,
            user_models=user_models,
            on_round=watch.on_round,
            order=order,
            goes_on=out is not None,
        )
        bar = opened.enter_context(round_bar(progress, chosen.rounds.count))
        _follow(simulation, watch, bar, on_event or _log_notes)
        return _result(chosen, simulation.run(), watch, kept=kept is not None)


def _check_together(
    data: Data | None,
    test: Part | None,
    folder: str | os.PathLike[str] | None,
    out: str | os.PathLike[str] | None,
    order: RecordedOrder | None,
) -> None:
    """Refuse test data without others, and another folder or an order beside that of one run."""
    if test is not None and data is None:
        raise UsageError(
            "test was given without data.", hint="give both, or name a data set in the recipe"
        )
    if out is not None and (folder is not None or order is not None):
        raise UsageError(
            "out is the folder of one run, which goes on from there after a kill.",
            code="out.options",
            hint="leave out folder and order (--order), or out (--out)",
        )


def _follow(simulation: Simulation, watch: Callbacks, *listeners: Callable[[Event], None]) -> None:
    """Let callbacks end a simulation after a round, and listeners have its events."""
    watch.controls = simulation.controls
    watch.rows += simulation.earlier

    def tell(event: Event, number: int) -> None:
        for listener in listeners:
            listener(event)

    simulation.journal.listen(tell)


def _over(data: Data | None, seed: int | None, code: Over) -> dict[str, Any]:
    """Return the tables of the recipe that arguments decide; ``code`` has those of classes."""
    over: dict[str, Any] = {**code} if seed is None else {**code, "seed": seed}
    if data is not None:
        over["data"] = {**code.get("data", {}), "name": MEMORY}
    if isinstance(data, Mapping):
        over["simulation"] = {"devices": max(1, len(data))}
    return over


def _with_evaluation(recipe: Recipe, given: GivenData | None) -> Recipe:
    """Return the recipe with tests on devices, where only these have data and it does not say."""
    if given is None or len(given.dataset.test) or recipe.evaluation.on is not None:
        return recipe
    evaluation = recipe.evaluation.model_copy(update={"on": "devices"})
    return recipe.model_copy(update={"evaluation": evaluation})


@contextmanager
def borrowed_process() -> Iterator[None]:
    """Wait for the end of other simulations; afterwards torch has as many threads as before."""
    with _one_at_a_time:
        threads = torch.get_num_threads()
        try:
            yield
        finally:
            set_threads(threads)


def _result(recipe: Recipe, ended: SimulationResult, watch: Callbacks, *, kept: bool) -> Result:
    """Return the result of a run that has ended.

    Raises:
        EdgeFedError: it failed.
    """
    record, model = asdict(ended.record), ended.folder / MODEL_FILE
    if not kept:
        record["hint"] = record["hint"] or "call simulate with folder=… to keep the run's files"
    failure = failure_of(record)
    if failure is not None:
        raise failure from watch.error
    try:
        file = model.read_bytes()
    except OSError as error:
        raise storage_error(model, error) from error
    return Result(
        recipe,
        tuple(watch.rows),
        scores_of(watch.rows, ended.final),
        ended.record.weights_digest,
        ended.folder if kept else None,
        result_of(record, str(model) if kept else ""),
        file,
    )


def data_folder_of(path: str | os.PathLike[str] | None) -> Path:
    """Return the folder of downloaded data sets; None stands for the one of ``edgefed``."""
    return _folder(path) or default_state_folder() / "data"


def _folder(path: str | os.PathLike[str] | None) -> Path | None:
    return None if path is None else Path(path).expanduser().absolute()


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder that is removed at the end of a ``with`` block.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        return tempfile.TemporaryDirectory(prefix="edgefed-")
    except OSError as error:
        raise storage_error(Path(tempfile.gettempdir()), error) from error


def _log_notes(event: Event) -> None:
    """Log the run's messages for people."""
    if event.kind == "note":
        warning = event.fields.get("level") == "warning"
        log.log(logging.WARNING if warning else logging.INFO, "%s", event.fields["text"])
