"""Save a run's models in its folder: those of the last round, with what their file says of itself.

While the disk is full, saving waits, as for every file of a run (``RunRecorder.written``).
"""

from __future__ import annotations

from typing import Any

from edgefed.algorithms.base import Algorithm, State
from edgefed.config.recipe import ModelSection, Recipe
from edgefed.coordinator.model_file import described, model_tensors
from edgefed.coordinator.run_recorder import RunRecorder
from edgefed.coordinator.run_state import RunState
from edgefed.coordinator.store import Store
from edgefed.wire.tensors import weights_digest


class ModelSaver:
    """Writes the models of one run.

    Args:
        recorder: has the run's row, and writes.
        recipe: the run's, with what its data set declares.
        algorithm: says which models a state holds.
        store: keeps the files.
    """

    def __init__(
        self, recorder: RunRecorder, recipe: Recipe, algorithm: Algorithm[Any], store: Store
    ) -> None:
        self._recorder = recorder
        self._recipe = recipe
        self._algorithm = algorithm
        self._store = store

    def save(self, state: RunState) -> str:
        """Write the models of the state, and return the digest of their weights.

        Raises:
            StorageError: they cannot be written, or an order ended the wait for space.
        """
        models = self._algorithm.models(state.state)
        weights = model_tensors(models)
        digest = weights_digest(weights)
        record = self._recorder.record
        description = described(
            record,
            self._recipe,
            section=self.section(state.state),
            spec=state.run_model.spec,
            number=state.state.round,
            digest=digest,
            models=tuple(models),
        )
        metadata = description.metadata()
        self._recorder.written(lambda: self._store.save_model(record.run, weights, metadata))
        return digest

    def section(self, state: State) -> ModelSection:
        """Return the network of the state's weights."""
        return self._algorithm.model(state) or self._recipe.model
