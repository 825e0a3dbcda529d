"""Personal models: what is shared, what stays on a device, and what a device tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.device_side import EvalJob, TrainedEvalJob
from edgefed.algorithms.interface.exchange import Payload
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.algorithms.private.personal_models import PERSONAL, START, PersonalModels
from edgefed.config.recipes.images_section import ImagesSection
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.errors import RecipeError
from edgefed.learn.base.augment import Augment
from edgefed.learn.base.image_transforms import ImageTransforms
from edgefed.learn.base.types import Array, Samples, Score
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import ModelPredictions, Trainer
from tests.algorithms.play import Players, asked, bits, planned_for
from tests.run_fixture import CLASSES, SHAPE, samples

RATE = 0.5


def recipe(personal: dict[str, Any], name: str = "fedavg", rounds: int = 2, **keys: Any) -> Recipe:
    values: dict[str, Any] = {
        "algorithm": {"name": name},
        "training": {"batch_size": 4, "learning_rate": 0.1},
        "rounds": {"count": rounds},
        "personal": personal,
    }
    return Recipe.model_validate({**values, **keys})


def checked(plan: Recipe, players: Players) -> CompleteAlgorithm[Any]:
    """Return the recipe's algorithm as the engine has it before a run."""
    half = make(plan)
    half.check_model(players.trainer.model)
    return half


def linear() -> Trainer:
    section = ModelSection.model_validate({"name": "mlp", "hidden": []})
    return Trainer(build(section, SHAPE, CLASSES, 1), "cpu")


# -- nothing personal -----------------------------------------------------------------------------


def test_without_the_table_the_algorithm_is_as_it_was() -> None:
    assert type(make(recipe({"weights": []}))) is FedAvg


def test_training_is_the_algorithms_own_where_only_tests_fine_tune() -> None:
    once, again = Players(), Players()
    tuned = checked(recipe({"fine_tune_epochs": 3}), once)
    assert isinstance(tuned, PersonalModels)
    ends = once.play(tuned), again.play(make(recipe({})))
    for (ours, exchange), (theirs, plain) in zip(*ends, strict=True):
        assert bits(ours.groups["weights"]) == bits(theirs.groups["weights"])
        assert exchange.questions == plain.questions
    assert once.private == again.private


# -- training -------------------------------------------------------------------------------------


def step(weight: Array, bias: Array, part: Samples) -> tuple[Array, Array]:
    """Return a linear softmax model after one full-batch step, in float64."""
    logits = part.inputs.astype(np.float64) @ weight.T + bias
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    error = (shares - np.eye(CLASSES)[part.targets]) / len(part)
    return weight - RATE * error.T @ part.inputs, bias - RATE * error.sum(axis=0)


def test_two_devices_that_share_all_but_one_bias_by_hand() -> None:
    players = Players(parts=[samples(6, 1), samples(2, 2)], trainer=linear())
    training = {"batch_size": 8, "learning_rate": RATE}
    half = checked(recipe({"preset": "biased"}, rounds=3, training=training), players)
    first = players.trainer.model.weights()
    weight, biases = first["out.weight"].astype(np.float64), [first["out.bias"]] * 2
    for state, _ in players.play(half):
        ends = [step(weight, bias, part) for bias, part in zip(biases, players.parts, strict=True)]
        weight = 0.75 * ends[0][0] + 0.25 * ends[1][0]
        biases = [bias for _, bias in ends]
        np.testing.assert_allclose(state.groups["weights"]["out.weight"], weight, atol=1e-6)
    for device, bias in zip(("device-00", "device-01"), biases, strict=True):
        kept = players.private[device][PERSONAL]
        assert kept.keys() == {"out.bias"}
        np.testing.assert_allclose(kept["out.bias"], bias, atol=1e-6)
    assert np.abs(biases[0] - biases[1]).max() > 0.05
    assert bits(half.weights(state)["out.bias"]) == bits(first["out.bias"])


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedopt", "fedmix", "fedlc"])
def test_only_shared_weights_are_asked_for_sent_and_remembered(name: str) -> None:
    players = Players()
    half = checked(recipe({"preset": "fedper"}, name, rounds=3), players)
    mine, shared = {"out.weight", "out.bias"}, {"fc1.weight", "fc1.bias"}
    state = players.start(half)
    for number in range(3):
        planned = players.planned(half, state, number)
        answers = players.answers(half, planned)
        if planned.name == "fit":
            assert planned.payloads["weights"].arrays.keys() == shared
            assert planned.payloads[START] == Payload(state.groups[START], "fp32")
            assert (planned.reply_roles["delta"].tensors or {}).keys() == shared
            assert all(answer.groups["delta"].arrays.keys() == shared for answer in answers)
        state = half.merge(state, asked(planned), answers)
    kept = {key.rpartition("/")[2] for key in state.groups.get("memory", {})}
    assert kept <= shared
    assert (name == "fedopt") == bool(kept)
    assert state.groups["weights"].keys() == shared
    assert all(group[PERSONAL].keys() == mine for group in players.private.values())
    first = players.trainer.model.weights()
    assert bits(state.groups[START]) == bits({each: first[each] for each in first if each in mine})


def test_a_device_goes_on_from_its_own_weights_after_rounds_without_it() -> None:
    players = Players()
    half = checked(recipe({"preset": "biased"}, rounds=4), players)
    state, others = players.start(half), players.roster[1:]
    for number, roster in enumerate((players.roster, others, others)):
        planned = planned_for(half, state, roster, number)
        state = half.merge(state, asked(planned), players.answers(half, planned))
        if not number:
            left = bits(players.private["device-00"])
    assert bits(players.private["device-00"]) == left
    planned = players.planned(half, state, 9)
    job = players.job(half, planned, planned.questions[0])
    assert list(job.weights) == list(players.trainer.model.names)
    assert bits(job.weights["out.bias"]) == bits(players.private["device-00"][PERSONAL]["out.bias"])
    assert bits(job.weights["fc1.bias"]) == bits(state.groups["weights"]["fc1.bias"])


def test_running_statistics_of_fedbn_stay_on_the_device() -> None:
    section = ModelSection.model_validate({"name": "resnet20", "norm": "batch"})
    shape = (3, 8, 8)
    network = Trainer(build(section, shape, CLASSES, 1), "cpu")
    players = Players(parts=[samples(4, 1, shape)], trainer=network)
    half = checked(recipe({"preset": "fedbn"}, rounds=1), players)
    state, exchange = players.play(half)[-1]
    assert not any("norm" in name for name in exchange.payloads["weights"].arrays)
    kept = players.private["device-00"][PERSONAL]
    assert {name for name in network.model.names if "norm" in name} == kept.keys()
    assert int(kept["norm1.num_batches_tracked"]) == 1
    assert np.abs(kept["norm1.running_mean"]).max() > 0
    assert np.abs(half.weights(state)["norm1.running_mean"]).max() == 0


# -- the result -----------------------------------------------------------------------------------


def test_the_saved_model_has_all_weights_in_the_models_order() -> None:
    players = Players()
    half = checked(recipe({"preset": "lg"}), players)
    state, _ = players.play(half)[-1]
    assert list(half.weights(state)) == list(players.trainer.model.names)
    assert {key: list(value) for key, value in half.models(state).items()} == {
        "model": list(players.trainer.model.names)
    }
    inputs = samples(5, 1).inputs
    predicted = half.predictor(state, ModelPredictions(players.trainer))(inputs)
    assert bits(predicted) == bits(players.trainer.predict(half.weights(state), inputs))


def test_a_device_tests_its_own_model_and_a_new_one_the_initial_personal_weights() -> None:
    players = Players()
    half = checked(recipe({"preset": "biased"}), players)
    state, _ = players.play(half)[-1]
    del players.private["device-01"]
    exchange = half.evaluation(state, players.roster, 1)
    tests = [
        half.eval_job(players.task(exchange, each), players.view(each.device))
        for each in exchange.questions[:2]
    ]
    known, new = tests
    assert isinstance(known, EvalJob)
    assert isinstance(new, EvalJob)
    assert (known.mode, new.mode) == ("known", "new")
    own = players.private["device-00"][PERSONAL]["out.bias"]
    assert bits(known.weights["out.bias"]) == bits(own)
    assert bits(new.weights) == bits(half.weights(state))
    assert (half.evaluation_place, half.evaluation_modes) == ("devices", ("known", "new"))
    as_new = half.evaluation_in_mode(state, exchange, "new")
    task = players.task(as_new, as_new.questions[0])
    assert bits(half.eval_job(task, players.view("device-00"))) == bits(new)


def test_fine_tuning_trains_the_device_s_own_model_and_keeps_nothing() -> None:
    players = Players()
    half = checked(recipe({"preset": "biased", "fine_tune_epochs": 20}), players)
    state, _ = players.play(half)[-1]
    kept = bits(players.private)
    exchange = half.evaluation(state, players.roster, 1)
    view, task = players.view("device-01"), players.task(exchange, exchange.questions[1])
    view = replace(view, test=view.train)  # on which training shows
    work = half.eval_job(task, view)
    assert isinstance(work, TrainedEvalJob)
    assert (work.mode, work.job.schedule.epochs) == ("known", 20)
    assert bits(work.job.weights["out.bias"]) == bits(view.private[PERSONAL]["out.bias"])
    plain = players.trainer.evaluate(work.job.weights, view.test)
    tuned = players.do(work, view)
    assert isinstance(tuned, Score)
    assert tuned.loss < plain.loss - 0.1
    assert tuned.before == plain, "the model before it was fine-tuned"
    assert bits(players.private) == kept
    unheld = replace(view, test=Samples(view.test.inputs[:0], view.test.targets[:0]))
    assert isinstance(half.eval_job(task, unheld), EvalJob)


# -- refusals, and what is underneath -------------------------------------------------------------


def test_an_algorithm_with_several_models_is_refused() -> None:
    with pytest.raises(RecipeError, match="personal weights with ifca") as caught:
        checked(recipe({"preset": "biased"}, "ifca"), Players())
    assert caught.value.code == "personal.algorithm"


def test_fine_tuning_augments_as_training_does() -> None:
    players, plan = Players(), recipe({"fine_tune_epochs": 1})
    half = checked(plan.model_copy(update={"images": ImagesSection(flip=True)}), players)
    assert half.images == ImagesSection(flip=True)
    state = players.start(half)
    exchange = half.evaluation(state, players.roster, 1)
    view = players.view("device-01")
    work = half.eval_job(
        players.task(exchange, exchange.questions[1]), replace(view, test=view.train)
    )
    assert isinstance(work, TrainedEvalJob)
    assert work.job.augment == Augment(fill="reflect", transforms=ImageTransforms(flip=True))


def test_an_answer_at_once_passes_unchanged() -> None:
    """The exchange of averaged data has tasks without weights."""
    players = Players()
    half = checked(recipe({"preset": "biased"}, "fedmix"), players)
    mean = players.planned(half, players.start(half))
    assert (mean.name, mean.payloads) == ("mean", {})
    question = mean.questions[0]
    answer = half.prepare(players.task(mean, question), players.view(question.device))
    assert isinstance(answer, Answer)
    assert PERSONAL not in answer.private
