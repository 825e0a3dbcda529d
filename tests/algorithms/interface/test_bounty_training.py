"""Training on completed samples: what is trained on, what an answer weighs, what losses count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgefed.algorithms.averaged_data.mean_exchange import MEANS
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.device_side import EvalJob
from edgefed.algorithms.interface.exchange import Exchange, Question
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Job, Trained
from edgefed.learn.objectives.label_counts import COUNTS
from edgefed.learn.training.trainer import Trainer
from edgefed.worker.run_work import run_work
from tests.algorithms.bounty_play import (
    LABELS,
    Device,
    LabelPlayers,
    images,
    one_label_each,
    only,
    recipe,
)
from tests.algorithms.play import bits


def question_of(exchange: Exchange, device: str) -> Question:
    (found,) = (each for each in exchange.questions if each.device == device)
    return found


def trained(players: LabelPlayers, device: str) -> tuple[Job, Answer]:
    """Return a device's first training job and its answer."""
    state = players.to_training()
    exchange = players.planned(state)
    task, view = players.task(exchange, question_of(exchange, device)), players.view(device)
    job = players.device_half.prepare(task, view)
    assert isinstance(job, Job)
    result = run_work(Trainer(players.model, "cpu"), job, view.train)
    return job, players.device_half.answer(task, view, result)


def test_an_answer_weighs_the_real_samples() -> None:
    players = one_label_each()
    job, answer = trained(players, "device-00")
    assert job.samples is not None
    assert (len(job.samples), answer.samples) == (8 * LABELS, 8)
    assert answer.metrics["steps"] == 8


def test_a_device_that_lacks_nothing_trains_as_without_supplements() -> None:
    parts = {"device-00": Device(images([3, 3, 3, 3]))}
    job, answer = trained(LabelPlayers(parts), "device-00")
    plain_job, plain = trained(LabelPlayers(parts, recipe(supplement=0)), "device-00")
    assert job.samples is plain_job.samples is None
    assert bits(answer.groups["delta"]) == bits(plain.groups["delta"])
    assert answer.samples == plain.samples == 12


def test_without_the_table_nothing_is_asked() -> None:
    players = one_label_each(supplement=0)
    assert players.half.parts() == ()
    exchange = players.planned(players.start())
    assert exchange.name == "fit"
    assert all(not question.params for question in exchange.questions)


@pytest.mark.parametrize("count", [False, True])
@pytest.mark.parametrize("name", ["fedlc", "fedrs"])
def test_losses_count_supplements_only_when_told_to(name: str, count: bool) -> None:
    players = one_label_each(name=name, count_supplements=count)
    job, answer = trained(players, "device-01")
    assert job.samples is not None
    assert len(job.samples) == 8 * LABELS
    assert job.extra[COUNTS].tolist() == ([8] * LABELS if count else [0, 8, 0, 0])
    assert answer.samples == 8


def test_losses_without_counts_get_none() -> None:
    job, _ = trained(one_label_each(count_supplements=True), "device-01")
    assert COUNTS not in job.extra


@pytest.mark.parametrize("name", ["fedmix", "naivemix"])
def test_averaged_data_are_of_real_samples(name: str) -> None:
    players, plain = one_label_each(name=name), one_label_each(name=name, supplement=0)
    means = []
    for each in (players, plain):
        state = each.start()
        exchange = each.planned(state)
        while exchange.name != "mean":
            state = each.step(state, exchange)
            exchange = each.planned(state)
        task = each.task(exchange, question_of(exchange, "device-00"))
        work = each.device_half.prepare(task, each.view("device-00"))
        assert isinstance(work, Answer)
        assert work.samples == 8
        means.append(bits(work.groups[MEANS]))
    assert means[0] == means[1]
    assert players.names() == ["label_need", "label_offer", "label_mix", "label_fill"]
    assert plain.names() == []


def test_targets_that_are_shares_are_trained_on_as_they_are() -> None:
    labels = only(0)
    shares = Samples(labels.inputs, np.eye(LABELS, dtype=np.float32)[labels.targets])
    players = one_label_each()
    players.devices["device-00"] = Device(shares)
    job, answer = trained(players, "device-00")
    assert job.samples is None
    assert answer.samples == 8
    refused = players.refused["device-00", "label_need"]
    assert "shares of labels" in refused
    assert ("device-00", "label_offer") in players.refused


def test_an_answer_of_another_size_is_not_made_larger() -> None:
    players = one_label_each()
    state = players.to_training()
    exchange = players.planned(state)
    task, view = (
        players.task(exchange, question_of(exchange, "device-00")),
        players.view("device-00"),
    )
    weights = task.groups["weights"]
    for samples, weighs in ((3, 3), (8, 8), (32, 8)):
        result = Trained(weights, samples, 1, 0.5)
        assert players.device_half.answer(task, view, result).samples == weighs


def test_evaluation_is_of_the_test_samples() -> None:
    players = one_label_each()
    state = players.to_training()
    exchange = players.half.evaluation(state, players.roster, 1)
    view = players.view("device-00")
    task = replace(players.task(exchange, exchange.questions[0]), params={})
    job = players.device_half.eval_job(task, view)
    assert isinstance(job, EvalJob)
    assert job.samples is view.test
