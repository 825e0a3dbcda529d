"""IFCA: the choice of a model, the mean of each, and planted clusters that it finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgefed.algorithms.averaging.ifca import CHOICE, CHOICES, STEPS, model_name
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.device_side import Chosen, LowestLossJob, PredictorEvalJob
from edgefed.config.recipes.recipe import Recipe
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Job, Schedule, Score, Tensors, Trained
from edgefed.learn.modeling.initial_weights import redrawn
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.training.trainer import ModelPredictions, Stopped
from edgefed.worker.run_work import run_work
from tests.algorithms.play import Players, algorithm, asked, bits, trainer
from tests.run_fixture import CLASSES, samples

# -- planted clusters -----------------------------------------------------------------------------


def permuted(count: int, seed: int, shift: int) -> Samples:
    made = samples(count, seed)
    return Samples(made.inputs, (made.targets + shift) % CLASSES)


@pytest.mark.parametrize("seed", [1, 2])
def test_devices_with_permuted_labels_find_their_cluster(seed: int) -> None:
    parts = [permuted(60, 10 * seed + number, number % 2) for number in range(8)]
    players = Players(parts=parts, trainer=trainer((16,)))
    half = algorithm("ifca", 12, clusters=2)
    state, _ = players.play(half)[-1]
    chosen = [state.params[CHOICES][member.device] for member in players.roster]
    assert chosen in ([0, 1] * 4, [1, 0] * 4)
    tests = half.evaluation(state, players.roster, 1)
    for question, part in zip(tests.questions, parts, strict=True):
        view = replace(players.view(question.device), test=part)
        test = half.eval_job(players.task(tests, question), view)
        found = players.do(test, view)
        assert isinstance(found, Score)
        assert found.accuracy is not None
        assert found.accuracy > 0.7  # one model for both labels of an input has a half at most


# -- the coordinator ------------------------------------------------------------------------------


def test_models_start_from_the_given_weights_in_other_orders() -> None:
    players = Players()
    half, first = algorithm("ifca", clusters=3), players.trainer.model.weights()
    models = half.models(half.start(first, players.roster, 11))
    assert list(models) == ["cluster-0", "cluster-1", "cluster-2"]
    assert bits(models["cluster-0"]) == bits(first)
    for number in (1, 2):
        assert bits(models[model_name(number)]) == bits(redrawn(first, 11, "cluster", number))
    assert bits(models["cluster-1"]) != bits(models["cluster-2"])


def answer_of(device: str, count: int, number: int, delta: float, like: Tensors) -> Answer:
    groups = {
        "delta": Group({name: np.full_like(array, delta) for name, array in like.items()}),
        CHOICE: Group({CHOICE: np.array([number])}),
    }
    return Answer(device, count, groups)


def test_each_model_moves_by_the_mean_of_those_that_chose_it() -> None:
    players, half = Players(), algorithm("ifca", clusters=3)
    state = players.start(half)
    first = state.groups["cluster-0"]
    exchange = asked(players.planned(half, state))
    answers = [
        answer_of("device-00", 5, 0, 0.5, first),
        answer_of("device-01", 9, 2, 0.25, first),
        answer_of("device-02", 3, 2, 1.0, first),  # of six samples, three that were used
    ]
    after = half.merge(state, exchange, answers)
    for number, mean in ((0, 0.5), (1, 0.0), (2, (9 * 0.25 + 3 * 1.0) / 12)):
        for name, array in state.groups[model_name(number)].items():
            moved = after.groups[model_name(number)][name] - array
            np.testing.assert_allclose(moved, mean, atol=1e-6)
    assert after.params[CHOICES] == {"device-00": 0, "device-01": 2, "device-02": 2}
    assert after.params[STEPS] == [1, 0, 1]
    uniform = algorithm("ifca", clusters=3, weighting="uniform").merge(state, exchange, answers)
    moved = uniform.groups["cluster-2"]["out.bias"] - state.groups["cluster-2"]["out.bias"]
    np.testing.assert_allclose(moved, (0.25 + 1.0) / 2, atol=1e-6)


def test_every_model_has_steps_and_memory_of_its_own() -> None:
    """The first step of Adam as Kingma has it moves each value by the learning rate."""
    settings = {"server": "adam", "adam_variant": "kingma", "server_learning_rate": 0.125}
    players, half = Players(), algorithm("ifca", 9, clusters=2, **settings, tau=1e-8)
    state = players.start(half)
    first = state.groups["cluster-0"]
    for number in range(3):
        exchange = asked(players.planned(half, state))
        answers = [answer_of("device-00", 5, number == 2, 0.5, first)]
        before, state = state, half.merge(state, exchange, answers)
    moved = state.groups["cluster-1"]["out.bias"] - before.groups["cluster-1"]["out.bias"]
    np.testing.assert_allclose(moved, 0.125, atol=1e-6)
    assert state.params[STEPS] == [2, 1]
    assert bits(state.groups["memory-0"]) == bits(before.groups["memory-0"])


@pytest.mark.parametrize(("number", "refused"), [(-1, True), (0, False), (1, False), (2, True)])
def test_a_model_that_does_not_exist_cannot_be_chosen(number: int, refused: bool) -> None:
    players, half = Players(), algorithm("ifca", clusters=2)
    exchange = players.planned(half, players.start(half))
    answer = answer_of("device-00", 5, number, 0.0, players.trainer.model.weights())
    reason = half.reject_reason(exchange, answer, players.trainer.model)
    assert reason == (f"it chose model {number} of 2" if refused else "")


def test_the_operator_is_told_when_devices_change_their_cluster() -> None:
    players, half = Players(), algorithm("ifca", clusters=2)
    state = players.start(half)
    exchange = asked(players.planned(half, state))
    first = state.groups["cluster-0"]
    after = half.merge(state, exchange, [answer_of("device-00", 5, 1, 0.0, first)])
    (remark,) = half.remarks(state, exchange, after)
    assert remark.text == "devices by cluster: 0, 1"
    again = half.merge(after, exchange, [answer_of("device-00", 5, 1, 0.0, first)])
    assert half.remarks(after, exchange, again) == ()


def test_the_model_of_most_devices_stands_for_all() -> None:
    players, half = Players(), algorithm("ifca", clusters=2)
    state = players.start(half)
    assert half.weights(state) is state.groups["cluster-0"]
    chosen = {**state.params, CHOICES: {"device-00": 0, "device-01": 1, "device-02": 1}}
    assert half.weights(replace(state, params=chosen)) is state.groups["cluster-1"]


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_without_samples_to_choose_by_the_models_predict_together(loss: str) -> None:
    plan = {"algorithm": {"name": "ifca"}, "training": {"loss": loss}}
    half, players = make(Recipe.model_validate(plan)), Players()
    state, inputs = players.start(half), samples(5, 1).inputs
    predict = ModelPredictions(players.trainer)
    each = [predict(weights, inputs) for weights in half.models(state).values()]
    together = half.predictor(state, predict)(inputs)
    if loss == "cross_entropy":
        each = [np.exp(one) / np.exp(one).sum(axis=1, keepdims=True) for one in each]
        together = np.exp(together)
    np.testing.assert_allclose(together, (each[0] + each[1]) / 2, atol=1e-6)


# -- the device -----------------------------------------------------------------------------------


def job(weights: Tensors, own: Samples | None = None) -> Job:
    return Job(weights, CrossEntropy(), Schedule(batch_size=4), seed=1, samples=own)


def biased(toward: int) -> Tensors:
    weights = trainer().model.weights()
    return {**weights, "out.bias": np.eye(CLASSES, dtype=np.float32)[toward] * 50}


def labelled(label: int) -> Samples:
    made = samples(6, 1)
    return Samples(made.inputs, np.full(6, label))


@pytest.mark.parametrize("label", [0, 1, 2])
def test_the_job_with_the_lowest_loss_is_done(label: int) -> None:
    network, own = trainer(), labelled(label)
    jobs = tuple(job(biased(toward)) for toward in (2, 0, 1))
    done = run_work(network, LowestLossJob(jobs), own)
    assert isinstance(done, Chosen)
    assert done.index == (1, 2, 0)[label]
    assert bits(done.trained) == bits(network.train(jobs[done.index], own))


def test_what_a_job_trains_on_decides_and_the_first_of_equal_ones_is_done() -> None:
    network = trainer()
    brought = tuple(job(biased(toward), labelled(2)) for toward in (0, 2, 2))
    done = run_work(network, LowestLossJob(brought), labelled(0))
    assert isinstance(done, Chosen)
    assert done.index == 1


def test_a_model_without_a_finite_loss_is_not_chosen() -> None:
    broken = {name: np.full_like(array, np.nan) for name, array in biased(0).items()}
    done = run_work(trainer(), LowestLossJob((job(broken), job(biased(1)))), labelled(0))
    assert isinstance(done, Chosen)
    assert done.index == 1


def test_the_choice_can_be_stopped() -> None:
    answers = iter([False, True])
    with pytest.raises(Stopped):
        run_work(
            trainer(),
            LowestLossJob((job(biased(0)), job(biased(1)))),
            labelled(0),
            stop=lambda: next(answers),
        )


def test_a_device_sends_the_change_of_the_model_that_it_chose() -> None:
    players, half = Players(), algorithm("ifca", clusters=3)
    exchange = players.planned(half, players.start(half))
    question = exchange.questions[0]
    task, view = players.task(exchange, question), players.view(question.device)
    work = half.prepare(task, view)
    assert isinstance(work, LowestLossJob)
    assert [bits(each.weights) for each in work.jobs] == [
        bits(exchange.payloads[model_name(number)].arrays) for number in range(3)
    ]
    after = {name: array + 0.25 for name, array in task.groups["cluster-2"].items()}
    answer = half.answer(task, view, Chosen(2, Trained(after, 5, 2, 0.1)))
    assert answer.groups[CHOICE].arrays[CHOICE].tolist() == [2]
    for array in answer.groups["delta"].arrays.values():
        np.testing.assert_allclose(array, 0.25, atol=1e-6)


def test_a_device_chooses_by_training_samples_and_tests_on_those_it_holds_out() -> None:
    players, half = Players(), algorithm("ifca", clusters=3)
    state = players.start(half)
    models = {model_name(number): biased(number) for number in range(3)}
    exchange = half.evaluation(replace(state, groups={**state.groups, **models}), players.roster, 1)
    question = exchange.questions[0]
    view = replace(players.view(question.device), train=labelled(1), test=labelled(2))
    test = half.eval_job(players.task(exchange, question), view)
    assert isinstance(test, PredictorEvalJob)
    found = players.do(test, view)
    assert isinstance(found, Score)
    assert (found.accuracy, found.samples) == (0.0, 6)
    same = replace(view, test=labelled(1))
    found = players.do(half.eval_job(players.task(exchange, question), same), same)
    assert isinstance(found, Score)
    assert found.accuracy == 1.0
