"""A predictor is scored as a single model is, whatever it is made of."""

from __future__ import annotations

import numpy as np
import pytest

from edgefed.files.samples import Samples
from edgefed.learn.training.scoring import score
from edgefed.learn.training.trainer import Trainer
from tests.learn import worlds


def test_a_single_model_scores_the_same_as_a_predictor() -> None:
    trainer, data = Trainer(worlds.model("mlp"), "cpu"), worlds.samples(40)
    weights = trainer.model.weights()
    found = score(lambda inputs: trainer.predict(weights, inputs), data)
    tested = trainer.evaluate(weights, data)
    assert found.loss == pytest.approx(tested.loss, rel=1e-6)
    assert (found.accuracy, found.samples) == (tested.accuracy, tested.samples)


def test_scores_by_hand() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]]))
    data = Samples(np.zeros((2, 1), np.float32), np.array([0, 1]))
    found = score(lambda inputs: logits, data)
    assert found.loss == pytest.approx(-(np.log(0.5) + np.log(0.2)) / 2)
    assert found.accuracy == 0.5


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_no_samples_score_zero(loss: str) -> None:
    found = score(lambda inputs: inputs, worlds.samples(0), loss)
    assert (found.loss, found.samples) == (0.0, 0)
    assert found.accuracy == (0.0 if loss == "cross_entropy" else None)
