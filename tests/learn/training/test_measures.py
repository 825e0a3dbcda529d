"""Tests count samples by class and top-k hits, the same for a model and for any predictor."""

from __future__ import annotations

import numpy as np
import pytest

from edgefed.config.recipes.recipe import EvaluationSection
from edgefed.files.samples import Samples
from edgefed.learn.samples.sample_cache import EVAL_BATCH
from edgefed.learn.training.measures import NOTHING_MORE, Measures, Tally, measures_of
from edgefed.learn.training.scoring import score
from edgefed.learn.training.trainer import Trainer
from tests.learn import worlds

metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")

BOTH = Measures(confusion=True, top_k=2)


def test_a_model_and_a_predictor_count_the_same() -> None:
    trainer, data = Trainer(worlds.model("mlp"), "cpu"), worlds.samples(EVAL_BATCH + 40)
    weights = trainer.model.weights()
    tested = trainer.evaluate(weights, data, measures=BOTH)
    found = score(lambda inputs: trainer.predict(weights, inputs), data, measures=BOTH)
    logits = trainer.predict(weights, data.inputs)
    predicted, classes = logits.argmax(axis=1), logits.shape[1]
    expected = metrics.confusion_matrix(data.targets, predicted, labels=range(classes))
    top = metrics.top_k_accuracy_score(data.targets, logits, k=2, labels=range(classes))
    for each in (tested, found):
        assert each.confusion is not None
        assert np.array_equal(each.confusion.counts, expected)
        assert each.loss == pytest.approx(tested.loss, rel=1e-6)
        assert each.accuracy == np.trace(expected) / len(data)
        assert each.top_k_hits == round(top * len(data))
    plain = trainer.evaluate(weights, data)
    assert (plain.loss, plain.accuracy) == (tested.loss, tested.accuracy)
    assert (plain.top_k_hits, plain.confusion) == (None, None)


def test_shares_of_labels_count_as_the_largest() -> None:
    shares = np.array([[0.2, 0.8, 0.0], [0.6, 0.4, 0.0]], np.float32)
    data = Samples(np.zeros((2, 1), np.float32), shares)
    found = score(lambda inputs: np.array([[0.0, 1, 2], [2, 1, 0]]), data, measures=BOTH)
    assert found.confusion is not None
    assert found.confusion.rows() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert found.top_k_hits == 2


@pytest.mark.parametrize("top_k", [1, 2, 3, 4])
def test_of_equal_outputs_the_lower_label_comes_first(top_k: int) -> None:
    tally = Tally(Measures(top_k=top_k))
    equal = np.zeros((4, 4))
    tally.add(equal, equal.argmax(axis=1), np.arange(4))
    assert tally.top_k_hits == top_k
    assert tally.right == 1


def test_outputs_that_are_no_numbers_are_no_hits() -> None:
    broken = np.array([[np.nan, np.nan, np.nan], [np.nan, 1.0, 0.0]])
    tally = Tally(BOTH)
    tally.add(broken, broken.argmax(axis=1), np.array([2, 1]))
    assert tally.top_k_hits == 1, "the second one's label comes after the output without a value"


@pytest.mark.parametrize(
    ("classes", "section", "expected"),
    [
        (10, {}, Measures(True, 5)),
        (5, {}, Measures(True, 4)),
        (3, {}, Measures(True, 2)),
        (2, {}, Measures(True, 0)),
        (10, {"top_k": 1}, Measures(True, 0)),
        (10, {"top_k": 0}, Measures(True, 0)),
        (10, {"top_k": 3, "confusion": False}, Measures(False, 3)),
        (5000, {}, Measures(False, 5)),
    ],
)
def test_the_recipe_and_the_classes_say_what_is_measured(
    classes: int, section: dict[str, object], expected: Measures
) -> None:
    made = EvaluationSection.model_validate(section)
    assert measures_of(made, "cross_entropy", classes) == expected
    assert measures_of(made, "squared_error", classes) == NOTHING_MORE


def test_the_name_of_top_k_holds_k() -> None:
    assert Measures(top_k=4).top_k_name == "top4_accuracy"


def test_squared_error_counts_nothing() -> None:
    numbers = np.zeros((3, 2), np.float32)
    data = Samples(np.zeros((3, 1), np.float32), numbers)
    found = score(lambda inputs: numbers, data, "squared_error", BOTH)
    assert (found.accuracy, found.top_k_hits, found.confusion) == (None, None, None)
