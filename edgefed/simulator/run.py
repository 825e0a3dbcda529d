"""Run a recipe on virtual devices: the coordinator's engine over a fleet in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgefed.algorithms.evaluation_place import evaluation_place, holdout_of
from edgefed.algorithms.registry import AnyAlgorithm, make
from edgefed.clock import Clock
from edgefed.config.recipe import Recipe, SimulationSection
from edgefed.coordinator.augmentation import with_augmentation
from edgefed.coordinator.engine import Engine
from edgefed.coordinator.engine_deps import EngineDeps
from edgefed.coordinator.evaluation import coordinator_scores
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.new_run import create_run
from edgefed.coordinator.relayed_blobs import open_blobs
from edgefed.coordinator.run_controls import RunControls
from edgefed.coordinator.run_model import check_dataset, load_dataset, make_model
from edgefed.coordinator.run_records import RunRecord
from edgefed.coordinator.saved_evaluation import ended_run
from edgefed.coordinator.store import Store
from edgefed.coordinator.trackers.base import Tracker
from edgefed.coordinator.training_check import check_training
from edgefed.data.partition import deal_recipe
from edgefed.data.pixels import to_pixels
from edgefed.data.types import Dataset, Shard
from edgefed.errors import DataError, UsageError
from edgefed.learn.devices import pick_device, set_threads
from edgefed.natural_noise.cache import NoiseCache
from edgefed.simulator.device_policies import with_policies
from edgefed.simulator.executors import Executor, Maker, Sequential
from edgefed.simulator.local_fleet import LocalFleet, newcomers_of
from edgefed.simulator.process_pool import ProcessPool, core_count
from edgefed.simulator.stacked_executor import StackedExecutor

CACHE_BYTES = 4 * 1024**3
NOISE_BYTES = 512 * 1024**2


@dataclass(frozen=True)
class SimulationResult:
    """How a simulated run ended, and where its files are.

    Attributes:
        final: the coordinator's scores of what the run ended in, where that may differ from what it
            scored after its last round, as with gates that are collected then; else empty.
    """

    record: RunRecord
    folder: Path
    final: Mapping[str, float]


class Simulation:
    """One simulated run, ready to go.

    Args:
        recipe: what to train; its ``[simulation]`` table says on how many devices.
        folder: state directory for simulated runs.
        clock: for seconds and event times.
        data_folder: where downloaded data sets are kept.
        trackers: who is told every round.
        executors: makes who trains; None for what suits this machine.
        memory: most bytes that training the model may take; 0 for half of what is free.
        noise_folder: where natural noise is kept, which other runs may share; None for ``folder``.
        audit: whether to record what answers tell of labels; see ``edgefed run audit``.

    Raises:
        EdgeFedError: the recipe cannot be run.
    """

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
    ) -> None:
        set_threads(1)
        algorithm = make(recipe)
        dataset = load_dataset(recipe, data_folder)
        _check(recipe, algorithm, dataset, memory)
        shards = _shards(recipe, algorithm, dataset, noise_folder or folder / "noise")
        _check_shards(recipe, algorithm, shards)
        self._executor, self._how = (executors or _executor)(shards, recipe.simulation, self._tell)
        self.store = Store(folder, durable=False)
        self.journal = EventJournal("simulation", clock)
        self.controls = RunControls()
        record = create_run(self.store, recipe, clock)
        self.journal.open(self.store.run_folder(record.run) / "events.jsonl")
        cache, relays = open_blobs(folder, CACHE_BYTES)
        self._deps = EngineDeps(
            recipe=recipe,
            algorithm=algorithm,
            fleet=LocalFleet(
                shards,
                cache,
                clock,
                self.journal.emit,
                self._executor,
                newcomers_of(recipe.simulation, recipe.seed),
            ),
            dataset=dataset,
            store=self.store,
            cache=cache,
            relays=relays,
            journal=self.journal,
            controls=self.controls,
            clock=clock,
            trackers=trackers,
            user_models=True,
            memory=memory,
            data_folder=data_folder,
            audit=audit,
        )
        self._engine = Engine(record, self._deps)

    def run(self) -> SimulationResult:
        """Run it to its end."""
        try:
            self._tell(self._how)
            record = self._engine.run()
            folder = self.store.run_folder(record.run)
            return SimulationResult(record, folder, self._final_scores(record))
        finally:
            self._executor.close()
            self.journal.close()
            self.store.close()

    def _final_scores(self, record: RunRecord) -> Mapping[str, float]:
        """Return ``SimulationResult.final``."""
        recipe, parts = self._deps.recipe, self._deps.algorithm.parts()
        if record.status != "finished" or recipe.evaluation.on != "both" or not parts:
            return {}
        saved = ended_run(self._deps, record, self._tell)
        loss = recipe.training.loss
        return coordinator_scores(self._deps.algorithm, loss, saved.state, saved.run_model)

    def _tell(self, text: str) -> None:
        """Put a line into the journal: how the run trains."""
        if text:
            self.journal.emit("note", level="info", text=text)


def _check(recipe: Recipe, algorithm: AnyAlgorithm, dataset: Dataset, memory: int) -> None:
    """Check what the engine checks again; here nothing is written yet.

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
    model = make_model(recipe, dataset.shape, dataset.classes, memory, user_models=True)
    check_training(with_augmentation(recipe, dataset.preparation), algorithm, model)


def _check_shards(recipe: Recipe, algorithm: AnyAlgorithm, shards: Sequence[Shard]) -> None:
    """Check that devices have what training and tests need.

    Raises:
        DataError: ``data.column``: no device has a column that the algorithm needs.
        UsageError: ``evaluation.holdout``: tests are on devices, and no device has test samples.
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
    place = evaluation_place(recipe, algorithm)
    if place == "devices" and not any(len(shard.test) for shard in shards):
        raise UsageError(
            "The run is to be tested on devices, and no device holds out samples.",
            code="evaluation.holdout",
            hint="set simulation.holdout = 0.2, or evaluation.on = coordinator",
        )


def _shards(
    recipe: Recipe, algorithm: AnyAlgorithm, dataset: Dataset, noise_folder: Path
) -> list[Shard]:
    """Return the data of each virtual device."""
    dealt = deal_recipe(dataset, recipe, holdout_of(recipe, algorithm))
    shards = with_policies(dealt, recipe.simulation.sharing, recipe.seed)
    if not recipe.labels.wanted:
        return shards
    noise = NoiseCache(noise_folder, NOISE_BYTES).samples
    pool = None
    if recipe.labels.others == "global":  # what devices mix are pixels, standardised or not
        pool = to_pixels(dataset.train, dataset.preparation).inputs
    return [replace(shard, noise=noise, pool=pool) for shard in shards]


def _executor(
    shards: Sequence[Shard], settings: SimulationSection, tell: Callable[[str], None]
) -> tuple[Executor, str]:
    """Return who trains, and in words how; no words where ``tell`` is told later.

    That is many devices at once on a GPU, worker processes where there are cores for several, and
    otherwise this process. A forked process cannot use the parent's CUDA.
    """
    gpu = pick_device().type != "cpu"
    if settings.engine == "stacked" or (settings.engine == "auto" and gpu):
        return StackedExecutor(shards, settings.chunk, tell), ""
    count = min(settings.workers or core_count(), len(shards))
    if settings.engine == "sequential" or count < 2 or gpu:
        return Sequential(shards), f"trains one device after another on {pick_device()}"
    return ProcessPool(shards, count), f"trains in {count} worker processes"
