"""Test the saved model of a run that is paused or has ended, when an operator asks for it.

Only the number of the run's exchanges changes. The exchange that asks the devices has an index of
its own and consumes no seed, so a run that goes on later ends in the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgefed.algorithms.composed.evaluation_place import evaluation_place
from edgefed.algorithms.composed.evaluation_reply import ACCURACY_BEFORE, LOSS_BEFORE
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import MODE
from edgefed.algorithms.interface.optional_interfaces import SavedModels
from edgefed.coordinator.exchanges.device_admission import Admission
from edgefed.coordinator.exchanges.downlink_encoder import DownlinkEncoder
from edgefed.coordinator.exchanges.tasks import open_exchange
from edgefed.coordinator.models.frozen_weights import read_frozen
from edgefed.coordinator.models.model_file_contents import read_models
from edgefed.coordinator.models.run_model import RunModel, make_run_model
from edgefed.coordinator.rounds.engine_deps import EngineDeps
from edgefed.coordinator.rounds.evaluation import coordinator_scores, device_scores
from edgefed.coordinator.rounds.evaluation_request import EvaluationRequest
from edgefed.coordinator.rounds.reply_collector import make_collector
from edgefed.coordinator.rounds.run_recorder import RunRecorder
from edgefed.coordinator.rounds.run_state import RunState
from edgefed.coordinator.rounds.scores import NO_SCORES, Scores
from edgefed.coordinator.rounds.trust_updates import make_admission
from edgefed.coordinator.storage.stored_runs import OpenExchange, RunRecord
from edgefed.errors import DataError, NotAllowedError, UsageError
from edgefed.events.base.class_table import confusion_json
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_file_reader import BEST_FILE
from edgefed.seeds import derive


@dataclass(frozen=True)
class SavedRun:
    """A run whose model is tested.

    Attributes:
        record: its row.
        state: the algorithm's, of the last commit.
        run_model: tests the model here.
        admission: the devices that take part.
        reserve_exchange: returns the row as it was, and writes it down with one exchange more.
    """

    deps: EngineDeps
    record: RunRecord
    state: State
    run_model: RunModel
    admission: Admission
    reserve_exchange: Callable[[], RunRecord]


def ended_run(deps: EngineDeps, record: RunRecord, warn: Callable[[str], None]) -> SavedRun:
    """Return a run that nobody works on, read from the store.

    Raises:
        UsageError: it never began.
        NotAllowedError: an exchange of it is open, which a resumed run would go on with.
        EdgeFedError: its files or its data set cannot be read.
    """
    checkpoint = deps.store.checkpoint(record.run)
    if checkpoint is None or record.spec is None:
        raise no_model(record.run)
    if checkpoint.open and record.status != "finished":
        raise _open_exchange_problem(record.run)
    run_model = make_run_model(
        deps.recipe,
        deps.dataset,
        record.spec,
        user_models=deps.user_models,
        memory=deps.memory,
        frozen=read_frozen(deps.store.run_folder(record.run)),
    )

    # Written down before devices are asked, so that no index is given twice
    def reserve_exchange() -> RunRecord:
        before = deps.store.run(record.run)
        deps.store.save_run(replace(before, **_one_more(before)))
        return before

    admission = make_admission(deps, record.spec, warn)
    return SavedRun(deps, record, checkpoint.state, run_model, admission, reserve_exchange)


def evaluate_paused(
    request: EvaluationRequest, deps: EngineDeps, recorder: RunRecorder, state: RunState
) -> None:
    """Test the model of a run that its engine has paused, and keep the result with the request."""
    request.carry_out(lambda: evaluate(lambda: _paused_run(deps, recorder, state), request))


def _paused_run(deps: EngineDeps, recorder: RunRecorder, state: RunState) -> SavedRun:
    """Return a run that its engine has paused.

    Raises:
        NotAllowedError: an exchange of it is open, as after a restart of the coordinator.
    """
    if state.open is not None:
        # A new exchange has a higher index; closing it would let devices delete replies to this one
        raise _open_exchange_problem(recorder.record.run)

    def reserve_exchange() -> RunRecord:
        before = recorder.record
        recorder.save(**_one_more(before))
        return before

    saved = (recorder.record, state.state, state.run_model, state.admission, reserve_exchange)
    return SavedRun(deps, *saved)


def _one_more(record: RunRecord) -> dict[str, Any]:
    """Return the counts of a row with one exchange more, which consumes no seed."""
    return {
        "exchanges": record.exchanges + 1,
        "preparatory_exchanges": record.preparatory_exchanges + 1,
    }


def _open_exchange_problem(run: str) -> NotAllowedError:
    """Return the error of a run that stopped in the middle of an exchange."""
    return NotAllowedError(
        f"Run {run} stopped in the middle of an exchange, which a resumed run would go on with.",
        code="evaluate.open",
        hint=f"edgefed run resume {run}, then evaluate it when it is paused or has ended",
    )


def evaluate(read: Callable[[], SavedRun], request: EvaluationRequest) -> dict[str, Any]:
    """Test a run's model and return its scores, and those of each device that tested it.

    Args:
        read: returns the run.
        request: the test to make.

    Raises:
        UsageError: its algorithm has no such mode, or there is no best model.
        DataError: there are no samples for it.
        EdgeFedError: the run cannot be read, or is in the middle of an exchange.
    """
    saved = read()
    if request.best:
        folder = saved.deps.store.run_folder(saved.record.run)
        model = saved.run_model.model
        saved = replace(saved, state=best_state(saved.deps.algorithm, saved.state, folder, model))
    modes = saved.deps.algorithm.evaluation_modes
    if request.mode and request.mode not in modes:
        raise UsageError(
            f"Algorithm {saved.record.algorithm} has no evaluation mode '{request.mode}'.",
            code="evaluate.mode",
            hint=f"one of: {', '.join(modes)}" if modes else "leave --mode out",
        )
    if request.mode and request.on == "coordinator":
        raise UsageError(
            "A mode is how devices predict, and the coordinator alone is to test.",
            code="evaluate.mode",
            hint="leave --mode out, or test with: --on devices",
        )
    test = saved.run_model.test
    where = request.on or evaluation_place(saved.deps.recipe, saved.deps.algorithm)
    if request.on == "coordinator" and not len(test):
        raise no_samples("test it with: --on devices")
    answers: list[Answer] = []
    scores = NO_SCORES
    recipe, algorithm = saved.deps.recipe, saved.deps.algorithm
    if where != "coordinator" or not len(test):
        answers = _device_answers(saved, request.mode)
        number = saved.state.round
        scores |= device_scores(recipe, algorithm, saved.run_model, number, answers)
    if where != "devices" and len(test):
        scores |= coordinator_scores(recipe, algorithm, saved.state, saved.run_model)
    return evaluation_result(saved.record, saved.state, scores, answers)


def evaluation_result(
    record: RunRecord, state: State, scores: Scores, answers: Sequence[Answer]
) -> dict[str, Any]:
    """Return the output of ``run evaluate --json``: devices, and scores, None where not finite."""
    names, values = record.class_names, scores.values.items()
    return {
        "run": record.run,
        "algorithm": record.algorithm,
        "round": state.round,
        "scores": {name: value if math.isfinite(value) else None for name, value in values},
        "confusions": [confusion_json(view, names) for view in scores.confusions],
        "devices": sorted((_row(answer) for answer in answers), key=lambda row: row["device"]),
    }


def best_state(algorithm: SavedModels[Any], state: State, folder: Path, model: Model) -> State:
    """Return the state with the model of the best round, which the run's folder holds.

    Raises:
        UsageError: ``evaluate.best``: there is none, or it says too little without the state.
        DataError, StorageError: as ``read_models``.
    """
    best = read_models(folder / BEST_FILE)
    if best is None:
        raise UsageError(
            f"Run {folder.name} has kept no model of its best round.",
            code="evaluate.best",
            hint="leave --best out; it is kept from the first evaluation on",
        )
    number, complete = best
    models = {name: model.without_frozen(arrays) for name, arrays in complete.items()}
    return replace(algorithm.with_models(state, models), round=number)


def no_model(run: str) -> UsageError:
    """Return the error of a run that has no state yet."""
    return UsageError(
        f"Run {run} has not begun, so it has no model.",
        code="evaluate.no_model",
        hint=f"edgefed run show {run}",
    )


def no_samples(hint: str) -> DataError:
    """Return the error of a coordinator without test samples."""
    return DataError(
        "The coordinator holds out no samples of this run's data.",
        code="evaluate.samples",
        hint=hint,
    )


def _row(answer: Answer) -> dict[str, Any]:
    """Return one device's own test."""
    metrics = answer.metrics
    modes = [name.removeprefix(MODE) for name in metrics if name.startswith(MODE)]
    names = ("accuracy", "loss", ACCURACY_BEFORE, LOSS_BEFORE)
    tested = {name: metrics[name] for name in names if name in metrics}
    # A test has one mode at most, so joining gives its name
    return {"device": answer.device, "samples": answer.samples, "mode": "".join(modes), **tested}


def _device_answers(saved: SavedRun, mode: str) -> list[Answer]:
    """Ask all devices that are there to test the model; return the answers of those that could."""
    deps, roster = saved.deps, saved.admission.roster()
    if not any(member.samples for member in roster):
        raise DataError(
            f"No device that fits run {saved.record.run} is online.",
            code="evaluate.devices",
            hint="see edgefed device list; or test on the coordinator: --on coordinator",
        )
    # Exact and without mirrors of its own, so the differences of the run stay untouched
    downlink = DownlinkEncoder("fp32", deps.cache)
    try:
        opened = _opened(saved, mode, downlink)
        collector = make_collector(deps, saved.run_model, opened)
        deps.journal.emit("exchange", phase="evaluate")
        answers = list(collector.answers())
        # An order may have cut the answers short
        deps.controls.check()
    finally:
        downlink.release()
        deps.journal.emit("exchange", phase="done")
    deps.fleet.closed(saved.record.run, opened.index)
    if not answers:
        stats = collector.stats
        reason = stats.shortfall(len(opened.tasks), opened.deadline)
        raise DataError(
            f"No device tested the model: {reason}.",
            code="evaluate.samples",
            hint="devices hold out samples with --holdout, or the recipe's data.holdout",
        )
    return answers


def _opened(saved: SavedRun, mode: str, downlink: DownlinkEncoder) -> OpenExchange:
    """Return the exchange that asks the devices, with an index of its own.

    Payloads are sent whole, whatever the run's downlink has sent so far.
    """
    recipe = saved.deps.prepared_recipe
    # Everybody tests, whatever the recipe draws for training
    everybody = recipe.rounds.model_copy(
        update={"cohort": 0, "over_selection": 0.0, "test_cohort": None}
    )
    algorithm = make(recipe.model_copy(update={"rounds": everybody}))
    before = saved.reserve_exchange()
    seed = derive(recipe.seed, "plan", before.seed_index)
    testers = saved.admission.roster()
    planned = algorithm.evaluation(saved.state, testers, seed)
    if mode:
        planned = algorithm.evaluation_in_mode(saved.state, planned, mode)
    return open_exchange(
        planned,
        run=before.run,
        index=before.next_index,
        seed_index=before.seed_index,
        recipe=recipe,
        section=algorithm.model(saved.state) or recipe.model,
        run_model=saved.run_model,
        algorithm=algorithm,
        downlink=downlink,
        attempt=0,
        testers=testers,
    )
