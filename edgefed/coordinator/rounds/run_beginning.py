"""Begin a run, or go on with one: wait for devices, build the model, and read the last commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial

from edgefed.algorithms.composed.merging_check import least_devices
from edgefed.coordinator.exchanges.device_admission import Admission, admit, paused_in_words
from edgefed.coordinator.exchanges.downlink_encoder import CHAIN, MOST_CHAIN, DownlinkEncoder
from edgefed.coordinator.exchanges.tasks import asked_exchange
from edgefed.coordinator.models.frozen_weights import read_frozen
from edgefed.coordinator.models.run_model import RunModel, make_run_model
from edgefed.coordinator.reports.bounty_orders import planned_state
from edgefed.coordinator.rounds.engine_deps import EngineDeps
from edgefed.coordinator.rounds.run_controls import Aborted
from edgefed.coordinator.rounds.run_recorder import RunRecorder
from edgefed.coordinator.rounds.run_state import RunState
from edgefed.coordinator.rounds.starting_weights import start_model
from edgefed.coordinator.rounds.training_check import check_training
from edgefed.coordinator.rounds.trust_updates import make_admission
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import Checkpoint, OpenExchange, RunRecord
from edgefed.errors import StorageError, TimeLimitError
from edgefed.events.history.early_stopping import history_of
from edgefed.learn.modeling.model_building import free_initial_weights
from edgefed.process.clock import timestamp
from edgefed.seeds import derive
from edgefed.terminal.units import duration

PAUSED_LOOK = 1.0
"""Seconds between two looks for the devices of a paused run."""


def check_resumable(store: Store, record: RunRecord) -> bool:
    """Check that a run can go on; return whether it has a checkpoint, or begins anew.

    Raises:
        StorageError: ``run.checkpoint``: it has begun, and its checkpoint is missing or damaged.
    """
    try:
        has_checkpoint = store.check_checkpoint(record.run)
    except StorageError as error:
        raise _no_checkpoint(record.run, error.message) from error
    # Exchanges without a checkpoint are a loss, and the run must not silently begin anew
    if record.exchanges and not has_checkpoint:
        raise _no_checkpoint(record.run, "Its last checkpoint is missing.")
    return has_checkpoint


def _no_checkpoint(run: str, why: str) -> StorageError:
    return StorageError(
        f"Run {run} cannot be resumed: {why}",
        code="run.checkpoint",
        hint="edgefed restore FILE puts a backup back; or start the run again",
    )


def begin_run(
    deps: EngineDeps, recorder: RunRecorder, give_up: Callable[[OpenExchange], None]
) -> RunState:
    """Return a run's state: that of the last commit, or the initial one of a new run.

    Args:
        deps: of the engine.
        recorder: keeps the run's row.
        give_up: called with an open exchange that cannot be put again.

    Raises:
        EdgeFedError: too few devices are connected or fit, or the model cannot be trained.
    """
    checkpoint = deps.store.checkpoint(recorder.record.run)
    codec = deps.prepared_recipe.wire.downlink
    # Before anything is written: on a full disk all blobs are deleted that nobody has pinned.
    rounds = deps.recipe.rounds
    # A device may skip as many rounds as answers may be stale, and still need no whole payload
    chain = max(CHAIN, min(rounds.max_staleness, MOST_CHAIN)) if rounds.buffered else CHAIN
    opened = checkpoint.open if checkpoint else ()
    refs = [ref for exchange in opened for task in exchange.tasks for ref in task.blobs.values()]
    held = checkpoint.downlink if checkpoint else None
    downlink = DownlinkEncoder(codec, deps.cache, held, chain, refs)
    try:
        return _begun(deps, recorder, give_up, checkpoint, downlink)
    # BaseException, so that nothing which ends the wait leaves blobs pinned
    except BaseException:
        downlink.release()
        raise


def _begun(
    deps: EngineDeps,
    recorder: RunRecorder,
    give_up: Callable[[OpenExchange], None],
    checkpoint: Checkpoint | None,
    downlink: DownlinkEncoder,
) -> RunState:
    recipe, run = deps.prepared_recipe, recorder.record.run
    if checkpoint:
        recorder.status("running")
    else:
        recorder.wait_for_devices(least_devices(recipe).count)
        _warn_of_too_few(deps, recorder)
    # An open exchange waits for its own devices; virtual ones are always there
    if checkpoint and not checkpoint.open and not deps.fleet.simulated:
        _wait_for_others(deps, recorder)
    admission = _admitted(deps, recorder, begins=checkpoint is None)
    run_model = make_run_model(
        recipe,
        deps.dataset,
        admission.spec,
        user_models=deps.user_models,
        memory=deps.memory,
        # Frozen weights are those of the first start, whatever their source holds now
        frozen=read_frozen(deps.store.run_folder(run)) if checkpoint else None,
    )
    check_training(recipe, deps.algorithm, run_model.model, deps.dataset)
    checkpoint = checkpoint or _first(deps, recorder, admission, run_model)
    seed = derive(recipe.seed, "weights")  # the state has the weights now
    free_initial_weights(run_model.model, seed, allow_user=deps.user_models)
    for loss in downlink.losses():
        recorder.warn(loss)
    if restored := recorder.record.restored:
        recorder.warn(_restored(restored, private=recipe.privacy.wanted))
    rows = deps.store.rounds(run, details=True)
    scored = rows[-1]["round"] if rows else 0
    # Questions of buffered rounds have a number; any other open exchange has none
    questions = tuple(exchange for exchange in checkpoint.open if exchange.number is not None)
    checkpoint, opened = _open_exchange(deps, recorder, give_up, checkpoint)
    state, orders = planned_state(deps.algorithm, deps.store, run, checkpoint)
    weighting = recipe.evaluation.weighting or deps.algorithm.evaluation_weighting
    history = history_of(recipe.evaluation.model_copy(update={"weighting": weighting}), rows)
    return RunState(
        run_model, admission, state, downlink, opened, scored, history, orders, questions
    )


def _open_exchange(
    deps: EngineDeps,
    recorder: RunRecorder,
    give_up: Callable[[OpenExchange], None],
    checkpoint: Checkpoint,
) -> tuple[Checkpoint, OpenExchange | None]:
    """Return the checkpoint to go on from, and its open exchange; None if none is put again."""
    opened = next((exchange for exchange in checkpoint.open if exchange.number is None), None)
    if opened is not None and not deps.relays.has_all(opened):  # its run had ended
        give_up(opened)
        opened = None
    if opened is not None and not opened.tasks:  # of another protocol version
        return _begun_anew(deps, recorder, checkpoint, opened), None
    return checkpoint, opened


def _begun_anew(
    deps: EngineDeps, recorder: RunRecorder, checkpoint: Checkpoint, opened: OpenExchange
) -> Checkpoint:
    """Commit the state in which to plan again in the place of an exchange that an upgrade ended."""
    state = deps.algorithm.begin_anew(checkpoint.state, asked_exchange(opened))
    record, held = recorder.without_answers(), checkpoint.downlink
    state = recorder.written(partial(deps.store.commit, record, state, held, closes=opened))
    recorder.record = record
    recorder.warn(f"round {opened.round} restarts after the upgrade")
    return replace(checkpoint, state=state, open=())


def _warn_of_too_few(deps: EngineDeps, recorder: RunRecorder) -> None:
    """Say at once why the run waits for more devices than its recipe names."""
    there = sum(member.samples > 0 for member in deps.fleet.roster())
    least = least_devices(deps.prepared_recipe)
    if warning := least.shortage(there):
        recorder.warn(warning)
    if there < least.count and (paused := paused_in_words(deps.fleet.paused())):
        recorder.warn(paused)


def _wait_for_others(deps: EngineDeps, recorder: RunRecorder) -> None:
    """Wait for the devices of a run that goes on, which may connect after the coordinator.

    After ``rounds.join_timeout`` the run goes on with fewer. A round that is open waits for its own
    devices.
    """
    controls, timeout = deps.controls, deps.prepared_recipe.rounds.join_timeout
    wanted = least_devices(deps.prepared_recipe).count
    there = sum(member.samples > 0 for member in deps.fleet.roster())
    if there >= wanted:
        return
    recorder.warn(f"{there} of {wanted} devices are there; waiting up to {duration(timeout)}")

    def stop() -> bool:
        # A pause or a finish ends this wait too: the round's gate takes them up
        return controls.interrupted() or controls.paused or controls.finishing

    deps.fleet.wait_for(wanted, timeout, stop)


def _restored(time: str, *, private: bool) -> str:
    """Return a message about a run that resumes from a backup."""
    message = f"restored from the backup of {time}: what was merged since then is not in the model"
    if not private:
        return message
    return (
        f"{message}, and what it cost is unknown: epsilon is at least the number that is shown, and"
        " the budget may be exceeded"
    )


def _admitted(deps: EngineDeps, recorder: RunRecorder, *, begins: bool) -> Admission:
    """Wait for the devices that a run begins with, or for one of them when it goes on.

    While the run is paused, the time to wait does not end.

    Raises:
        Aborted: an operator has aborted the run, or has finished it while too few were there.
    """
    controls = deps.controls

    def waits_in_vain() -> bool:
        # A run that never began has nothing to finish
        return begins and controls.finishing

    def stop() -> bool:
        return controls.interrupted() or waits_in_vain()

    while True:
        try:
            return _admit(deps, recorder, stop, begins=begins)
        except TimeLimitError as error:
            if waits_in_vain():
                raise Aborted from error
            if not controls.paused:
                raise
            controls.wait(PAUSED_LOOK)


def _admit(
    deps: EngineDeps,
    recorder: RunRecorder,
    stop: Callable[[], bool],
    *,
    begins: bool,
) -> Admission:
    recipe = deps.prepared_recipe
    least = least_devices(recipe)

    def tell(device: str, reason: str) -> None:
        deps.journal.emit("device", device=device, excluded=reason)

    return admit(
        deps.fleet,
        recipe,
        deps.dataset,
        # A run that goes on needs only one: each round has its own quorum
        least.count if begins else 1,
        because=least.because,
        recorded=recorder.record.spec,
        admission_of=lambda spec: make_admission(deps, spec, recorder.warn, tell),
        clock=deps.clock,
        stop=stop,
        check=deps.controls.check,
    )


def _first(
    deps: EngineDeps, recorder: RunRecorder, admission: Admission, run_model: RunModel
) -> Checkpoint:
    """Commit the state before the first round, and return it."""
    recipe = deps.prepared_recipe
    # Before the algorithm's start, which takes the model's weights
    start_model(run_model.model, recipe.model, run_model.spec, deps, recorder)
    seed, roster = derive(recipe.seed, "start"), admission.roster()
    checkpoint = Checkpoint(deps.algorithm.start(run_model.model.weights(), roster, seed))
    first, begun = checkpoint.state, timestamp(deps.clock.now())
    # The form of the data is in the row before the commit, and a resumed run reads it there
    recorder.save(devices=len(roster), started=begun, **asdict(admission.spec))
    first = recorder.written(partial(deps.store.commit, recorder.record, first, {}))
    return replace(checkpoint, state=first)
