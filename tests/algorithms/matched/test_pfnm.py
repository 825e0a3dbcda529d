"""PFNM: permuted copies, rounds of gathered networks, label counts, refusals and whole runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.averaging.class_shares import LABELS
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.algorithms.matched.growth import bound_remarks
from edgefed.algorithms.matched.matched_layers import LayerMatch
from edgefed.algorithms.matched.pfnm import ASSIGNMENT, INITIAL
from edgefed.algorithms.matched.pfnm_records import PfnmRecords
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.errors import RecipeError
from edgefed.learn.base.types import Array, Job, Schedule, Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.training.trainer import ModelPredictions, Trainer
from edgefed.sharing.policy import Policy
from tests.algorithms.play import Players, algorithm, asked, bits, trainer
from tests.learn.permuted import permuted_perceptron
from tests.run_fixture import CLASSES, SHAPE, samples


def global_trainer(half: CompleteAlgorithm[Any], state: State) -> Trainer:
    section = half.model(state)
    assert section is not None
    return Trainer(build(section, SHAPE, CLASSES, 0), "cpu")


def logits(half: CompleteAlgorithm[Any], state: State, inputs: Array) -> Array:
    return half.predictor(state, ModelPredictions(global_trainer(half, state)))(inputs)


def answer_of(device: str, after: Tensors, before: Tensors, *counts: int) -> Answer:
    groups = {"delta": Group({name: after[name] - before[name] for name in before})}
    if counts:
        groups[LABELS] = Group({LABELS: np.array(counts, np.int64)})
    return Answer(device, sum(counts) or 5, groups)


# -- one round ------------------------------------------------------------------------------------


def test_permuted_copies_of_a_network_become_that_network_and_their_plain_mean_does_not() -> None:
    players = Players(trainer=trainer((12, 10)))
    test, start = samples(200, 5), players.trainer.model.weights()
    job = Job(start, CrossEntropy(), Schedule(epochs=20, batch_size=8), seed=1)
    network = players.trainer.train(job, samples(200, 4)).weights
    rng = np.random.default_rng(3)
    copies = [
        permuted_perceptron(network, rng.permutation(12), rng.permutation(10)) for _ in range(4)
    ]
    predict = ModelPredictions(players.trainer)
    found = {}
    for name in ("pfnm", "fedavg"):
        half = algorithm(name, 1)
        state = players.start(half)
        exchange = players.planned(half, state)
        answers = [
            answer_of(question.device, copy, start)
            for question, copy in zip(exchange.questions, copies, strict=True)
        ]
        after = half.merge(state, asked(exchange), answers)
        merged = logits(half, after, test.inputs) if name == "pfnm" else None
        predicted = predict(half.weights(after), test.inputs) if merged is None else merged
        found[name] = float((predicted.argmax(axis=1) == test.targets).mean())
        if merged is not None:
            own = predict(network, test.inputs)
            np.testing.assert_allclose(merged, own, rtol=1e-5, atol=1e-5)
            (table,) = half.view(after)
            assert [(row.key, *row.cells[:4]) for row in table.rows] == [
                ("fc1", 12, 12, 1.0, 4.0),
                ("fc2", 10, 10, 1.0, 4.0),
            ]
            assert table.round == 1
            assert table.series == {"fc1": 12, "fc2": 10, "devices": 4, "growth": 1.0}
            assert half.remarks(state, exchange, after) == ()
    assert found["pfnm"] > found["fedavg"] + 0.2


def test_the_network_of_a_single_device_is_the_global_one() -> None:
    players = Players(parts=[samples(9, 1)])
    half = algorithm("pfnm", 1)
    state = players.start(half)
    exchange = players.planned(half, state)
    (answer,) = players.answers(half, exchange)
    after = half.merge(state, asked(exchange), [answer])
    atoms = PfnmRecords.of(after).assignment("device-00")["fc1"]
    start, delta = players.trainer.model.weights(), answer.groups["delta"].arrays
    own = {name: start[name] + delta[name] for name in start}
    np.testing.assert_allclose(after.groups["weights"]["fc1.weight"][atoms], own["fc1.weight"])
    np.testing.assert_allclose(after.groups["weights"]["out.bias"], own["out.bias"])


def test_the_maximum_a_posteriori_is_halfway_to_the_prior_with_equal_variances() -> None:
    players = Players(parts=[samples(9, 1)])
    half = algorithm("pfnm", 1, average="map", sigma=1.0, sigma0=1.0)
    state, start = players.start(half), players.trainer.model.weights()
    exchange = players.planned(half, state)
    after = half.merge(state, asked(exchange), [answer_of("device-00", start, start)])
    atoms = PfnmRecords.of(after).assignment("device-00")["fc1"]
    weights = after.groups["weights"]
    np.testing.assert_allclose(weights["fc1.weight"][atoms], start["fc1.weight"] / 2, rtol=1e-6)
    np.testing.assert_allclose(weights["fc1.bias"][atoms], (start["fc1.bias"] + 0.1) / 2, rtol=1e-5)
    np.testing.assert_allclose(weights["out.bias"], (start["out.bias"] + 0.1) / 2, rtol=1e-5)


def test_label_counts_weigh_the_output_layer() -> None:
    """Devices with the same units differ by their shares of the classes."""
    players = Players(parts=[samples(8, 1), samples(4, 2)], trainer=trainer((2,)))
    start = players.trainer.model.weights()
    one = {**start, "out.weight": start["out.weight"] + np.float32(0.25)}
    two = {**start, "out.weight": start["out.weight"] - np.float32(0.25)}
    two["out.bias"] = start["out.bias"] + np.float32(1)
    moved = {}
    for by in ("classes", "samples", "uniform"):
        half = algorithm("pfnm", 1, last_layer=by, sigma=1.0, sigma0=1.0, gamma=1e-9)
        state = players.start(half)
        exchange = players.planned(half, state)
        counts = ((6, 2, 0), (2, 2, 0)) if by == "classes" else ((), ())
        answers = [
            replace(answer_of("device-00", one, start, *counts[0]), samples=8),
            replace(answer_of("device-01", two, start, *counts[1]), samples=4),
        ]
        assert (LABELS in exchange.reply_roles) == (by == "classes")
        after = half.weights(half.merge(state, asked(exchange), answers))
        moved[by] = after["out.bias"] - start["out.bias"]
        means = after["out.weight"].mean(axis=1) - start["out.weight"].mean(axis=1)
        np.testing.assert_allclose(means, 0.25 * (1 - 2 * moved[by]), atol=1e-6)
    np.testing.assert_allclose(moved["classes"], [0.25, 0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(moved["samples"], 1 / 3, atol=1e-6)
    np.testing.assert_allclose(moved["uniform"], 0.5, atol=1e-6)


def test_growth_stops_at_its_bound_and_the_operator_is_told() -> None:
    players = Players(trainer=trainer((4,)))
    rng = np.random.default_rng(1)
    half = algorithm("pfnm", 1, most_growth=1.5, gamma=1e6, sigma=1.0, sigma0=100.0)
    state = players.start(half)
    exchange = players.planned(half, state)
    start = players.trainer.model.weights()
    answers = [
        answer_of(
            question.device,
            {n: w + rng.normal(0, 5, w.shape).astype(w.dtype) for n, w in start.items()},
            start,
        )
        for question in exchange.questions
    ]
    after = half.merge(state, asked(exchange), answers)
    told, warned = half.remarks(state, exchange, after)
    assert told.text == "units of the global network: fc1 6"
    assert not told.warning
    assert "fc1 reached the bound of growth (most_growth = " in warned.text
    assert warned.warning
    assert half.model(after) == ModelSection.model_validate(
        {"name": "mlp", "hidden": [6], "dropout": 0.0}
    )
    global_trainer(half, after).model.check(half.weights(after))


def test_devices_with_nothing_in_common_are_said_once() -> None:
    """Their networks are drawn at random: two units each, so that chance pairs few."""
    players = Players(trainer=trainer((2,)))

    def warnings(rounds: int, **settings: Any) -> list[str]:
        half = algorithm("pfnm", rounds, last_layer="uniform", **settings)
        state, rng, found = players.start(half), np.random.default_rng(1), []
        for _ in range(rounds):
            exchange = players.planned(half, state)
            start = half.weights(state)
            answers = []
            for question in exchange.questions:
                work = players.job(half, exchange, question)
                start = work.weights
                drawn = {n: rng.normal(0, 1, w.shape).astype(w.dtype) for n, w in start.items()}
                answers.append(answer_of(question.device, drawn, start))
            after = half.merge(state, asked(exchange), answers)
            found += [each.text for each in half.remarks(state, exchange, after) if each.warning]
            state = after
        return found

    (once, *_) = warnings(3)
    assert "round 1: fc1: the devices' units have hardly anything in common" in once
    assert "algorithm.sigma" in once
    assert warnings(1, sigma=0.5) == []

    settings = algorithm("pfnm", 1).settings
    before = LayerMatch("fc1", 4, 4, apart=0.72)
    after = (LayerMatch("fc1", 4, 4, apart=0.9), LayerMatch("fc2", 4, 4, apart=0.69))
    assert bound_remarks(settings, 5, after, [before]) == []
    (told,) = bound_remarks(settings, 5, after, [LayerMatch("fc1", 4, 4, apart=0.5)])
    assert told.text.startswith("round 5: fc1: the devices")


# -- rounds ---------------------------------------------------------------------------------------


def test_the_next_start_of_each_device_is_what_it_holds_of_the_global_network() -> None:
    players = Players(trainer=trainer((4, 3)))
    half = algorithm("pfnm", 2, gamma=1e4, sigma=1e-3, sigma0=1.0, mu=0.5)
    state = players.start(half)
    planned = players.planned(half, state)
    state = half.merge(state, asked(planned), players.answers(half, planned))
    weights = state.groups["weights"]
    assert len(weights["fc1.bias"]) > 4, "or gathering would take all units"
    assert len(weights["fc2.bias"]) > 3
    second = players.planned(half, state)
    assert second.model == ModelSection.model_validate(
        {"name": "mlp", "hidden": [4, 3], "dropout": 0.0}
    )
    for question in second.questions:
        work = players.job(half, second, question)
        one, two = (
            state.groups["assignments"][f"{question.device}/{group}"] for group in ("fc1", "fc2")
        )
        assert bits(work.weights) == bits(permuted_perceptron(weights, one, two))
        assert work.objective == Proximal(CrossEntropy(), 0.5)
    atoms = [players.task(second, each).groups[ASSIGNMENT]["fc1"] for each in second.questions]
    assert len({each.tobytes() for each in atoms}) > 1, "or every device would hold the same"


def test_a_round_in_which_nothing_is_learned_changes_nothing() -> None:
    """Two pairs of devices have equal networks, so each atom has two holders."""
    players, rng = Players(trainer=trainer((4,))), np.random.default_rng(1)
    half = algorithm("pfnm", 3, last_layer="uniform", sigma=0.01, sigma0=1.0)
    state, start = players.start(half), players.trainer.model.weights()
    pair = [
        {
            name: rng.standard_normal(array.shape).astype(array.dtype)
            for name, array in start.items()
        }
        for _ in range(2)
    ]
    first = players.planned(half, state)
    answers = [
        answer_of(question.device, pair[number % 2], start)
        for number, question in enumerate(first.questions)
    ]
    state = half.merge(state, asked(first), answers)
    (layer,) = half.view(state)[0].rows
    assert (layer.cells[1], layer.cells[3]) == (8, 2.0)
    second = players.planned(half, state)
    zeros = {name: np.zeros_like(array) for name, array in start.items()}
    still = [Answer(each.device, 3, {"delta": Group(zeros)}) for each in second.questions]
    after = half.merge(state, asked(second), still)
    inputs = samples(6, 1).inputs
    np.testing.assert_allclose(
        logits(half, after, inputs), logits(half, state, inputs), rtol=1e-5, atol=1e-5
    )


def test_a_device_without_an_assignment_starts_from_the_most_held_atoms() -> None:
    weights = trainer((2,)).model.weights()
    first = PfnmRecords.first(weights, None, 1)
    wide = {
        "fc1.weight": np.arange(32, dtype=np.float32).reshape(4, 8),
        "fc1.bias": np.arange(4, dtype=np.float32),
        "out.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
        "out.bias": weights["out.bias"],
    }
    records = replace(
        first,
        weights=wide,
        matched=1,
        counts={"fc1": np.array([1, 3, 3, 2])},
        assignments={"device-00": {"fc1": np.array([3, 0])}},
    )
    state, half, players = records.kept_in(1), algorithm("pfnm", 3), Players(trainer=trainer((2,)))
    planned = players.planned(half, state)
    tasks = {each.device: players.task(planned, each) for each in planned.questions}
    assert tasks["device-00"].groups[ASSIGNMENT]["fc1"].tolist() == [3, 0]
    for device in ("device-01", "device-02", "device-03"):
        assert tasks[device].groups[ASSIGNMENT]["fc1"].tolist() == [1, 2]
    assert set(planned.payloads) == {"weights", "assignment", "assignment-0"}
    work = half.prepare(tasks["device-01"], players.view("device-01"))
    assert isinstance(work, Job)
    assert work.weights["fc1.bias"].tolist() == [1.0, 2.0]
    after = half.merge(state, asked(planned), players.answers(half, planned)[1:3])
    assert sorted(PfnmRecords.of(after).assignments) == ["device-01", "device-02"]


def test_independent_initial_weights_are_the_devices_own_in_the_first_round_only() -> None:
    players, half = Players(), algorithm("pfnm", 2, initial="independent")
    state = players.start(half)
    planned = players.planned(half, state)
    starts = []
    for question in planned.questions:
        work = players.job(half, planned, question)
        assert work.objective == CrossEntropy(), "no pull to weights that were never matched"
        starts.append(work.weights)
    common = players.trainer.model.weights()
    assert len({each["fc1.weight"].tobytes() for each in (*starts, common)}) == 5
    zeros = {name: np.zeros_like(array) for name, array in common.items()}
    still = [Answer(each.device, 3, {"delta": Group(zeros)}) for each in planned.questions]
    unmoved = half.merge(state, asked(planned), still)
    np.testing.assert_allclose(
        unmoved.groups["weights"]["out.bias"],
        np.mean([each["out.bias"] for each in starts], axis=0),
        rtol=1e-6,
        err_msg="the coordinator knows where each device started",
    )
    for question in players.planned(half, unmoved).questions:
        assert INITIAL not in question.params


# -- privacy, refusals ----------------------------------------------------------------------------


def test_label_counts_are_told_with_the_owners_leave_only() -> None:
    for policy, told in ((Policy(), True), (Policy(share_labels=False), False)):
        players, half = Players(policy=policy), algorithm("pfnm")
        planned = players.planned(half, players.start(half))
        assert planned.reply_roles[LABELS].optional
        for question, answer in zip(planned.questions, players.answers(half, planned), strict=True):
            assert (LABELS in answer.groups) == told
            assert len(answer.ledger) == told
            if told:
                counts = answer.groups[LABELS].arrays[LABELS]
                own = np.bincount(players.part(question.device).targets, minlength=CLASSES)
                assert counts.tolist() == own.tolist()


def test_squared_error_has_no_label_counts() -> None:
    recipe = {"algorithm": {"name": "pfnm"}, "training": {"loss": "squared_error"}}
    half, players = make(Recipe.model_validate(recipe)), Players()
    planned = players.planned(half, players.start(half))
    assert set(planned.reply_roles) == {"delta"}


@pytest.mark.parametrize(
    ("section", "why"),
    [({"name": "lenet5"}, "another one"), ({"name": "mlp", "hidden": []}, "has none")],
)
def test_other_models_are_refused(section: dict[str, Any], why: str) -> None:
    model = build(ModelSection.model_validate(section), (1, 28, 28), CLASSES, 1)
    with pytest.raises(RecipeError, match=why) as caught:
        algorithm("pfnm").check_model(model)
    assert caught.value.code == "algorithm.model"
    with pytest.raises(RecipeError):
        algorithm("pfnm").check_model(Model(model.module, (1, 28, 28), CLASSES))


def test_settings_of_the_model_stay_when_its_width_changes() -> None:
    section = ModelSection.model_validate({"name": "mlp", "hidden": [3], "dropout": 0.25})
    players = Players(trainer=Trainer(build(section, SHAPE, CLASSES, 1), "cpu"))
    half = algorithm("pfnm")
    half.check_model(players.trainer.model)
    state = players.start(half)
    stored = replace(state, params=json.loads(json.dumps(dict(state.params))))
    found = algorithm("pfnm").model(stored)
    assert found is not None
    assert found.settings() == {"hidden": [3], "dropout": 0.25}


# -- whole runs -----------------------------------------------------------------------------------
