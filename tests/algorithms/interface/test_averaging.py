"""FedAvg, FedProx and FedOpt, compared with hand-computed numbers and with each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from edgefed.algorithms.averaging.fedavg import MOST_SAMPLES
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView
from edgefed.algorithms.interface.exchange import Exchange, Question, ReplyRole
from edgefed.algorithms.interface.member import Member
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Job, Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.sharing.policy import ANYTHING
from edgefed.wire.tensors import TensorSpec
from tests.algorithms.play import Players, algorithm, bits

START = {"out.weight": np.zeros((2, 1), np.float32), "out.bias": np.zeros(2, np.float32)}


def full_batch(name: str, **settings: Any) -> CompleteAlgorithm[Any]:
    """Return an algorithm whose devices take one step of size 1 on all that they have."""
    training = {"batch_size": 64, "learning_rate": 1.0}
    values = {"algorithm": {"name": name, **settings}, "training": training}
    return make(Recipe.model_validate(values))


def one_label(label: int, count: int) -> Samples:
    """Return ``count`` samples x = 2 with one label."""
    return Samples(np.full((count, 1), 2, np.float32), np.full(count, label, np.int64))


def fit(half: CompleteAlgorithm[Any], device: str, train: Samples) -> Answer:
    model = build(ModelSection.model_validate({"name": "mlp", "hidden": []}), (1,), 2, 0)
    task = DeviceTask("fit", 1, device, 1, {"weights": START}, {})
    view = DeviceView(train, train, {}, ANYTHING, model)
    job = half.prepare(task, view)
    assert isinstance(job, Job)
    return half.answer(task, view, Trainer(model, "cpu").train(job, train))


def exchange(*samples: int) -> Exchange:
    questions = tuple(Question(f"device-{k}", count) for k, count in enumerate(samples))
    return Exchange("fit", 1, questions, {}, len(samples), 1, 1.0)


def state(weights: Tensors = START) -> State:
    return State(0, {"weights": weights, "memory": {}})


def test_two_devices_by_hand() -> None:
    """From zeros both labels are at p = 1/2, and one step of size 1 on x = 2 gives, for label 0,

    delta W = -(p - y) x = (1, -1), delta b = (1/2, -1/2), and the opposite for label 1. Weighted
    1 : 3, the mean is (1 - 3) / 4 = -1/2 of the first.
    """
    half = full_batch("fedavg")
    answers = [fit(half, "device-0", one_label(0, 1)), fit(half, "device-1", one_label(1, 3))]
    assert answers[0].groups["delta"].arrays["out.weight"].tolist() == [[1.0], [-1.0]]
    assert answers[0].groups["delta"].arrays["out.bias"].tolist() == [0.5, -0.5]
    assert answers[1].groups["delta"].arrays["out.weight"].tolist() == [[-1.0], [1.0]]
    assert [answer.samples for answer in answers] == [1, 3]
    assert answers[0].metrics == {"loss": pytest.approx(np.log(2)), "steps": 1.0}
    after = half.merge(state(), exchange(1, 3), answers)
    assert after.groups["weights"]["out.weight"].tolist() == [[-0.5], [0.5]]
    assert after.groups["weights"]["out.bias"].tolist() == [-0.25, 0.25]
    assert after.round == 1


def test_uniform_weighting_counts_heads() -> None:
    half = full_batch("fedavg", weighting="uniform")
    answers = [fit(half, "device-0", one_label(0, 1)), fit(half, "device-1", one_label(1, 3))]
    after = half.merge(state(), exchange(1, 3), answers)
    assert after.groups["weights"]["out.weight"].tolist() == [[0.0], [0.0]]


def delta(device: int, samples: int, value: float) -> Answer:
    arrays = {name: np.full_like(array, value) for name, array in START.items()}
    return Answer(f"device-{device}", samples, {"delta": Group(arrays)})


def bias(half: CompleteAlgorithm[Any], asked: Exchange, *answers: Answer) -> float:
    return float(half.merge(state(), asked, answers).groups["weights"]["out.bias"][0])


def test_a_device_weighs_no_more_than_it_announced() -> None:
    half = full_batch("fedavg")
    honest = bias(half, exchange(1, 3), delta(0, 1, 1.0), delta(1, 3, 0.0))
    assert honest == 0.25
    boasting = bias(half, exchange(1, 3), delta(0, 2**50, 1.0), delta(1, 3, 0.0))
    assert boasting == honest


def test_a_device_may_weigh_less_than_it_announced() -> None:
    half = full_batch("fedavg")
    assert bias(half, exchange(5, 3), delta(0, 1, 1.0), delta(1, 3, 0.0)) == 0.25


def test_absurd_announcements_do_not_end_the_run() -> None:
    half = full_batch("fedavg")
    answers = (delta(0, 2**50, 1.0), delta(1, MOST_SAMPLES, 0.0))
    assert bias(half, exchange(2**53, MOST_SAMPLES), *answers) == 0.5


def test_fedprox_stays_nearer_to_the_start() -> None:
    def moved(mu: float) -> float:
        players = Players()
        half = algorithm("fedprox", 1, mu=mu)
        training = half.training.model_copy(update={"epochs": 10})
        half = type(half)(half.settings, training, half.rounds)
        after = half.weights(players.play(half)[-1][0])
        before = players.trainer.model.weights()
        return sum(float(np.abs(after[name] - before[name]).sum()) for name in before)

    assert moved(0.0) > moved(1.0) > moved(5.0) > 0


def test_one_proximal_step_from_the_start_is_a_plain_one() -> None:
    """The term's gradient mu (w - w_t) is zero at w = w_t."""
    near = fit(full_batch("fedprox", mu=1.0), "device-0", one_label(0, 1))
    plain = fit(full_batch("fedavg"), "device-0", one_label(0, 1))
    assert bits(near.groups) == bits(plain.groups)


def test_a_server_rate_scales_the_step() -> None:
    half = full_batch("fedavg", server_learning_rate=0.5)
    assert bias(half, exchange(1), delta(0, 1, 1.0)) == 0.5


def test_momentum_is_remembered_from_round_to_round() -> None:
    """With b1 = 1/2: m = 1, w = 1; then m = 1/2 + 1 = 3/2, w = 5/2."""
    half = full_batch("fedopt", server="momentum", server_learning_rate=1.0, beta1=0.5)
    one = half.merge(state(), exchange(1), [delta(0, 1, 1.0)])
    two = half.merge(one, exchange(1), [delta(0, 1, 1.0)])
    assert one.groups["weights"]["out.bias"].tolist() == [1.0, 1.0]
    assert two.groups["weights"]["out.bias"].tolist() == [2.5, 2.5]


def test_adam_by_hand() -> None:
    """With b1 = b2 = 1/2, tau = 1, rate 1 and D = 7: m = 7/2, v = 1/2 · 1 + 1/2 · 49 = 25,

    w = m / (sqrt(v) + tau) = 7/12.
    """
    half = full_batch("fedopt", server_learning_rate=1.0, beta1=0.5, beta2=0.5, tau=1.0)
    assert bias(half, exchange(1), delta(0, 1, 7.0)) == pytest.approx(7 / 12)


def test_kingmas_adam_by_hand() -> None:
    """With b1 = 1/2, b2 = 3/4, tau = 1 and D = 1 in both rounds the corrected moments are 1:

    m = 1/2 over 1 - 1/2, then 3/4 over 1 - 1/4; v = 1/4 over 1 - 3/4, then 7/16 over 1 - 9/16.
    Each round adds 1 / (1 + 1).
    """
    settings = {"beta1": 0.5, "beta2": 0.75, "tau": 1.0, "adam_variant": "kingma"}
    half, reached = full_batch("fedopt", server_learning_rate=1.0, **settings), state()
    for number in (1, 2):
        reached = half.merge(reached, replace(exchange(1), round=number), [delta(0, 1, 1.0)])
        assert reached.groups["weights"]["out.bias"].tolist() == pytest.approx([number / 2] * 2)


def test_generalised_fedavg_is_torchs_adam_on_the_mean_of_what_devices_moved_away() -> None:
    """w <- w - Adam(sum_s p_s (w - w_s)), with Adam as its paper and torch have it."""
    adam = {"server": "adam", "adam_variant": "kingma", "beta2": 0.999, "tau": 1e-8}
    half, players = algorithm("fedavg", 4, server_learning_rate=0.01, **adam), Players()
    reached = players.start(half)
    wanted = {k: torch.tensor(w, dtype=torch.float64) for k, w in reached.groups["weights"].items()}
    optimizer = torch.optim.Adam(wanted.values(), lr=0.01)
    for number in range(4):
        planned = players.planned(half, reached, number)
        answers = players.answers(half, planned)
        total = sum(answer.samples for answer in answers)
        for name, weight in wanted.items():
            moved = sum(each.samples * -each.groups["delta"].arrays[name] for each in answers)
            weight.grad = torch.tensor(moved / total, dtype=torch.float64)
        optimizer.step()
        reached = half.merge(reached, planned, answers)
        for name, weight in wanted.items():
            np.testing.assert_allclose(reached.groups["weights"][name], weight, atol=1e-6)


def test_a_round_without_answers_keeps_the_server_memory_and_the_params() -> None:
    half = full_batch("fedopt", server="momentum")
    before = replace(state(), params={"kept": 1})
    one = half.merge(before, exchange(1), [delta(0, 1, 1.0)])
    two = half.merge(one, exchange(1), [])
    assert bits(two.groups) == bits(one.groups)
    assert one.groups["memory"]
    assert two.params == one.params == {"kept": 1}


def test_a_delta_is_of_the_weights_kind_and_comes_of_training() -> None:
    weights = {"out.weight": TensorSpec("float32", (2, 1)), "out.bias": TensorSpec("float32", (2,))}
    planned = full_batch("fedavg").plan(state(), (Member("device-0", 1),), 1)
    assert isinstance(planned, Exchange)
    assert planned.reply_roles == {"delta": ReplyRole(weights, 64.0, trained=True)}


@pytest.mark.parametrize("server", ["momentum", "adam", "yogi", "adagrad"])
def test_running_statistics_are_averaged_whatever_the_server_does(server: str) -> None:
    """From variance 2, devices with 1 and 3 samples and deltas -1 and 1: 2 + (-1 + 3) / 4 = 5/2."""
    before: Tensors = {
        "block.norm.weight": np.ones(1, np.float32),
        "block.norm.running_var": np.full(1, 2, np.float32),
        "block.norm.num_batches_tracked": np.array(4, np.int64),
    }

    def answer(number: int, count: int, change: float) -> Answer:
        arrays: Tensors = {
            "block.norm.weight": np.full(1, change, np.float32),
            "block.norm.running_var": np.full(1, change, np.float32),
            "block.norm.num_batches_tracked": np.array(1, np.int64),
        }
        return Answer(f"device-{number}", count, {"delta": Group(arrays)})

    half = full_batch("fedopt", server=server, server_learning_rate=0.5)
    after = half.merge(state(before), exchange(1, 3), [answer(0, 1, -1.0), answer(1, 3, 1.0)])
    assert after.groups["weights"]["block.norm.running_var"].tolist() == [2.5]
    assert int(after.groups["weights"]["block.norm.num_batches_tracked"]) == 5
    assert not any("running" in name for name in after.groups["memory"])
