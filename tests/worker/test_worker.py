"""The worker: training, testing, refusing, failing, and state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Work
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.algorithms.secure.secure_aggregation import SecureAggregation
from edgefed.algorithms.secure.secure_phases import FORM
from edgefed.config.recipes.recipe import ModelSection
from edgefed.config.recipes.secure_aggregation_section import SecureAggregationSection
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Stopped, Trainer
from edgefed.sharing.policy import Policy
from edgefed.wire.codecs import decode
from edgefed.wire.messages import Task
from edgefed.wire.task_digest import task_digest
from edgefed.wire.tensors import specs_of
from edgefed.worker.outcomes import FEEDBACK, Outcome
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker
from tests.algorithms.play import bits
from tests.run_fixture import CLASSES, SHAPE, samples
from tests.worker.tasks import MODEL, read, task, weights, work, worker


def test_a_fit_sends_what_training_changed() -> None:
    outcome = work(task())
    assert (outcome.status, outcome.samples, outcome.reason) == ("ok", 9, "")
    assert outcome.metrics["steps"] == 3
    assert np.isfinite(outcome.metrics["loss"])
    delta = decode(outcome.blobs["delta"], specs_of(weights()))
    assert any(np.abs(array).max() > 0 for array in delta.values())
    assert outcome.private == {}


def test_a_fit_is_repeatable_to_the_bit_and_its_seed_matters() -> None:
    assert work(task()).blobs == work(task()).blobs
    assert work(task(seed=6)).blobs != work(task()).blobs


def test_devices_that_share_a_bench_do_not_disturb_each_other() -> None:
    trainers = TrainerCache("cpu")
    first, second = worker(9, trainers=trainers), worker(6, trainers=trainers)
    alone = [work(task(), worker(9)).blobs, work(task(), worker(6)).blobs]
    assert [work(task(), each).blobs for each in (first, second)] == alone
    assert [work(task(), each).blobs for each in (first, second)] == alone


def test_an_evaluation_sends_scores_and_no_tensors() -> None:
    outcome = work(task(question="evaluate", codec="int8", error_feedback=True))
    model = build(ModelSection.model_validate(MODEL), SHAPE, CLASSES, 0)
    score = Trainer(model, "cpu").evaluate(weights(), samples(5, 2))
    assert outcome.metrics == {"loss": score.loss, "accuracy": score.accuracy}
    assert (outcome.status, outcome.samples, outcome.blobs) == ("ok", 5, {})


@pytest.mark.parametrize(
    ("given", "whom", "reason"),
    [
        (task(), worker(0), "no data"),
        (task(shape=(1, 28, 28)), worker(), "its inputs are 8, the run trains 1x28x28"),
        (task(shape=()), worker(), "its inputs are 8, the run trains scalars"),
        (task(classes=2), worker(20), "it has label 2, the run has 2 classes"),
        (task(question="evaluate"), worker(9, 0), "holds out no samples for evaluation"),
        (
            task(algorithm="alchemy"),
            worker(),
            "No algorithm 'alchemy'.  [algorithm.unknown]; try: if a",
        ),
        (
            task(model={"name": "brain"}),
            worker(),
            "There is no model 'brain'.  [model.unknown]; try: if a",
        ),
    ],
    ids=["no data", "images", "scalars", "labels", "no test", "algorithm", "model"],
)
def test_what_a_device_cannot_do_it_refuses(given: Task, whom: Worker, reason: str) -> None:
    outcome = work(given, whom)
    assert outcome.status == "refused"
    assert reason in outcome.reason
    assert (outcome.blobs, outcome.private) == ({}, {})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (task(settings={"weighing": 1}), "weighing"),
        (task(model={**MODEL, "hidden": [5]}), "fc1"),
        (task(training={"learning_rate": 100, "weight_decay": 1, "epochs": 30}), "diverged"),
        (task(training={"learning_rate": -1}), "learning_rate"),
        (task(codec="morse"), "morse"),
        (task(blobs={}), "without the arrays 'weights' that its algorithm needs.  [wire.missing"),
    ],
    ids=["settings", "shape", "diverged", "training", "codec", "blobs"],
)
def test_what_goes_wrong_is_told(given: Task, reason: str) -> None:
    outcome = work(given)
    assert outcome.status == "failed"
    assert reason in outcome.reason
    assert (outcome.blobs, outcome.private) == ({}, {})


def test_data_that_are_no_numbers_are_told() -> None:
    poisoned = Samples(np.full((4, 8), np.nan, np.float32), np.zeros(4, np.int64))
    outcome = work(task(), Worker(TrainerCache("cpu"), poisoned, samples(0, 1)))
    assert outcome.status == "failed"
    assert "NaN" in outcome.reason


def test_progress_is_reported_up_to_the_end_and_stop_is_heard() -> None:
    told: list[float] = []
    worker().work(task(), read, {}, told.append)
    assert told == [pytest.approx(k / 3) for k in (1, 2, 3, 3)]  # and the processor is done
    told.clear()
    with pytest.raises(Stopped):
        worker().work(task(), read, {}, told.append, lambda: len(told) == 2)
    assert len(told) == 2


# -- private state ------------------------------------------------------------------------------


class Talker(FedAvg):
    """Answers ``mean`` at once, with the mean of its inputs, and remembers that it did."""

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        if task.question != "mean":
            return super().prepare(task, device)
        means = {"inputs": device.train.inputs.mean(axis=0)}
        assert not any(key.startswith(FEEDBACK) for key in device.private)
        told = device.private.get("told", {"times": np.zeros(1, np.int64)})
        return Answer(
            device=task.device,
            samples=len(device.train),
            groups={"mean": Group(means), "exact": Group(means, codec="fp32")},
            private={"told": {"times": told["times"] + 1}},
        )


class TalkersCache(TrainerCache):
    """A bench on which Talker is the only algorithm."""

    def algorithm(self, task: Task) -> CompleteAlgorithm[Any]:
        plain = super().algorithm(task)
        return Talker(plain.settings, plain.training)


def coarse(question: str, index: int) -> Task:
    return task(question=question, seed=index, codec="int8", error_feedback=True)


def session() -> Callable[[Task], Outcome]:
    """Return a device whose private state goes on from task to task."""
    whom, private = worker(trainers=TalkersCache("cpu")), dict[str, Tensors]()

    def do(given: Task) -> Outcome:
        outcome = work(given, whom, dict(private))
        assert outcome.status == "ok", outcome.reason
        private.clear()
        private.update(outcome.private)
        return outcome

    return do


def test_private_state_of_the_algorithm_is_kept_and_never_sent() -> None:
    do = session()
    assert do(coarse("mean", 1)).private["told"]["times"].tolist() == [1]
    outcome = do(coarse("mean", 2))
    assert outcome.private["told"]["times"].tolist() == [2]
    assert outcome.blobs.keys() == {"mean", "exact"}
    assert do(coarse("fit", 3)).private["told"]["times"].tolist() == [2]


def test_what_a_code_dropped_waits_for_the_next_reply_of_its_kind() -> None:
    """Another exchange between two fits does not make a device forget."""
    do = session()
    first = do(coarse("fit", 1))
    between = do(coarse("mean", 2))
    kept = FEEDBACK + "delta"
    assert bits(between.private[kept]) == bits(first.private[kept])
    assert between.private.keys() == {kept, FEEDBACK + "mean", "told"}
    straight = session()
    straight(coarse("fit", 1))
    assert do(coarse("fit", 3)).blobs == straight(coarse("fit", 3)).blobs


def test_what_must_be_exact_is_and_leaves_nothing_behind() -> None:
    outcome = session()(coarse("mean", 1))
    sent = decode(outcome.blobs["exact"], None)["inputs"]
    assert bits(sent) == bits(samples(9, 1).inputs.mean(axis=0))
    assert FEEDBACK + "exact" not in outcome.private


def test_without_error_feedback_nothing_is_kept() -> None:
    assert work(task(codec="int8")).private == {}


def test_a_users_own_model_is_run_only_where_the_devices_owner_allows_it() -> None:
    own = {"name": "tests.learn.own_models:linear", "hidden": 4}
    built = build(ModelSection.model_validate(own), SHAPE, CLASSES, 3, allow_user=True)
    given, weights_of_it = task(model=own), built.weights()
    refused = work(given)
    assert refused.status == "refused"
    assert "user_models is off" in refused.reason
    allowed = worker(trainers=TrainerCache("cpu", user_models=True))
    done = allowed.work(given, lambda _role: weights_of_it, {})
    assert (done.status, done.reason) == ("ok", "")
    assert decode(done.blobs["delta"], specs_of(weights_of_it)).keys() == weights_of_it.keys()


@pytest.mark.parametrize("kind", ["loss", "metric"])
def test_users_functions_are_not_even_imported_where_the_devices_owner_forbids_it(
    kind: str,
) -> None:
    nowhere = "no.such.package:function"
    training, evaluation = task().training, {"confusion": False, "top_k": 0, "metrics": []}
    if kind == "loss":
        given = task(training={**training, "loss": nowhere})
    else:
        given = task(question="evaluate", evaluation={**evaluation, "metrics": [nowhere]})
    refused = work(given)
    assert (refused.status, nowhere in refused.reason) == ("refused", True)
    assert "user_models is off" in refused.reason
    allowed = worker(trainers=TrainerCache("cpu", user_models=True))
    failed = work(given, allowed)
    assert failed.status == "failed"
    assert "there is no module 'no'" in failed.reason


# -- secure aggregation ---------------------------------------------------------------------------

MASKED = SecureAggregationSection(enabled=True).model_dump(mode="json")
KEYS = {"form": FORM, "number": 1, "threshold": 2}


@pytest.mark.parametrize(
    ("demand", "policy"),
    [
        ("least_cohort", Policy(least_cohort=2)),
        ("least_threshold", Policy(least_threshold=2)),
    ],
)
def test_an_owner_who_demands_a_cohort_trains_only_where_updates_are_masked(
    demand: str, policy: Policy
) -> None:
    strict = Worker(TrainerCache("cpu"), samples(9, 1), samples(5, 2), policy)
    for told in ({}, {**MASKED, "enabled": False}):
        outcome = strict.work(task(secure_aggregation=told), read, {})
        assert (outcome.status, outcome.blobs) == ("refused", {})
        assert outcome.reason == (
            f"its owner demands secure aggregation ({demand}), and this run has none"
        )
    assert strict.work(task(question="evaluate"), read, {}).status == "ok"
    keys = task(question="secure_keys", secure_aggregation=MASKED, params=KEYS)
    assert strict.work(keys, read, {}).status == "ok"


def test_a_device_that_masks_in_a_run_sends_no_update_of_that_run_without_a_mask() -> None:
    one = worker()
    keys = task(question="secure_keys", secure_aggregation=MASKED, params=KEYS)
    kept = one.work(keys, read, {}).private
    for told in ({}, {**MASKED, "enabled": False}):
        outcome = one.work(task(secure_aggregation=told), read, kept)
        assert (outcome.status, outcome.blobs) == ("refused", {})
        assert "was asked for one without a mask" in outcome.reason
    assert one.work(task(question="evaluate"), read, kept).status == "ok"


def test_a_task_has_its_digest_where_updates_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[DeviceTask] = []

    def prepare(self: SecureAggregation, given: DeviceTask, device: DeviceView) -> Answer:
        seen.append(given)
        return Answer(given.device, 1, {})

    monkeypatch.setattr(SecureAggregation, "prepare", prepare)
    asked = task(secure_aggregation=MASKED)
    other = task(secure_aggregation=MASKED, training={"learning_rate": 0.2, "batch_size": 4})
    for each in (asked, other):
        assert worker().work(each, read, {}).status == "ok"
    assert [each.task_digest for each in seen] == [task_digest(asked), task_digest(other)]
    assert len({each.task_digest for each in seen}) == 2
