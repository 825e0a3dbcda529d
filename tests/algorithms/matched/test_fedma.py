"""FedMA: steps, what devices get and keep, and what a round comes to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.averaging.class_shares import LABELS
from edgefed.algorithms.composed.label_audit import disclosures
from edgefed.algorithms.interface.device_side import EvalJob
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.interface.member import Member
from edgefed.algorithms.matched.fedma_device_half import LOCAL
from edgefed.algorithms.matched.fedma_records import LAYER, MatchedNetwork, atoms_of, widths_of
from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import RecipeError
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Tensors
from edgefed.learn.base.unit_moves import gather, scatter
from edgefed.learn.modeling.model_building import build
from edgefed.learn.modeling.network_groups import permutation_groups
from edgefed.learn.training.trainer import Trainer
from edgefed.sharing.label_leakage import frequencies_after_steps
from edgefed.sharing.policy import Policy
from tests.algorithms.matching_play import Fleet, half, images
from tests.algorithms.play import bits, planned_for

CNN = ModelSection.model_validate({"name": "cnn", "width": 4, "hidden": 6})
STEPS = ["conv1", "conv2", "fc1", "fc2"]


def fleet(devices: int = 3, **more: Any) -> Fleet:
    return Fleet.of(CNN, [images(12, seed) for seed in range(devices)], **more)


def permuted(weights: Tensors, section: ModelSection, seed: int) -> Tensors:
    """Return a network that computes the same, its units in another order."""
    groups = permutation_groups(section, (1, 8, 8), 3)
    rng = np.random.default_rng(seed)
    atoms = {group: rng.permutation(width) for group, width in groups.widths.items()}
    return scatter(weights, groups, groups, atoms)


@pytest.fixture(scope="module")
def trained() -> Tensors:
    """Return a network that has learnt its task."""
    from edgefed.algorithms.averaging.training import loss_of
    from edgefed.config.recipes.training_section import TrainingSection
    from edgefed.learn.base.types import Job, Schedule

    trainer = Trainer(build(CNN, (1, 8, 8), 3, 1), "cpu")
    schedule = Schedule(epochs=12, batch_size=8, learning_rate=0.1)
    job = Job(trainer.model.weights(), loss_of(TrainingSection()), schedule, 1)
    weights = trainer.train(job, images(200, 9)).weights
    assert trainer.evaluate(weights, images(200, 10)).accuracy == 1.0
    return weights


# -- one round without training -------------------------------------------------------------------


def test_permuted_copies_are_matched_to_the_network_that_they_are_copies_of(
    trained: Tensors,
) -> None:
    copies = {f"device-{seed:02d}": permuted(trained, CNN, seed) for seed in range(3)}
    algorithm, devices = half(retrain_epochs=0, layer_codec="fp32"), fleet(given=copies)
    [(state, exchange, _)] = devices.exchanges(algorithm)
    assert (exchange.name, exchange.preparatory) == ("fit", False)
    merged = algorithm.weights(state)
    tests, trainer = images(200, 10), Trainer(devices.model(algorithm.model(state)), "cpu")
    first = next(iter(trained))
    assert merged[first].shape == trained[first].shape
    np.testing.assert_allclose(
        trainer.predict(merged, tests.inputs), trainer.predict(trained, tests.inputs), atol=2e-5
    )
    average = {name: np.mean([each[name] for each in copies.values()], axis=0) for name in merged}
    score = trainer.evaluate({k: each.astype(np.float32) for k, each in average.items()}, tests)
    assert score.accuracy is not None
    assert score.accuracy < 0.8


# -- the steps of a round -------------------------------------------------------------------------


def test_a_round_has_an_exchange_for_each_layer() -> None:
    algorithm, devices = half(rounds=2, average="map"), fleet()
    history = devices.exchanges(algorithm)
    assert [exchange.round for _, exchange, _ in history] == [1] * 4 + [2] * 4
    assert [exchange.preparatory for _, exchange, _ in history] == [True, True, True, False] * 2
    names = [list(exchange.reply_roles[LAYER].tensors or {}) for _, exchange, _ in history]
    assert names[:4] == [[f"{step}.weight", f"{step}.bias"] for step in STEPS]


def test_devices_freeze_what_is_matched_and_train_the_rest() -> None:
    algorithm, devices = half(training={"epochs": 2}, retrain_epochs=3, last_epochs=5), fleet(1)
    devices.exchanges(algorithm)
    frozen = [sorted({name.split(".")[0] for name in job.frozen}) for _, job in devices.jobs]
    assert frozen == [[], ["conv1"], ["conv1", "conv2"], ["conv1", "conv2", "fc1"]]
    assert [job.schedule.epochs for _, job in devices.jobs] == [2, 3, 3, 5]


def test_steps_draw_from_seeds_of_their_own() -> None:
    devices = fleet(1)
    devices.exchanges(half())
    assert len({job.seed for _, job in devices.jobs}) == 4


def test_each_device_goes_on_with_the_function_that_it_had(trained: Tensors) -> None:
    """Matched layers below and scattered ones above compute the same, if nothing was trained."""
    copies = {f"device-{seed:02d}": permuted(trained, CNN, seed) for seed in range(3)}
    devices = fleet(given=copies)
    algorithm = half(layer_codec="fp32")
    state = devices.start(algorithm)
    first = devices.planned(algorithm, state)
    answers = [devices.answer(algorithm, first, each) for each in first.questions]
    state = algorithm.merge(state, first, answers)
    second = devices.planned(algorithm, state)
    inputs = images(20, 4).inputs
    for question in second.questions:
        task = devices.task(second, question)
        view = devices.view(question.device, second.model)
        job = algorithm.prepare(task, view)
        found = Trainer(view.model, "cpu").predict(job.weights, inputs)  # type: ignore[union-attr]
        own = Trainer(devices.model(), "cpu").predict(copies[question.device], inputs)
        np.testing.assert_allclose(found, own, atol=2e-5)


def test_the_next_round_starts_from_the_devices_part_of_the_global_model() -> None:
    algorithm, devices = half(rounds=2, sigma=1e-4, sigma0=1.0, gamma=50.0), fleet()
    history = devices.exchanges(algorithm, most=4)
    state = history[-1][0]
    network = MatchedNetwork.of(state)
    wide = network.local.resized(widths_of(state.groups["counts"]))
    assert wide.widths != network.local.widths, "the test needs a model that grew"
    devices.jobs.clear()
    devices.exchanges(algorithm, state, most=1)
    for device, job in devices.jobs:
        atoms = atoms_of(state, "atoms", device)
        own = gather(algorithm.weights(state), network.local, wide, atoms)
        assert all(np.array_equal(job.weights[name], own[name]) for name in own)


def test_devices_may_begin_with_weights_of_their_own() -> None:
    devices = fleet(2)
    devices.exchanges(half(initial="independent"), most=1)
    one, other = (job.weights["fc1.weight"] for _, job in devices.jobs)
    assert not np.array_equal(one, other)
    assert np.array_equal(np.sort(one.ravel()), np.sort(other.ravel()))


def test_no_layer_is_sent_under_two_names() -> None:
    history = fleet().exchanges(half(rounds=2))
    layers: dict[bytes, set[str]] = {}
    for _, exchange, _ in history:
        for name, payload in exchange.payloads.items():
            if name.startswith(LAYER):
                content = b"".join(each.tobytes() for each in payload.arrays.values())
                layers.setdefault(content, set()).add(name)
    assert all(len(names) == 1 for names in layers.values())


def test_the_last_rounds_layers_retire_when_the_next_round_is_under_way() -> None:
    history = fleet().exchanges(half(rounds=2))
    retired = [exchange.retired for _, exchange, _ in history]
    assert not retired[0]
    assert not retired[4]
    sent = {name for name in history[4][1].payloads if name.startswith(LAYER)}
    assert sent <= retired[5]
    assert not sent & history[5][1].payloads.keys()


def test_a_unit_that_one_device_has_keeps_its_weights() -> None:
    devices = fleet(2)
    algorithm = half(sigma=1e-4, sigma0=1.0, gamma=1e6, layer_codec="fp32")
    [(state, _, answers)] = devices.exchanges(algorithm, most=1)
    counts, found = state.groups["new-counts"]["conv1"], state.groups["matched"]
    assert 1 in counts
    for answer in answers:
        sent = answer.groups[LAYER].arrays
        for unit, atom in enumerate(atoms_of(state, "new-atoms", answer.device)["conv1"]):
            for name in sent:
                same = np.array_equal(found[name][atom], sent[name][unit])
                assert same == (counts[atom] == 1), (name, unit)


# -- the output layer -----------------------------------------------------------------------------


def labelled(labels: list[int], seed: int) -> Any:
    made = images(len(labels), seed)
    return replace(made, targets=np.array(labels))


@pytest.mark.parametrize(
    ("settings", "policy", "expected"),
    [
        ({}, Policy(), [[0.75, 0.0, 0.5], [0.25, 1.0, 0.5]]),
        ({}, Policy(share_labels=False), [[0.4] * 3, [0.6] * 3]),
        ({"last_layer": "samples"}, Policy(), [[0.4] * 3, [0.6] * 3]),
        ({"last_layer": "uniform"}, Policy(), [[0.5] * 3, [0.5] * 3]),
    ],
)
def test_the_output_layer_is_averaged_by_classes(
    settings: dict[str, Any], policy: Policy, expected: list[list[float]]
) -> None:
    parts = [labelled([0, 0, 0, 2], 1), labelled([0, 1, 1, 1, 1, 2], 2)]
    devices = Fleet.of(CNN, parts, policy=policy)
    history = devices.exchanges(half(layer_codec="fp32", **settings))
    state, exchange, answers = history[-1]
    sent = [answer.groups[LAYER].arrays["fc2.weight"].astype(np.float64) for answer in answers]
    wanted = sum(
        np.array(shares)[:, None] * each for shares, each in zip(expected, sent, strict=True)
    )
    np.testing.assert_allclose(state.groups["weights"]["fc2.weight"], wanted, rtol=1e-6)
    told = policy.share_labels and not settings
    assert all((LABELS in answer.groups) == told for answer in answers)
    assert all(bool(answer.ledger) == told for answer in answers)
    assert (LABELS in exchange.reply_roles) == (not settings)


@pytest.mark.parametrize(("average", "is_mean"), [("all", True), ("matched", False)])
def test_all_devices_may_count_in_every_weight_of_a_matched_layer(
    average: str, is_mean: bool
) -> None:
    section = ModelSection.model_validate({"name": "lstm", "embedding": 2, "hidden": 3})
    tokens = Samples(np.zeros((4, 5), np.int64), np.array([0, 1, 2, 0]))
    given = {f"device-{seed:02d}": build(section, (5,), 3, seed).weights() for seed in range(2)}
    devices = Fleet.of(section, [tokens, tokens], given=given)
    settings: dict[str, Any] = {"retrain_epochs": 0, "sigma": 1e-6, "sigma0": 1.0, "gamma": 50.0}
    algorithm = half(average=average, layer_codec="fp32", **settings)
    merged = algorithm.weights(devices.exchanges(algorithm)[-1][0])
    for name in ("lstm.bias_ih_l0", "lstm.bias_hh_l0", "lstm.weight_hh_l0"):
        mean = sum(float(each[name].sum()) for each in given.values()) / 2
        assert (merged[name].sum() == pytest.approx(mean, abs=1e-5)) == is_mean


def test_an_audit_looks_at_the_change_of_the_output_layer() -> None:
    algorithm, devices = half(layer_codec="fp32"), fleet()
    history = devices.exchanges(algorithm)
    state, (_, _, answers) = history[-2][0], history[-1]
    start = devices.model().weights()["fc2.bias"]
    for answer in answers:
        [found] = disclosures(answer, state, 1, algorithm.training, "fc2.bias")
        change = answer.groups[LAYER].arrays["fc2.bias"] - start
        np.testing.assert_allclose(found.shares, frequencies_after_steps(change))
        assert not found.determined
    assert not list(disclosures(history[0][2][0], state, 1, algorithm.training, "fc2.bias"))


# -- the last complete model ----------------------------------------------------------------------


def test_devices_test_the_last_complete_model_while_a_round_is_under_way() -> None:
    algorithm, devices = half(rounds=2, sigma=1e-4, sigma0=1.0, gamma=50.0), fleet()
    complete = devices.exchanges(algorithm, most=4)[-1][0]
    wanted = algorithm.weights(complete)
    under_way = devices.exchanges(algorithm, complete, most=2)[-1][0]
    for state in (complete, under_way):
        exchange = algorithm.evaluation(state, devices.roster, 1)
        for question in exchange.questions:
            view = devices.view(question.device, algorithm.model(state))
            test = algorithm.eval_job(devices.task(exchange, question), view)
            assert isinstance(test, EvalJob)
            assert all(np.array_equal(test.weights[name], wanted[name]) for name in wanted)


# -- devices that come and go ---------------------------------------------------------------------


def test_a_device_that_misses_a_layer_is_left_out_until_the_next_round() -> None:
    algorithm = half(rounds=2)
    devices = fleet(present=lambda number, device: (number, device) != (1, "device-01"))
    history = devices.exchanges(algorithm)
    asked = [[question.device for question in exchange.questions] for _, exchange, _ in history]
    everybody, others = ["device-00", "device-01", "device-02"], ["device-00", "device-02"]
    assert asked == [everybody, everybody, others, others] + [everybody] * 4
    state, exchange, _ = history[1]
    [remark] = algorithm.remarks(history[0][0], exchange, state)
    assert remark.warning
    assert "1 device is left out until the next round" in remark.text


def test_a_device_that_is_gone_is_told_as_left_out() -> None:
    algorithm, devices = half(), fleet()
    before = devices.exchanges(algorithm, most=1)[-1][0]
    there = planned_for(algorithm, before, devices.roster[:2])
    answers = [devices.answer(algorithm, there, each) for each in there.questions]
    after = algorithm.merge(before, there, answers)
    [remark] = algorithm.remarks(before, there, after)
    assert "1 device is left out" in remark.text


def test_payloads_of_devices_that_left_are_not_kept_under_names_of_their_own() -> None:
    algorithm, devices = half(rounds=2), fleet()
    state = devices.start(algorithm)
    names = []
    for member in devices.roster:
        planned = planned_for(algorithm, state, (member,))
        names.append(planned.payloads.keys())
    assert names[0] == names[1] == names[2]


def test_a_round_begins_again_with_others_when_too_few_of_its_devices_are_there() -> None:
    algorithm, parts = half(), fleet(6).parts
    old, new = Fleet.of(CNN, parts[:3]), Fleet.of(CNN, parts)
    begun = old.start(algorithm)
    first = old.exchanges(algorithm, begun, most=2)
    stuck, others = first[-1][0], new.roster[2:]

    def step(roster: tuple[Member, ...]) -> tuple[Exchange, int]:
        planned = planned_for(algorithm, stuck, roster)
        return planned, planned.questions[0].params["step"]

    assert step(others[:1])[1] == 2, "alone, it waits for the others of its round"
    assert step(new.roster[1:])[1] == 2, "two of three are enough"
    again, number = step(others)
    assert number == 0
    assert [each.device for each in again.questions] == [each.device for each in others]
    assert {name for name in first[1][1].payloads if name.startswith(LAYER)} <= {
        *again.retired,
        *again.payloads,
    }
    answers = [new.answer(algorithm, again, each) for each in again.questions]
    merged = algorithm.merge(stuck, again, answers)
    anew = algorithm.merge(begun, again, answers)
    assert bits(merged.groups) == bits(anew.groups)
    assert merged.params["devices"] == anew.params["devices"]
    assert (merged.round, merged.params["step"]) == (0, 1)
    [remark] = algorithm.remarks(stuck, again, merged)
    assert "begins again with others" in remark.text


def test_a_new_device_begins_with_the_atoms_that_most_have() -> None:
    algorithm = half(rounds=2, sigma=1e-4, sigma0=1.0, gamma=50.0)
    devices = fleet()
    state = devices.exchanges(algorithm, most=4)[-1][0]
    more = Fleet.of(CNN, [*devices.parts, images(12, 7)])
    more.exchanges(algorithm, state, most=1)
    job = dict(more.jobs)["device-03"]
    counts = state.groups["counts"]
    assert len(counts["fc1"]) > 6
    best = np.sort(np.argsort(-counts["fc1"], kind="stable")[:6])
    assert np.array_equal(job.weights["fc1.bias"], algorithm.weights(state)["fc1.bias"][best])


def test_a_step_that_is_asked_again_is_answered_from_what_was_trained() -> None:
    algorithm, devices = half(), fleet()
    history = devices.exchanges(algorithm, most=2)
    state, again = history[0][0], history[1][1]
    before = {device: private[LOCAL] for device, private in devices.private.items()}
    first = history[1][2]
    devices.jobs.clear()
    answers = [devices.answer(algorithm, again, each) for each in again.questions]
    assert not devices.jobs
    for one, other in zip(first, answers, strict=True):
        mine, yours = one.groups[LAYER].arrays, other.groups[LAYER].arrays
        assert all(np.array_equal(mine[name], yours[name]) for name in mine)
        assert (one.samples, one.metrics) == (other.samples, other.metrics)
    assert all(devices.private[device][LOCAL] is before[device] for device in before)
    assert algorithm.merge(state, again, answers).params["step"] == 2


# -- what it refuses ------------------------------------------------------------------------------


def test_a_model_of_ones_own_is_refused() -> None:
    model = build(CNN, (1, 8, 8), 3, 1)
    model.section = ModelSection.model_validate({"name": "tests.learn.own_models:plain"})
    with pytest.raises(RecipeError, match="cannot be matched") as raised:
        half().check_model(model)
    assert raised.value.code == "model.groups"


@pytest.mark.parametrize(
    ("section", "settings", "reason"),
    [
        ({"name": "mlp", "hidden": []}, {}, "has no units to match"),
        ({"name": "cnn"}, {"quadratic": True}, "has no recurrent weights"),
    ],
)
def test_a_model_with_nothing_to_match_is_refused(
    section: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    model = build(ModelSection.model_validate(section), (1, 8, 8), 3, 1)
    with pytest.raises(RecipeError, match=reason) as raised:
        half(**settings).check_model(model)
    assert raised.value.code == "algorithm.model"
