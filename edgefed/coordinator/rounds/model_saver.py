"""Save a run's models in its folder: of the last round, of the best, and of every so many rounds.

While the disk is full, saving waits, as for every file of a run (``RunRecorder.written``).
"""

from __future__ import annotations

from typing import Any

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.coordinator.models.model_file_contents import (
    checkpoint_file,
    described,
    file_round,
    model_tensors,
)
from edgefed.coordinator.rounds.run_recorder import RunRecorder
from edgefed.coordinator.rounds.run_state import RunState
from edgefed.coordinator.storage.run_store import Store
from edgefed.events.history.early_stopping import BestRound
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model_file_reader import BEST_FILE, MODEL_FILE
from edgefed.learn.training.user_losses import is_user_loss
from edgefed.wire.tensors import weights_digest


class ModelSaver:
    """Writes the models of one run.

    Args:
        recorder: has the run's row, and writes.
        recipe: the run's, with its data set's declarations.
        algorithm: knows the models of a state.
        store: keeps the files.
    """

    def __init__(
        self, recorder: RunRecorder, recipe: Recipe, algorithm: CompleteAlgorithm[Any], store: Store
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
        return self._write(state, MODEL_FILE)

    def keep_round(self, state: RunState) -> None:
        """Keep the models of the round that was closed last, if it is the best or a checkpoint.

        A restart calls it again, as the process may have ended before. Files that are there stay:
        exchanges since then may have changed the state.

        Raises:
            StorageError: they cannot be written, or an order ended the wait for space.
        """
        number, best = state.state.round, state.history.best
        if not number or number != state.scored:
            return
        folder = self._store.run_folder(self._recorder.record.run)
        # The file's own round tells whether it was written before a restart
        if best is not None and best.round == number and file_round(folder / BEST_FILE) != number:
            self._write(state, BEST_FILE, best)
        every, file = self._recipe.rounds.checkpoint_every, checkpoint_file(number)
        if every and number % every == 0 and file_round(folder / file) != number:
            self._write(state, file)

    def keep_tested(self, state: RunState) -> None:
        """Keep the models of a round that was tested later, if it is the best.

        Raises:
            StorageError: they cannot be written, or an order ended the wait for space.
        """
        best = state.history.best
        if best is not None and best.round == state.state.round:
            self._write(state, BEST_FILE, best)

    def _write(self, state: RunState, file: str, best: BestRound | None = None) -> str:
        models = tuple(self._algorithm.models(state.state))
        weights = self.tensors(state)
        digest = weights_digest(weights)
        run = self._recorder.record.run
        description = described(
            self._recorder.record,
            self._recipe,
            section=self.section(state.state),
            spec=state.run_model.spec,
            number=state.state.round,
            digest=digest,
            models=models,
            shares=self._algorithm.model_shares(state.state),
            best=best,
            numbers=self._has_numbers(state),
        )
        metadata = description.metadata()
        self._recorder.written(lambda: self._store.save_model(run, weights, metadata, file))
        return digest

    def _has_numbers(self, state: RunState) -> bool:
        """Return whether a user's own loss is of numbers: by samples here, or by devices' tests."""
        record, test = self._recorder.record, state.run_model.test
        if not is_user_loss(self._recipe.training.loss):
            return False
        if len(test):
            return not test.has_labels
        # Without samples here, a loss without an accuracy tells that targets are numbers
        return record.loss is not None and record.accuracy is None

    def tensors(self, state: RunState) -> Tensors:
        """Return the tensors of a model file: the complete weights of the state's models."""
        own, models = state.run_model.model, self._algorithm.models(state.state)
        return model_tensors({name: own.complete(weights) for name, weights in models.items()})

    def section(self, state: State) -> ModelSection:
        """Return the network of the state's weights."""
        return self._algorithm.model(state) or self._recipe.model
