"""What an answer changes on the device for good, and where its privacy noise comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.composed import registry
from edgefed.algorithms.composed.method import fields_of
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Work
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.learn.base.types import Tensors
from edgefed.wire.codecs import decode
from edgefed.wire.messages import Task
from edgefed.worker import outcomes
from edgefed.worker.outcomes import Outcome, PersistentState, checked_changes
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker
from tests.run_fixture import samples
from tests.support.releasing import NAME, installed
from tests.worker.tasks import read, task, worker


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with installed(tmp_path / "site", monkeypatch):
        yield


def from_task(given: Task) -> np.random.Generator:
    return np.random.default_rng(given.round)


def own_worker() -> Worker:
    return Worker(TrainerCache("cpu"), samples(9, 1), samples(5, 2), private_randomness=from_task)


def released(device: Worker, kept: PersistentState | None = None, **changes: Any) -> Outcome:
    given = task(algorithm=NAME, **changes)
    outcome = device.work(given, read, {}, persistent=kept or PersistentState())
    assert outcome.status == "ok", outcome.reason
    return outcome


def noise(outcome: Outcome) -> list[float]:
    values: list[float] = decode(outcome.blobs["noise"], None)["noise"].tolist()
    return values


def test_an_answer_sees_what_earlier_ones_left() -> None:
    first = released(own_worker(), round=1)
    kept = PersistentState().after(first.device_state, first.ledger)
    second = released(own_worker(), kept, round=2)
    assert [(o.metrics["before"], o.metrics["entries"]) for o in (first, second)] == [
        (0.0, 0.0),
        (1.0, 1.0),
    ]
    kept = kept.after(second.device_state, second.ledger)
    assert set(kept.device_state) == {"releases", "round-2"}, "an empty group deletes"
    assert [entry["round"] for entry in kept.ledger] == [1, 2]
    assert kept.ledger[0]["shape"] == [1, 2], "as JSON gives it back"


def test_state_changes_with_an_answer_only() -> None:
    first = released(own_worker(), round=1)
    kept = PersistentState().after(first.device_state, first.ledger)
    seen = kept.read_only()["releases"]["count"]
    assert seen.tolist() == [1]
    with pytest.raises(ValueError, match="read-only"):
        seen += 1
    given = task(algorithm=NAME)
    algorithm = registry.make_device_half(fields_of(given))
    prepare = type(algorithm).prepare

    def spoiling(
        self: CompleteAlgorithm[Any], seen: DeviceTask, device: DeviceView
    ) -> Work | Answer:
        device.device_state["releases"]["count"][:] = 99
        return prepare(self, seen, device)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(algorithm), "prepare", spoiling)
        outcome = own_worker().work(given, read, {}, persistent=kept)
    assert (outcome.status, "read-only" in outcome.reason) == ("failed", True)
    assert kept.device_state["releases"]["count"].tolist() == [1]


def test_an_evaluation_changes_nothing() -> None:
    outcome = released(own_worker(), question="evaluate")
    assert (outcome.device_state, outcome.ledger) == ({}, ())


def test_the_same_task_twice_draws_other_noise_from_the_operating_system() -> None:
    device = worker()
    draws = [noise(released(each)) for each in (device, device, worker())]
    assert len({tuple(each) for each in draws}) == 3
    first, second = (released(device).blobs["delta"] for _ in range(2))
    assert first == second, "all but the noise has the task's seed"


def test_noise_comes_from_what_the_worker_was_given() -> None:
    wanted = np.random.default_rng(7).standard_normal(3).astype(np.float32).tolist()
    assert noise(released(own_worker(), round=7)) == wanted
    assert noise(released(own_worker(), round=7, seed=99)) == wanted
    assert noise(released(own_worker(), round=8)) != wanted


def answer(**changes: Any) -> Answer:
    return replace(Answer("", 1, {}), **changes)


def group(size: int) -> Tensors:
    return {"w": np.zeros(size, np.uint8)}


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("groups", {"device_state": {str(n): group(1) for n in range(3)}}),
        ("printable", {"device_state": {"": group(1)}}),
        ("printable", {"device_state": {"x" * 65: group(1)}}),
        ("printable", {"device_state": {"\ud800": group(1)}}),
        ("bytes", {"device_state": {"more": group(60)}}),
        ("dtype", {"device_state": {"more": {"w": np.zeros(1, np.complex128)}}}),
        ("answer has more than", {"ledger": ({},) * 257}),
        ("entry takes", {"ledger": ({"text": "x" * 16_384},)}),
        ("no space", {"ledger": ({}, {}, {})}),
        ("JSON", {"ledger": ({"bytes": b"x"},)}),
        ("JSON", {"ledger": ({"epsilon": float("nan")},)}),
    ],
)
def test_bounds_hold(monkeypatch: pytest.MonkeyPatch, reason: str, changes: dict[str, Any]) -> None:
    monkeypatch.setattr(outcomes, "MAX_GROUPS", 3)
    monkeypatch.setattr(outcomes, "MAX_STATE_BYTES", 100)
    if len(changes.get("ledger", ())) < 257:
        monkeypatch.setattr(outcomes, "MAX_LEDGER", 3)
    state = PersistentState({"kept": group(50)}, ({"n": 1},))
    with pytest.raises(Exception, match=reason):
        checked_changes(state, answer(**changes))


def test_what_is_within_the_bounds_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "MAX_STATE_BYTES", 100)
    state = PersistentState({"kept": group(50)}, ({"n": 1},))
    changes = {"kept": group(40), "x" * 64: group(60)}
    taken = checked_changes(state, answer(device_state=changes, ledger=({"n": 2},) * 256))
    assert taken == ({"n": 2},) * 256
    text = {"text": "x" * (16_384 - len('{"text": ""}'))}
    assert checked_changes(state, answer(ledger=(text,))) == (text,)


def test_a_ledger_without_space_refuses_releases_and_not_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outcomes, "MAX_LEDGER", 1)
    full = PersistentState({}, ({"n": 1}, {"n": 2}))
    assert checked_changes(full, answer(device_state={"kept": group(9)})) == ()
    with pytest.raises(ValueError, match="no space"):
        checked_changes(full, answer(ledger=({"n": 3},)))


def test_an_answer_beyond_the_bounds_fails_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outcomes, "MAX_LEDGER", 0)
    outcome = worker().work(task(algorithm=NAME), read, {})
    assert (outcome.status, outcome.blobs, outcome.ledger) == ("failed", {}, ())
    assert "ledger has no space" in outcome.reason
