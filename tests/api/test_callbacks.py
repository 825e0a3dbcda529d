"""Callbacks see each round, and can end a run early or fail it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgefed
from edgefed.api.rounds import Callback
from edgefed.coordinator.storage.run_store import Store
from tests.api.small import TEST, TRAIN, Heard, arrays, recipe

DATA: dict[str, Any] = {"data": arrays(TRAIN), "test": arrays(TEST)}


def test_a_callback_sees_what_each_round_came_to(tmp_path: Path) -> None:
    seen: list[edgefed.RoundResult] = []
    result = edgefed.simulate(recipe(), callbacks=seen.append, folder=tmp_path, **DATA)
    assert [each.number for each in seen] == [1, 2]
    for each, row in zip(seen, result.rounds, strict=True):
        assert each.metrics == {name: row[name] for name in each.metrics}
        assert {"accuracy", "loss", "train_loss"} <= set(each.metrics)
        assert {"round", "replies", "seconds", "sent"} & set(each.metrics) == set()
        assert (each.seconds, each.replies) == (row["seconds"], 4)
        assert (each.bytes_up, each.bytes_down) == (row["received"], row["sent"])
        assert each.bytes_up < each.bytes_down or each.number > 1
        assert "_weights" not in repr(each)
        with pytest.raises(AttributeError):
            each.number = 9  # type: ignore[misc]
    assert seen[-1].metrics == result.scores
    last = seen[1].weights
    assert last.keys() == result.weights.keys()
    assert all(np.array_equal(last[name], result.weights[name]) for name in last)
    first = seen[0].weights
    assert any(not np.array_equal(first[name], last[name]) for name in last)


def test_a_metric_that_a_round_did_not_measure_is_left_out() -> None:
    seen: list[edgefed.RoundResult] = []
    every = recipe(evaluation={"every": 0})
    result = edgefed.simulate(every, callbacks=seen.append, **DATA)
    assert set(seen[0].metrics) == {"train_loss"}
    assert set(seen[1].metrics) >= {"train_loss", "accuracy", "loss"}
    assert result.scores == seen[-1].metrics


def test_what_a_callback_does_to_the_weights_changes_nothing() -> None:
    def spoil(result: edgefed.RoundResult) -> None:
        for array in result.weights.values():
            array[...] = 0

    plain = edgefed.simulate(recipe(), **DATA)
    assert edgefed.simulate(recipe(), callbacks=spoil, **DATA).weights_digest == (
        plain.weights_digest
    )


def _false(result: edgefed.RoundResult) -> bool:
    return result.number < 2


def _stop(result: edgefed.RoundResult) -> None:
    if result.number == 2:
        raise edgefed.StopRun


@pytest.mark.parametrize("callback", [_false, _stop])
def test_a_callback_ends_a_run_early_and_keeps_the_model(
    callback: Callback, tmp_path: Path
) -> None:
    heard, long = Heard(), recipe(rounds={"count": 5})
    short = edgefed.simulate(recipe(), **DATA)
    ended = edgefed.simulate(long, callbacks=[callback, heard], folder=tmp_path, **DATA)
    assert heard.numbers == [1, 2], "all callbacks see the last round"
    assert len(ended.rounds) == 2
    assert ended.to_json()["status"] == "finished"
    assert (ended.weights_digest, ended.scores) == (short.weights_digest, short.scores)


def test_a_callback_that_returns_nothing_goes_on() -> None:
    heard = Heard()
    assert len(edgefed.simulate(recipe(), callbacks=(heard, heard), **DATA).rounds) == 2
    assert heard.numbers == [1, 1, 2, 2]


def test_an_exception_of_a_callback_fails_the_run_and_is_the_cause(tmp_path: Path) -> None:
    problem = ZeroDivisionError("by zero")

    def fail(result: edgefed.RoundResult) -> None:
        raise problem

    with pytest.raises(edgefed.EdgeFedError) as told:
        edgefed.simulate(recipe(), callbacks=fail, folder=tmp_path, **DATA)
    assert told.value.code == "callback.failed"
    assert "after round 1: ZeroDivisionError: by zero." in told.value.message
    assert told.value.__cause__ is problem
    store = Store(tmp_path / "simulations")
    (record,) = store.runs()
    store.close()
    assert (record.status, record.error, record.round) == ("failed", "callback.failed", 1)
    folder = tmp_path / "simulations" / "runs" / record.run
    events = (folder / "events.jsonl").read_text().splitlines()
    assert json.loads(events[-1])["status"] == "failed"
    assert (folder / "model.safetensors").exists()


def test_a_callback_may_simulate_too() -> None:
    digests: list[str] = []

    def inner(result: edgefed.RoundResult) -> None:
        digests.append(edgefed.simulate(recipe(), **DATA).weights_digest)

    outer = edgefed.simulate(recipe(), callbacks=inner, **DATA)
    assert {outer.weights_digest, *digests} == {outer.weights_digest}


def test_the_weights_of_a_round_are_complete_where_some_are_frozen() -> None:
    seen: list[edgefed.RoundResult] = []
    head = recipe(model={"name": "mlp", "hidden": [4], "train": "head"})
    result = edgefed.simulate(head, callbacks=seen.append, **DATA)
    first, last = seen[0].weights, seen[1].weights
    assert (
        last.keys() == result.weights.keys() == {"fc1.bias", "fc1.weight", "out.bias", "out.weight"}
    )
    assert np.array_equal(first["fc1.weight"], last["fc1.weight"])
    assert not np.array_equal(first["out.weight"], last["out.weight"])
