"""The keeper of a device's model: offers, interruptions by tasks, and answers that are repeated."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from device_agent.models.model_folder import ModelFolder
from device_agent.models.model_keeper import LOOK_EVERY, ModelKeeper
from device_agent.tasks.training_messages import ModelChecked, ModelTest
from device_agent.tasks.training_process import TrainingProcess
from edgefed.config.fleet.settings import AgentSettings
from edgefed.transport.downloads import Downloads
from edgefed.wire.blobs import BlobCache
from edgefed.wire.rollout_messages import ModelAnswer, ModelOffer
from tests.coordinator.devices.test_device_registry import Hands

A, B, C = "m-aaaaaaaa", "m-bbbbbbbb", "m-cccccccc"
SESSION, EARLIER = "0123456789abcdef", "fedcba9876543210"
FILE = b"a model" * 100


class Training:
    """Stands in for the training process: notes the tests that are begun."""

    def __init__(self) -> None:
        self.begun: list[ModelTest] = []
        self.current = ""

    def begin(self, test: ModelTest) -> None:
        self.begun.append(test)
        self.current = test.name

    def work_on(self, name: str) -> bool:
        return self.current == name

    def give_up(self) -> None:
        self.current = ""


class Fetching:
    """Stands in for the downloads: a model is here once the test puts it into the cache."""

    def __init__(self) -> None:
        self.wanted: list[str] = []
        self.failed = False

    def want(self, blobs: Mapping[str, int]) -> None:
        self.wanted += blobs

    def due(self, now: float) -> bool:
        return self.failed

    def arrived(self, digest: str) -> bool:
        return True

    def drop(self, digests: object) -> None: ...

    def prune(self, keep: object) -> None: ...


class Board:
    """A keeper with its folder, and what it answered."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.clock, self.training, self.fetching = Hands(), Training(), Fetching()
        self.models = ModelFolder(folder)
        self.cache = BlobCache(folder / "blobs", 2**30)
        self.answers: list[ModelAnswer] = []
        self.keeper = ModelKeeper(
            AgentSettings.model_validate({"models": "auto", **settings}),
            self.models,
            cast("Downloads", self.fetching),
            self.cache,
            cast("TrainingProcess", self.training),
            self.answers.append,
            self.clock,
            SESSION,
        )

    def offer(self, rollout: str, action: str = "install", session: str = SESSION) -> None:
        offer = {"session": session, "rollout": rollout, "action": action, "size": len(FILE)}
        self.keeper.take(ModelOffer.model_validate({**offer, "digest": "0a" * 32}))

    def arrive(self, rollout: str) -> ModelTest:
        """Offer a model whose file then comes, and return the test that is begun."""
        self.cache.put(FILE)
        (digest,) = self.cache._sizes
        offer = {"session": SESSION, "rollout": rollout, "action": "install", "size": len(FILE)}
        self.keeper.take(ModelOffer.model_validate({**offer, "digest": digest}))
        self.due()
        return self.training.begun[-1]

    def due(self, *, is_free: bool = True, seconds: float = 0.0) -> None:
        self.clock.time += seconds
        self.keeper.due(self.clock.monotonic(), is_free=is_free)

    def install(self, rollout: str) -> None:
        self.finish(self.arrive(rollout), "installed", metric="accuracy", score=0.9)

    def finish(self, test: ModelTest, outcome: Any, **about: Any) -> None:
        if Path(test.draft).is_dir():
            Path(test.draft, "model.safetensors").write_bytes(FILE)
        self.keeper.finished(ModelChecked(test.name, outcome, **about))

    def told(self) -> list[tuple[str, str]]:
        return [(answer.rollout, answer.outcome) for answer in self.answers]


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "models")


def test_a_model_is_tested_beside_the_one_in_use_and_swapped_in(board: Board) -> None:
    first = board.arrive(A)
    assert (first.current, first.formats, first.tolerance) == ("", ("safetensors",), 0.01)
    board.finish(first, "installed", metric="accuracy", score=0.9)
    assert board.told() == [(A, "installed")]
    described = board.models.description("current")
    assert described is not None
    assert (described["rollout"], described["score"]) == (A, 0.9)
    second = board.arrive(B)
    assert second.current == str(board.models.folder / A / "model.safetensors")
    board.finish(second, "refused", reason="worse", metric="accuracy", score=0.5, before=0.9)
    assert board.models.rollout("current") == A
    assert (board.answers[-1].outcome, board.answers[-1].before) == ("refused", 0.9)
    assert not list(board.models.folder.glob(".m-*")), "no draft is left"
    assert len(board.cache) == 0


def test_a_task_interrupts_the_test_which_begins_again(board: Board) -> None:
    board.due(is_free=False)
    first = board.arrive(A)
    board.training.current = "r-1-3"  # a task has begun
    board.due(is_free=False)
    assert board.training.begun == [first]
    board.due()
    second = board.training.begun[-1]
    assert second.name != first.name
    board.finish(first, "installed")
    assert board.told() == [], "the outcome of a test that was given up is too late"
    board.due()
    assert board.training.begun == [first, second]
    board.finish(second, "installed")
    assert board.told() == [(A, "installed")]


def test_a_repeated_offer_is_answered_as_before_also_after_a_restart(
    board: Board, tmp_path: Path
) -> None:
    board.install(A)
    board.finish(board.arrive(B), "refused", reason="worse", score=0.5)
    again = Board(tmp_path / "models")
    again.offer(A)
    again.offer(B)
    assert again.told() == [(A, "installed"), (B, "refused")]
    assert again.answers[0].score == 0.9
    assert again.answers[1].reason == "worse"
    assert again.fetching.wanted == []
    again.offer(C, session=EARLIER)
    assert again.fetching.wanted == [], "it was for an earlier process"
    again.offer(C)
    again.offer(C)
    assert again.fetching.wanted == ["0a" * 32], "once"


def test_a_withdrawn_model_is_rolled_back_once(board: Board) -> None:
    board.install(A)
    board.install(B)
    for _ in range(2):
        board.offer(B, "withdraw")
        assert board.models.rollout("current") == A
    assert board.told()[2:] == [(B, "rolled_back")] * 2
    board.offer(B)
    assert board.told()[-1] == (B, "rolled_back"), "a late offer does not install it again"
    test = board.arrive(C)
    board.offer(C, "withdraw")
    assert not board.training.work_on(test.name)
    board.finish(test, "installed")
    assert board.models.rollout("current") == A


def test_the_owner_rolls_back_or_takes_no_models(board: Board, tmp_path: Path) -> None:
    board.install(A)
    board.install(B)
    ModelFolder(board.models.folder).roll_back("the device's owner rolled it back")
    board.due(seconds=LOOK_EVERY)
    board.due(seconds=LOOK_EVERY)
    assert board.told()[2:] == [(B, "rolled_back")]
    assert board.answers[-1].reason == "the device's owner rolled it back"
    closed = Board(tmp_path / "closed", models="off")
    closed.offer(A)
    assert closed.told() == [(A, "declined")]
    assert closed.fetching.wanted == []


def test_a_model_that_does_not_come_or_cannot_be_kept_fails(board: Board) -> None:
    board.offer(A)
    board.fetching.failed = True
    board.due()
    board.fetching.failed = False
    test = board.arrive(B)
    shutil.rmtree(test.draft)
    board.keeper.finished(ModelChecked(test.name, "installed"))
    assert board.told() == [(A, "failed"), (B, "failed")]
    assert board.models.rollout("current") == ""
