"""The dependencies of an engine: the run's parts, store, fleet, journal and trackers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.devices.trust_scores import TrustScores
from edgefed.coordinator.exchanges.fleet import Fleet
from edgefed.coordinator.exchanges.recorded_order import RecordedOrder
from edgefed.coordinator.exchanges.relayed_blobs import RelayedBlobs
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.models.augmentation import with_augmentation
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.coordinator.trackers.base import Row, Tracker
from edgefed.data.base.types import Dataset
from edgefed.learn.base.types import Tensors
from edgefed.process.clock import Clock
from edgefed.wire.blobs import BlobCache

OnRound = Callable[[Row, Callable[[], Tensors]], None]
"""Called after each round, with its row and a function that returns the tensors of a model file."""


def ignore_round(row: Row, weights: Callable[[], Tensors]) -> None:
    """Do nothing after a round."""


@dataclass(frozen=True)
class BetweenRounds:
    """The state of an engine between two rounds, beside the rows and files of the store.

    Attributes:
        settled_through: of buffered rounds, the last index whose reply each device need not keep.
        tested: the state that devices test while later rounds end; None for no such test.
    """

    settled_through: Mapping[str, int] = field(default_factory=dict)
    tested: State | None = None


class RoundCheckpoints(Protocol):
    """Checkpoints between rounds, from which a simulation goes on with the same bits.

    Attributes:
        last: the state from which the engine goes on; None in a run that begins.
    """

    last: BetweenRounds | None

    def is_due(self) -> bool:
        """Whether to write one after the round that was closed now."""
        ...

    def save(self, record: RunRecord, between: BetweenRounds) -> None:
        """Write one, in one step with the state of the devices; it may be repeated.

        Raises:
            StorageError: the disk does not take it.
        """
        ...


@dataclass(frozen=True)
class EngineDeps:
    """The dependencies of an engine.

    Attributes:
        dataset: the recipe's data set, of which the test part is the coordinator's.
        relays: the blobs that devices sent to others.
        trackers: notified of the rounds, beside the metric files in the run's folder.
        user_models: whether the recipe may name a user's own code as its model.
        memory: most bytes that training the model may take here; 0 for half of the free memory.
        audit: whether to record the label frequencies that answers disclose, in the run's folder.
        data_folder: base of relative paths in the recipe; None for the working folder.
        on_round: called after each round; an ``EdgeFedError`` that it raises fails the run.
        trust: the devices' trust scores; those that are quarantined are not asked.
        order: the order of another run with buffered rounds, to ask and merge in; None for that of
            the replies.
        checkpoints: of a simulation that can be killed; a coordinator goes on from the store alone.
        release: deletes other files that can be fetched again, beside blobs, when the disk is full.
    """

    recipe: Recipe
    algorithm: CompleteAlgorithm[Any]
    fleet: Fleet
    dataset: Dataset
    store: Store
    cache: BlobCache
    relays: RelayedBlobs
    journal: EventJournal
    controls: RunControls
    clock: Clock
    trackers: tuple[Tracker, ...] = ()
    user_models: bool = False
    memory: int = 0
    audit: bool = False
    data_folder: Path | None = None
    trust: TrustScores = field(default_factory=TrustScores)
    release: Callable[[], None] = lambda: None
    on_round: OnRound = ignore_round
    order: RecordedOrder | None = None
    checkpoints: RoundCheckpoints | None = None

    @property
    def prepared_recipe(self) -> Recipe:
        """The recipe with its data set's declarations about images, as tasks carry it."""
        return with_augmentation(self.recipe, self.dataset.preparation)
