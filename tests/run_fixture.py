"""A small run with real parts: data, virtual devices, store, engine, and a clock of the tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.devices.trust_scores import TrustScores
from edgefed.coordinator.exchanges.fleet import Fleet
from edgefed.coordinator.exchanges.relayed_blobs import open_blobs
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.rounds.engine import Engine
from edgefed.coordinator.rounds.engine_deps import EngineDeps
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.storage.new_run import create_run
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.coordinator.trackers.base import Tracker
from edgefed.data.base.types import Dataset, Shard, no_samples
from edgefed.events.base.model import Event
from edgefed.files.samples import Samples
from edgefed.simulator.executors import Sequential
from edgefed.simulator.local_fleet import LocalFleet
from edgefed.worker.trainer_cache import TrainerCache

SHAPE = (8,)
CLASSES = 3
EXACT = {"downlink": "fp32", "uplink": "fp32"}
COARSE = {"downlink": "int8", "uplink": "int8", "error_feedback": True}


class Ticking:
    """A clock that goes on by one second whenever it is read.

    Attributes:
        on_read: called at every look at it.
    """

    def __init__(self) -> None:
        self._reads = 0.0
        self.on_read: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        self.on_read()
        self._reads += 1.0
        return self._reads

    def now(self) -> datetime:
        self.on_read()
        return datetime(2024, 5, 6, 7, 8, 9, tzinfo=timezone.utc)


def samples(count: int, seed: int, shape: tuple[int, ...] = SHAPE) -> Samples:
    """Return noise shifted by its label, so that there is something to learn."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    noise = rng.standard_normal((count, *shape)) + labels.reshape(-1, *[1] * len(shape))
    return Samples(noise.astype(np.float32), labels)


def shards(sizes: Sequence[int], tested: int = 0) -> tuple[Shard, ...]:
    """Return a shard of each size, each with ``tested`` samples kept for evaluation."""
    return tuple(
        Shard(samples(size, 10 + place), samples(tested, 50 + place), CLASSES)
        for place, size in enumerate(sizes)
    )


def recipe(**sections: Any) -> Recipe:
    """Return a recipe for those samples: a tiny model, three rounds, lossless unless told."""
    rounds = {"count": 3, **sections.pop("rounds", {})}
    values: dict[str, Any] = {
        "seed": 7,
        "model": {"name": "mlp", "hidden": [4]},
        "training": {"batch_size": 4, "learning_rate": 0.1},
        "wire": EXACT,
        "rounds": rounds,
    }
    return Recipe.model_validate({**values, **sections})


class World:
    """One run on disk, the virtual devices that take part, and engines made anew for it.

    Attributes:
        devices: the virtual devices, which outlive every engine.
        events: what the journals of all engines said.
    """

    def __init__(
        self,
        folder: Path,
        plan: Recipe | None = None,
        parts: Sequence[Shard] | None = None,
        *,
        tests: int = 12,
        durable: bool = False,
    ) -> None:
        self.folder = folder
        self.recipe = plan or recipe()
        given = shards((5, 9, 6, 4)) if parts is None else parts
        self.dataset = Dataset(no_samples(SHAPE), samples(tests, 99), CLASSES, SHAPE)
        self.clock = Ticking()
        self.durable = durable
        self.cache, self.relays = open_blobs(folder, 1 << 30)
        hands = Sequential(given, TrainerCache("cpu"), self.clock)
        self.devices = LocalFleet(given, self.cache, self.clock, executor=hands)
        self.events: list[Event] = []
        self.stores: list[Store] = []
        self.run = create_run(self.store(), self.recipe, self.clock, "0000").run

    def store(self) -> Store:
        """Return the run's store, opened anew."""
        self.stores.append(Store(self.folder, durable=self.durable))
        return self.stores[-1]

    @property
    def record(self) -> RunRecord:
        """The run's row on disk."""
        return self.stores[0].run(self.run)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The run's rounds on disk."""
        return self.stores[0].rounds(self.run)

    def engine(
        self,
        fleet: Fleet | None = None,
        controls: RunControls | None = None,
        algorithm: CompleteAlgorithm[Any] | None = None,
        listener: Callable[[Event], None] | None = None,
        trackers: tuple[Tracker, ...] = (),
        memory: int = 0,
        trust: TrustScores | None = None,
    ) -> Engine:
        """Return an engine that knows nothing but what is on disk."""
        store = self.store()
        journal = EventJournal("tests", self.clock)
        journal.listen(lambda event, _: self.events.append(event))
        if listener is not None:
            journal.listen(lambda event, _: listener(event))
        deps = EngineDeps(
            recipe=self.recipe,
            algorithm=algorithm or make(self.recipe),
            fleet=fleet or self.devices,
            dataset=self.dataset,
            store=store,
            cache=self.cache,
            relays=self.relays,
            journal=journal,
            controls=controls or RunControls(),
            clock=self.clock,
            trackers=trackers,
            memory=memory,
            trust=trust or TrustScores(),
        )
        return Engine(store.run(self.run), deps)

    def seen(self, kind: str, **wanted: Any) -> list[Mapping[str, Any]]:
        """Return the fields of the events of a kind that hold what is wanted."""
        return [
            event.fields
            for event in self.events
            if event.kind == kind and wanted.items() <= event.fields.items()
        ]

    def close(self) -> None:
        """Close the databases."""
        for store in self.stores:
            store.close()
