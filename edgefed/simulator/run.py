"""Run a recipe on virtual devices: the coordinator's engine over a fleet in this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import current_process
from pathlib import Path

import numpy as np

from edgefed.algorithms.composed.evaluation_place import evaluation_place, holdout_of
from edgefed.algorithms.composed.merging_check import least_devices
from edgefed.algorithms.composed.registry import AnyAlgorithm, make
from edgefed.algorithms.private.privacy_plan import check_privacy
from edgefed.algorithms.private.private_updates import CoordinatorRandomness, from_operating_system
from edgefed.algorithms.secure.secure_compatibility import check_label_audit
from edgefed.config.recipes.recipe import Recipe, SimulationSection
from edgefed.coordinator.devices.trust_scores import TrustScores
from edgefed.coordinator.exchanges.recorded_order import RecordedOrder
from edgefed.coordinator.exchanges.relayed_blobs import RelayedBlobs, open_blobs
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.models.augmentation import with_augmentation, with_run_scale
from edgefed.coordinator.models.run_model import (
    check_dataset,
    load_dataset,
    make_model,
    with_validation,
)
from edgefed.coordinator.rounds.engine import Engine
from edgefed.coordinator.rounds.engine_deps import EngineDeps, OnRound, ignore_round
from edgefed.coordinator.rounds.evaluation import coordinator_scores
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.rounds.saved_evaluation import ended_run
from edgefed.coordinator.rounds.starting_weights import weights_source
from edgefed.coordinator.rounds.training_check import check_training
from edgefed.coordinator.storage.new_run import create_run
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.coordinator.trackers.base import Row, Tracker
from edgefed.data.base.pixel_range import to_pixels
from edgefed.data.base.types import Dataset, Shard, take
from edgefed.data.devices.dealt_shards import outlines
from edgefed.data.devices.partition import deal_recipe
from edgefed.data.sets.given import GivenData, given_shards
from edgefed.errors import DataError, UsageError
from edgefed.events.base.model import UNFINISHED
from edgefed.files.plugin_failures import plugin_errors
from edgefed.learn.base.processors import pick_device, set_threads
from edgefed.natural_noise.cache import NoiseCache
from edgefed.process.clock import Clock, timestamp
from edgefed.process.lock import FolderLock
from edgefed.simulator.checkpoints import EVENTS, SECONDS, Checkpoints
from edgefed.simulator.device_policies import with_policies
from edgefed.simulator.executors import Executor, Maker, Sequential
from edgefed.simulator.forked_autograd import forks_can_train
from edgefed.simulator.local_fleet import LocalFleet, device_names, newcomers_of
from edgefed.simulator.process_pool import ProcessPool, core_count
from edgefed.simulator.resuming import data_digest, open_run
from edgefed.simulator.stacked_executor import StackedExecutor
from edgefed.simulator.virtual_time import VirtualTime
from edgefed.simulator.work_folder import work_folder
from edgefed.wire.blobs import BlobCache

NOISE_BYTES = 512 * 1024**2


@dataclass(frozen=True)
class SimulationResult:
    """The end of a simulated run, and the folder of its files.

    Attributes:
        final: the coordinator's scores of the final state, where it may differ from the state after
            the last round, as with gates that are collected then; else empty.
        trace: traceback of a failure, of a device's where too few could answer.
    """

    record: RunRecord
    folder: Path
    final: Mapping[str, float]
    trace: str = ""


class Simulation:
    """One simulated run, ready to go.

    Args:
        recipe: of the run; its ``[simulation]`` table states the number of devices.
        folder: state directory for simulated runs.
        clock: for seconds and event times.
        data_folder: keeps downloaded data sets.
        trackers: notified of every round.
        executors: makes the executor; None for the default of this machine.
        memory: most bytes that training the model may take; 0 for half of the free memory.
        noise_folder: keeps natural noise, which other runs may share; None for ``folder``.
        audit: whether to record the label frequencies that answers disclose; see ``edgefed run
            audit``.
        given: data in memory, in place of the data set that the recipe names.
        user_models: whether the recipe may name a user's own code as its model.
        on_round: called after each round; see ``EngineDeps``.
        randomness: of the coordinator's privacy noise, which tests fix.
        order: the order of another run with buffered rounds, to ask and merge in.
        goes_on: whether the folder is that of one run, which goes on from its last checkpoint
            where it was killed, interrupted or has failed.
        checkpoint_seconds: least time between two checkpoints of such a run; 0 for one after each
            round.

    Attributes:
        earlier: rows of the rounds that a run which goes on had finished before.

    Raises:
        EdgeFedError: the recipe cannot be run; or the folder has another run.
    """

    @plugin_errors()
    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        clock: Clock,
        data_folder: Path | None = None,
        trackers: tuple[Tracker, ...] = (),
        executors: Maker | None = None,
        memory: int = 0,
        noise_folder: Path | None = None,
        audit: bool = False,
        given: GivenData | None = None,
        user_models: bool = True,
        on_round: OnRound = ignore_round,
        randomness: CoordinatorRandomness = from_operating_system,
        order: RecordedOrder | None = None,
        goes_on: bool = False,
        checkpoint_seconds: float = SECONDS,
    ) -> None:
        set_threads(1)
        # Whatever the recipe is refused for is found before anything is written
        algorithm = _algorithm(recipe, randomness, audit=audit)
        dataset = _dataset(recipe, data_folder, given)
        _check(recipe, algorithm, dataset, memory, user_models=user_models)
        weights_source(recipe.model, data_folder, lambda run: folder / "runs" / run)
        shards = _shards(recipe, algorithm, dataset, noise_folder or folder / "noise", given)
        _check_shards(recipe, algorithm, shards)
        digest = data_digest(dataset, given) if goes_on else ""
        # Devices have the training samples; of many devices, a second copy takes much memory.
        dataset = replace(dataset, train=take(dataset.train, np.arange(1)))
        names = _names(recipe, len(shards), given, order)
        time, self._clock = _virtual_time(recipe, names, clock)
        self._notes, self.earlier = list[str](), list[Row]()
        executors = executors or local_executor
        self._executor, self._how = executors(shards, recipe.simulation, self._tell)
        engine_deps = partial(
            EngineDeps,
            recipe=recipe,
            algorithm=algorithm,
            dataset=dataset,
            trackers=trackers,
            user_models=user_models,
            memory=memory,
            data_folder=data_folder,
            audit=audit,
            on_round=on_round,
            order=order,
        )
        self._opened = self._open(
            folder, recipe, shards, names, time, digest, checkpoint_seconds, engine_deps
        )

    def _open(
        self,
        folder: Path,
        recipe: Recipe,
        shards: Sequence[Shard],
        names: tuple[str, ...],
        time: VirtualTime | None,
        digest: str,
        every: float,
        engine_deps: Callable[..., EngineDeps],
    ) -> ExitStack:
        """Open the run, make its fleet and engine, and return the stack that closes its files.

        ``digest`` is that of the data of a run that goes on, and empty for any other run;
        ``engine_deps`` makes the engine's dependencies, given those that are opened here.
        """
        goes_on = digest != ""
        with ExitStack() as opened:
            opened.callback(self._executor.close)
            self._open_state(opened, folder, goes_on)
            checkpoints = None
            if goes_on:
                checkpoints = self._take_up(opened, recipe, digest, time, every)
            else:
                self._run = create_run(self.store, recipe, self._clock)
            cache, relays = self._open_files(opened, goes_on)
            self._fleet = LocalFleet(
                shards,
                cache,
                self._clock,
                self.journal.emit,
                self._executor,
                newcomers_of(recipe.simulation, recipe.seed),
                names,
                time,
            )
            trust = TrustScores()
            if checkpoints is not None:
                checkpoints.begin(self._fleet, time, trust, cache)
            self._deps = engine_deps(
                fleet=self._fleet,
                store=self.store,
                cache=cache,
                relays=relays,
                journal=self.journal,
                controls=self.controls,
                clock=self._clock,
                trust=trust,
                checkpoints=checkpoints,
            )
            self._engine = Engine(self._run, self._deps)
            return opened.pop_all()

    @plugin_errors()
    def run(self) -> SimulationResult:
        """Run it to its end.

        Any other end, such as Ctrl-C, is stored in the run's row before the exception is raised.
        """
        with self._opened:
            try:
                for text in (*self._notes, self._how):
                    self._tell(text)
                record = self._run if self._ended() else self._engine.run()
                folder = self.store.run_folder(record.run)
                of_device = self._fleet.trace if record.error == "round.quorum" else ""
                trace = of_device or self._engine.trace
                return SimulationResult(record, folder, self._final_scores(record), trace)
            except BaseException as error:
                self._end_early(error)
                raise

    def _ended(self) -> bool:
        """Whether the run has finished, so that nothing of it is left to do."""
        return self.store.run(self._run.run).status == "finished"

    def _open_state(self, opened: ExitStack, folder: Path, goes_on: bool) -> None:
        """Open the store and the journal; of a run that goes on, by one process at a time."""
        if goes_on:
            opened.callback(FolderLock(folder, "a simulation", "--out").release)
        self.store = Store(folder, durable=False)
        opened.callback(self.store.close)
        self.journal = EventJournal("simulation", self._clock)
        opened.callback(self.journal.close)
        self.controls = RunControls()

    def _take_up(
        self,
        opened: ExitStack,
        recipe: Recipe,
        data: str,
        time: VirtualTime | None,
        every: float,
    ) -> Checkpoints:
        """Open the run of the folder: a new one, or one that goes on from its last checkpoint."""
        opens, tell = partial(Checkpoints, store=self.store, every=every), self._notes.append
        run, checkpoints = open_run(self.store, recipe, self._clock, data, opens, tell)
        opened.callback(checkpoints.close)
        if run.status == "finished":
            tell(f"run {run.run} has finished before; to repeat it, choose another --out")
        elif (checkpoint := checkpoints.latest) is not None:
            checkpoints.go_back()
            run = checkpoint.record
            tell(f"resumed at round {run.round + 1} of {run.rounds}")
            if time is not None:
                # A new process's virtual clock starts at 0, and goes on from the checkpoint
                time.clock.advance(checkpoint.seconds)
        self._run = run
        self.earlier += self.store.rounds(run.run)
        return checkpoints

    def _open_files(self, opened: ExitStack, goes_on: bool) -> tuple[BlobCache, RelayedBlobs]:
        """Open the run's event file, and its folder of blobs with those that it needs."""
        run = self._run.run
        folder = self.store.run_folder(run)
        # A run that has finished gets no further events
        if self._run.status != "finished":
            self.journal.open(folder / EVENTS)
        work = work_folder(folder, lambda: goes_on and not self._ended())
        stored = self.store.relays() if goes_on else ()
        return open_blobs(
            opened.enter_context(work), stored=stored, needed=self.store.blobs(run, versions=True)
        )

    def _end_early(self, error: BaseException) -> None:
        """Write into the run's row that something ended the program's work on it."""
        record = self.store.run(self._run.run)
        if record.status not in UNFINISHED:
            return
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        ended = replace(record, status="failed", reason=reason, error="internal")
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            ended = replace(ended, status="aborted", reason="interrupted", error="interrupted")
        # The round under way does not count: it has no result
        ended = replace(ended, round=record.finished_rounds, ended=timestamp(self._clock.now()))
        self.store.save_run(ended)
        row = {"run": ended.run, "status": ended.status, "reason": ended.reason}
        self.journal.emit("run", **row)

    def _final_scores(self, record: RunRecord) -> Mapping[str, float]:
        """Return ``SimulationResult.final``."""
        recipe, parts = self._deps.recipe, self._deps.algorithm.parts()
        if record.status != "finished" or recipe.evaluation.on != "both" or not parts:
            return {}
        saved = ended_run(self._deps, record, self._tell)
        algorithm = self._deps.algorithm
        return coordinator_scores(recipe, algorithm, saved.state, saved.run_model).values

    def _tell(self, text: str) -> None:
        """Put a line into the journal: how the run trains."""
        if text:
            self.journal.emit("note", level="info", text=text)


def _algorithm(recipe: Recipe, randomness: CoordinatorRandomness, *, audit: bool) -> AnyAlgorithm:
    """Return the algorithm of a recipe whose privacy, audit and times are checked."""
    algorithm = make(recipe, randomness=randomness)
    check_privacy(recipe)
    check_label_audit(recipe, audit)
    _check_time(recipe)
    return algorithm


def _dataset(recipe: Recipe, folder: Path | None, given: GivenData | None) -> Dataset:
    """Return the run's data set, images scaled as the run's, with its validation samples.

    Raises:
        UsageError: ``evaluation.validation``: all training samples are devices' own.
    """
    if given is None:
        return load_dataset(recipe, folder)
    dataset = with_run_scale(recipe, given.dataset)
    if not given.devices:
        return with_validation(recipe, dataset)
    if recipe.evaluation.validation_share:
        raise UsageError(
            "evaluation.validation_share takes training samples, and all are devices' own.",
            code="evaluation.validation",
            hint="leave it out, or pass the data of all devices as one",
        )
    return dataset


def _check(
    recipe: Recipe, algorithm: AnyAlgorithm, dataset: Dataset, memory: int, *, user_models: bool
) -> None:
    """Make the engine's checks before anything is written.

    Raises:
        EdgeFedError: the recipe cannot be run on this data set.
    """
    if not len(dataset.train):
        raise DataError(
            f"Data set '{recipe.data.name}' has no training samples to partition.",
            code="data.none",
            hint="name a data set in the recipe's [data] table, such as digits",
        )
    check_dataset(recipe, dataset)
    model = make_model(recipe, dataset.shape, dataset.classes, memory, user_models=user_models)
    check_training(with_augmentation(recipe, dataset.preparation), algorithm, model, dataset)


def _check_shards(recipe: Recipe, algorithm: AnyAlgorithm, shards: Sequence[Shard]) -> None:
    """Check that devices have the data that training and tests need.

    Raises:
        DataError: ``data.column``: no device has a column that the algorithm needs.
        UsageError: ``simulation.devices``: fewer devices have samples;
            ``evaluation.holdout``: tests are on devices, and no device has test samples.
    """
    for name in algorithm.needed_columns():
        if not any(name in shard.train.columns for shard in shards):
            raise DataError(
                f"The algorithm {algorithm.name} needs the column {name!r} of the samples, and no"
                " device has it.",
                code="data.column",
                hint="choose another condition, or data with this column; data.transform ="
                ' "rotation" makes the column rotation',
            )
    trained = sum(len(shard.train) > 0 for shard in outlines(shards))
    wanted = recipe.rounds.min_devices
    if problem := least_devices(recipe).shortage(trained):
        raise UsageError(
            problem, code="simulation.devices", hint="simulate more devices: simulation.devices"
        )
    if trained < wanted:
        raise UsageError(
            f"rounds.min_devices is {wanted}, and {trained} of {len(shards)} simulated devices have"
            " samples to train on.",
            code="simulation.devices",
            hint=f"set rounds.min_devices to {max(1, trained)} at most, or simulate more devices",
        )
    place = evaluation_place(recipe, algorithm)
    if place == "devices" and not any(len(shard.test) for shard in outlines(shards)):
        raise UsageError(
            "The recipe tests the run on devices, but no device holds out samples.",
            code="evaluation.holdout",
            hint="set simulation.holdout = 0.2, or evaluation.on = coordinator",
        )


def _check_time(recipe: Recipe) -> None:
    """Check that a time budget has virtual time, so that the same seed gives the same bits.

    Raises:
        UsageError: ``training.seconds``.
    """
    if recipe.training.seconds and not recipe.speeds.wanted:
        raise UsageError(
            "training.seconds needs virtual time in a simulation.",
            code="training.seconds",
            hint="set speeds.seconds_per_sample, such as 0.01",
        )


def _virtual_time(
    recipe: Recipe, names: tuple[str, ...], clock: Clock
) -> tuple[VirtualTime | None, Clock]:
    """Return how long devices take, None where nothing takes time, and the clock of the run."""
    if not recipe.speeds.wanted:
        return None, clock
    time = VirtualTime(recipe.speeds, names, recipe.seed, clock.now())
    return time, time.clock


def _names(
    recipe: Recipe, count: int, given: GivenData | None, order: RecordedOrder | None
) -> tuple[str, ...]:
    """Return the names of the devices: those of the given data, or as many as ``count``.

    Raises:
        UsageError: the recorded order cannot be followed with them.
    """
    names = tuple(device.name for device in given.devices) if given else ()
    names = names or device_names(count)
    if order is not None:
        _check_order(recipe, order, names)
    return names


def _check_order(recipe: Recipe, order: RecordedOrder, names: Collection[str]) -> None:
    """Check that a recorded order can be followed to the same bits.

    Raises:
        UsageError: ``order.devices``: it names other devices; ``order.privacy``: noise is random;
            ``order.personal``: devices have trained weights that were never sent;
            ``order.seconds``: local work followed from measured times.
    """
    if recipe.privacy.wanted:
        raise UsageError(
            "A run with privacy noise cannot be repeated: its noise was random.",
            code="order.privacy",
            hint="leave --order out",
        )
    if recipe.training.seconds:
        raise UsageError(
            "A run with training.seconds cannot be repeated: its steps followed from measured"
            " times.",
            code="order.seconds",
            hint="leave --order out",
        )
    if recipe.personal.keeps_weights and order.unmerged:
        raise UsageError(
            "A run with personal weights cannot be repeated if an answer was not merged: its device"
            " may have trained on.",
            code="order.personal",
            hint="leave --order out",
        )
    others = sorted({device for asked in order.asked.values() for device in asked} - {*names})
    if others:
        raise UsageError(
            f"The recorded order names {others[0]}, which is not among the {len(names)} simulated"
            " devices.",
            code="order.devices",
            hint="simulate as many devices, or pass the data of each by its name in Python:"
            " edgefed.simulate(recipe, data={...}, order=...)",
        )


def _shards(
    recipe: Recipe,
    algorithm: AnyAlgorithm,
    dataset: Dataset,
    noise_folder: Path,
    given: GivenData | None,
) -> Sequence[Shard]:
    """Return the data of each virtual device."""
    holdout = holdout_of(recipe, algorithm)
    if given and given.devices:
        dealt: Sequence[Shard] = given_shards(given, holdout, recipe.seed)
    else:
        dealt = deal_recipe(dataset, recipe, holdout)
    shards = with_policies(dealt, recipe.simulation.sharing, recipe.seed)
    if not recipe.labels.wanted:
        return shards
    noise = NoiseCache(noise_folder, NOISE_BYTES).samples
    pool = None
    if recipe.labels.others == "global":  # what devices mix are pixels, standardised or not
        pool = to_pixels(dataset.train, dataset.preparation).inputs
    return [replace(shard, noise=noise, pool=pool) for shard in shards]


def local_executor(
    shards: Sequence[Shard],
    settings: SimulationSection,
    tell: Callable[[str], None],
    cores: int = 0,
) -> tuple[Executor, str]:
    """Return the executor, and its description; none if ``tell`` gets it later.

    Unless the recipe says how many workers there are, there is one for each of ``cores``; 0 for all
    cores of this machine.

    The executor trains many devices at once on a GPU, uses worker processes where there are cores
    for several, and otherwise this process. A forked process cannot use the parent's CUDA, nor
    autograd once the parent has started its threads.
    """
    gpu = pick_device().type != "cpu"
    if settings.engine == "stacked" or (settings.engine == "auto" and gpu):
        return StackedExecutor(shards, settings.chunk, tell), ""
    count = min(settings.workers or cores or core_count(), len(shards))
    forks = not (gpu or current_process().daemon)  # a daemonic process may have no children
    if settings.engine == "sequential" or count < 2 or not forks:
        return Sequential(shards), f"trains one device after another on {pick_device()}"
    if not forks_can_train():
        return Sequential(shards), "trains one device after another: autograd has threads here"
    return ProcessPool(shards, count), f"trains in {count} worker processes"
