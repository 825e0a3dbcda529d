"""Which loss fits which targets, and what evaluation by squared error reports."""

from __future__ import annotations

import numpy as np
import pytest

from edgefed.config.recipes.recipe import ModelSection
from edgefed.config.recipes.sections import LossName
from edgefed.errors import DataError
from edgefed.files.samples import Samples
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.scoring import score
from edgefed.learn.training.targets import check_targets, misfit
from edgefed.learn.training.trainer import Trainer
from tests.learn import worlds
from tests.numbers import FEATURES, numbers

LINEAR = ModelSection.model_validate({"name": "mlp", "hidden": []})


def _with(targets: object) -> Samples:
    array = np.array(targets)
    kind = np.int64 if array.ndim == 1 else np.float32
    return Samples(np.zeros((len(array), FEATURES), np.float32), array.astype(kind))


@pytest.mark.parametrize(
    ("loss", "targets", "fits"),
    [
        ("cross_entropy", [0, 1, 2], True),
        ("cross_entropy", [[0.25, 0.75], [1, 0]], True),
        ("cross_entropy", [[0.25, 0.25], [1, 0]], False),
        ("cross_entropy", [[-0.5, 1.5]], False),
        ("cross_entropy", [[3.5]], False),
        ("squared_error", [[0.25, 0.75]], True),
        ("squared_error", [[-3.0]], True),
        ("squared_error", [0, 1, 2], False),
    ],
)
def test_a_loss_says_which_targets_it_can_be_of(
    loss: LossName, targets: object, fits: bool
) -> None:
    assert (misfit(loss, _with(targets)) == "") is fits
    if fits:
        check_targets(loss, "data set 'npz'", _with(targets))
        return
    with pytest.raises(DataError, match="targets of data set 'npz' are") as caught:
        check_targets(loss, "data set 'npz'", _with([]), _with(targets))
    other = {"cross_entropy": "squared_error", "squared_error": "cross_entropy"}[loss]
    assert f'set training.loss = "{other}"' in caught.value.hint


@pytest.mark.parametrize("outputs", [1, 2])
def test_both_ways_to_test_report_the_mean_squared_error_and_no_accuracy(outputs: int) -> None:
    model, data = build(LINEAR, (FEATURES,), outputs, 3), numbers(600, 1, outputs)
    trainer, weights = Trainer(model, "cpu"), model.weights()
    answers = data.inputs.astype(np.float64) @ weights["out.weight"].T + weights["out.bias"]
    wanted = pytest.approx(float(((answers - data.targets) ** 2).mean()), rel=1e-5)
    found = trainer.evaluate(weights, data, "squared_error")
    assert found.loss == wanted
    assert (found.accuracy, found.samples) == (None, 600)
    central = score(lambda inputs: trainer.predict(weights, inputs), data, "squared_error")
    assert central.loss == wanted
    assert (central.accuracy, central.samples) == (None, 600)
    empty = trainer.evaluate(weights, numbers(0, 1, outputs), "squared_error")
    assert (empty.loss, empty.accuracy, empty.samples) == (0.0, None, 0)


def test_both_ways_to_test_agree_on_shares_of_labels() -> None:
    model, data = worlds.model("mlp"), worlds.samples(40)
    shares = np.random.default_rng(0).dirichlet(np.ones(model.classes), 40).astype(np.float32)
    soft, trainer = Samples(data.inputs, shares), Trainer(model, "cpu")
    found = trainer.evaluate(model.weights(), soft)
    central = score(lambda inputs: trainer.predict(model.weights(), inputs), soft)
    assert central.loss == pytest.approx(found.loss, rel=1e-5)
    assert central.accuracy == found.accuracy


def test_squared_error_of_labels_is_an_error_and_not_a_number() -> None:
    model, data = worlds.model("mlp"), worlds.samples(5)
    with pytest.raises(DataError, match="needs a target for every output"):
        Trainer(model, "cpu").evaluate(model.weights(), data, "squared_error")


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
