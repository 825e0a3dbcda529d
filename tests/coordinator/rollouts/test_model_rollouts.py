"""Rollouts of models on the coordinator: offers, answers, and what is kept across a restart."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.rollouts.model_rollouts import REPEAT, SETTLE, ModelRollouts
from edgefed.coordinator.rollouts.rollout_store import KEPT, RolloutStore
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.errors import EdgeFedError
from edgefed.wire.blobs import BlobCache
from edgefed.wire.rollout_messages import ModelAnswer, ModelOffer
from tests.coordinator.devices.test_device_registry import ONE, TWO, Hands, birth
from tests.prediction.model_files import described, network, write_model

DEVICES = [f"cam-{number}" for number in range(4)]


class Fleet:
    """A coordinator's part about rollouts, in a state folder."""

    def __init__(self, folder: Path, sites: frozenset[str] = frozenset()) -> None:
        self.clock, self.numbers = Hands(), count(1)
        self.journal = EventJournal("fleet", self.clock)
        self.runs = Store(folder)
        self.registry = DeviceRegistry(self.journal, self.clock)
        self.sent: list[tuple[str, ModelOffer]] = []
        self.cache = BlobCache(folder / "blobs", 2**30)
        self.rollouts = ModelRollouts(
            *(RolloutStore(folder), self.runs, self.registry, self.cache, self.journal, self.clock),
            lambda device, offer: self.sent.append((device, offer)),
            lambda: f"{next(self.numbers):08x}",
            lambda device: "gate" if device in sites else "",
        )

    def close(self) -> None:
        self.rollouts.close()
        self.runs.close()

    def join(self, *devices: str, session: str = ONE) -> None:
        for device in devices:
            self.registry.take_birth(device, birth(session))

    def leave(self, device: str) -> None:
        self.registry.take_birth(device, birth(ONE, status="lost"))

    def start(self, *shares: float, stop_at: float = 0.3, best: bool = False) -> str:
        shares = shares or (0.25, 1.0)
        made = self.rollouts.start("r-0001", best=best, shares=shares, stop_at=stop_at, by="ann")
        return made.rollout

    def answer(self, device: str, outcome: str, rollout: str = "", session: str = ONE) -> None:
        told = {"session": session, "rollout": rollout or self.rollouts.find("").rollout}
        answer = {"outcome": outcome, "metric": "accuracy", "score": 0.5, "before": 0.75}
        self.rollouts.take(device, ModelAnswer.model_validate({**told, **answer, "reason": "why"}))

    def look(self, seconds: float = 1.0) -> None:
        self.clock.time += seconds
        self.rollouts.due(self.clock.time)

    def asked(self) -> list[str]:
        """Return the devices that were sent an offer since the last call."""
        devices, self.sent = [device for device, _ in self.sent], []
        return devices

    def notes(self) -> list[str]:
        return [line.text for line in self.journal.snapshot.lines if "model m-" in line.text]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    runs = tmp_path / "runs" / "r-0001"
    runs.mkdir(parents=True)
    description = described("mlp", shape=(4,))
    write_model(runs / "model.safetensors", description, network(description)[1])
    return tmp_path


def test_a_rollout_asks_stage_by_stage_and_offers_its_file_meanwhile(folder: Path) -> None:
    fleet = Fleet(folder)
    fleet.join(*DEVICES)
    fleet.look(SETTLE)
    fleet.start()
    found = fleet.rollouts.find("")
    assert (found.run, found.round, found.by, found.best) == ("r-0001", 3, "ann", False)
    assert fleet.cache.get(found.digest) == (folder / "runs/r-0001/model.safetensors").read_bytes()
    (first,) = fleet.asked()
    assert (fleet.rollouts.offered(found.digest), fleet.rollouts.offered("0a" * 32)) == (1, 0)
    fleet.look()
    assert fleet.asked() == []
    fleet.look(REPEAT)
    assert fleet.asked() == [first], "it has not answered"
    fleet.answer(first, "installed")
    fleet.look()
    others = sorted({*DEVICES} - {first})
    assert sorted(fleet.asked()) == others
    assert fleet.rollouts.offered(found.digest) == 3
    for device in others:
        fleet.answer(device, "installed")
    fleet.look()
    assert fleet.rollouts.find("").to_json() | {"begun": ""} == {
        "number": 1,
        "rollout": "m-00000001",
        "run": "r-0001",
        "round": 3,
        "best": False,
        "digest": found.digest,
        "size": found.size,
        "by": "ann",
        "begun": "",
        "status": "finished",
        "stage": 2,
        "shares": (0.25, 1.0),
        "stop_at": 0.3,
        "devices": 4,
        "asked": 4,
        "outcomes": {"installed": 4},
        "answers": fleet.rollouts.find("").answers,
    }
    view = next(view for view in fleet.journal.snapshot.devices if view.device == first)
    about = "model m-00000001 (run r-0001, round 3)"
    assert view.board_model == f"{about} installed, accuracy 0.5, before 0.75, why"
    stages = ["stage 1 of 2, 1 of 4 devices", "stage 2 of 2, 4 of 4 devices", "finished"]
    assert fleet.notes()[::-1] == [f"{about}: {text}" for text in stages]
    fleet.join("late")
    assert fleet.asked() == ["late"], "a new device gets the model in force"
    fleet.close()


def test_refusals_stop_it_and_nobody_is_offered_the_file_any_more(folder: Path) -> None:
    fleet = Fleet(folder)
    fleet.join(*DEVICES)
    fleet.look(SETTLE)
    fleet.start()
    (first,) = fleet.asked()
    fleet.answer(first, "refused")
    fleet.look()
    found = fleet.rollouts.find("")
    assert (found.stages.status, found.answers[first]["before"]) == ("stopped", 0.75)
    assert fleet.rollouts.offered(found.digest) == 0
    fleet.look(REPEAT)
    fleet.join(first, session=TWO)
    assert fleet.asked() == []
    assert fleet.notes()[0].endswith("stopped, 1 of 1 device refused it")
    fleet.close()


def test_answers_of_other_sessions_and_devices_do_not_count(folder: Path) -> None:
    fleet = Fleet(folder, sites=frozenset({"cam-3"}))
    fleet.join(*DEVICES)
    fleet.leave("cam-2")
    fleet.look(SETTLE)
    fleet.start(1.0)
    assert sorted(fleet.asked()) == ["cam-0", "cam-1"], "cam-3 has a gateway, cam-2 is away"
    assert fleet.rollouts.find("").stages.order[-1] == "cam-2", "who is there is asked first"
    fleet.answer("cam-0", "installed", session=TWO)
    fleet.answer("cam-3", "installed")
    fleet.answer("cam-0", "installed", rollout="m-99999999")
    assert fleet.rollouts.find("").answers == {}
    fleet.close()


def test_a_killed_coordinator_goes_on_with_the_answers_that_it_had(folder: Path) -> None:
    fleet = Fleet(folder)
    fleet.join(*DEVICES)
    fleet.look(SETTLE)
    fleet.start(0.75, 1.0)
    first, second, third = fleet.asked()
    fleet.answer(first, "installed")
    fleet.answer(second, "declined")
    fleet.close()

    again = Fleet(folder)
    again.join(first, second)
    again.look()
    assert again.rollouts.find("").stages.stage == 0, "the third device is about to connect"
    assert sorted(again.asked()) == sorted([first, second]), "each session is offered it"
    again.join(third)
    again.look(SETTLE)
    assert again.rollouts.find("").stages.stage == 0
    again.answer(third, "installed")
    again.look()
    found = again.rollouts.find("")
    assert (found.stages.stage, found.answers[second]["outcome"]) == (1, "declined")
    assert again.cache.get(found.digest) is not None
    again.cache.shed()
    assert again.cache.get(found.digest) is not None, "it is pinned"
    again.close()


def test_a_rollback_reaches_those_that_may_have_the_model(folder: Path) -> None:
    fleet = Fleet(folder)
    fleet.join(*DEVICES)
    fleet.look(SETTLE)
    fleet.start(1.0, stop_at=1.0)
    for device, outcome in zip(DEVICES, ("installed", "refused", "installed"), strict=False):
        fleet.answer(device, outcome)
    fleet.leave("cam-2")
    fleet.asked()
    fleet.rollouts.roll_back()
    actions = {device: offer.action for device, offer in fleet.sent}
    assert actions == {"cam-0": "withdraw", "cam-3": "withdraw"}, "cam-3 may be at work on it"
    fleet.asked()
    fleet.answer("cam-0", "rolled_back")
    fleet.answer("cam-3", "rolled_back")
    fleet.look(REPEAT)
    assert fleet.asked() == []
    fleet.join("cam-2", session=TWO)
    assert fleet.asked() == ["cam-2"]
    with pytest.raises(EdgeFedError) as caught:
        fleet.rollouts.roll_back()
    assert caught.value.code == "rollout.withdrawn"
    fleet.close()


def test_a_later_rollout_replaces_it_and_old_ones_are_forgotten(folder: Path) -> None:
    fleet = Fleet(folder)
    fleet.join(*DEVICES)
    first = fleet.start(1.0)
    for _ in range(KEPT):
        fleet.start(1.0)
    assert fleet.rollouts.find("").number == KEPT + 1
    assert fleet.rollouts.find("m-00000002").stages.status == "replaced"
    with pytest.raises(EdgeFedError) as caught:
        fleet.rollouts.find(first)
    assert caught.value.code == "rollout.unknown"
    fleet.close()
    again = RolloutStore(folder)
    assert len(again.all()) == KEPT
    again.close()


def test_a_run_without_a_model_and_one_of_several_cannot_be_rolled_out(folder: Path) -> None:
    fleet = Fleet(folder)

    def code(best: bool = False) -> str:
        with pytest.raises(EdgeFedError) as caught:
            fleet.start(best=best)
        return caught.value.code

    assert code(best=True) == "model.none"
    assert code() == "rollout.devices"
    description = described("mlp", shape=(4,), models=("expert-0", "expert-1"))
    weights = network(description)[1]
    both = {f"{name}/{key}": value for name in description.models for key, value in weights.items()}
    write_model(folder / "runs" / "r-0001" / "best.safetensors", description, both)
    assert code(best=True) == "model.several"
    fleet.close()


@pytest.mark.parametrize(("when", "file"), [("end", "model"), ("best", "best")])
def test_a_recipe_has_its_model_rolled_out_once_its_file_is_there(
    folder: Path, when: str, file: str
) -> None:
    fleet = Fleet(folder)
    fleet.join(*DEVICES)
    wishes = {"when": when, "stages": (0.5, 1.0), "stop_at": 0.25}
    text = Recipe.model_validate({"rollout": wishes}).model_dump_json()
    fleet.runs.save_run(RunRecord("r-0001", "yard", "fedavg", text, 1, "running", ""))
    own = folder / "runs/r-0001"
    (own / "model.safetensors").rename(own / "kept")
    fleet.journal.emit("run", run="r-0001", status="running")
    fleet.look(SETTLE)
    (own / "kept").rename(own / f"{file}.safetensors")
    fleet.look()
    if when == "end":
        assert fleet.asked() == [], "the run goes on"
        fleet.journal.emit("run", run="r-0001", status="finished")
        fleet.look()
    assert len(fleet.asked()) == 2
    made = fleet.rollouts.find("")
    assert (made.run, made.round, made.best, made.by) == ("r-0001", 3, when == "best", "")
    assert (made.stages.shares, made.stages.stop_at) == ((0.5, 1.0), 0.25)
    fleet.rollouts.roll_back()
    fleet.close()

    again = Fleet(folder)
    again.join(*DEVICES)
    again.journal.emit("run", run="r-0001", status="finished")
    again.look(SETTLE)
    assert again.rollouts.find("").number == 1, "it was withdrawn"
    description = replace(described("mlp", shape=(4,)), round=7)
    write_model(own / f"{file}.safetensors", description, network(description)[1])
    again.look()
    assert (again.rollouts.find("").number, again.rollouts.find("").round) == (2, 7)
    again.close()


def test_a_rollout_that_a_recipe_asks_for_and_cannot_be_is_noted_once(folder: Path) -> None:
    fleet = Fleet(folder)  # no device has joined
    text = Recipe.model_validate({"rollout": {"when": "end"}}).model_dump_json()
    fleet.runs.save_run(RunRecord("r-0001", "yard", "fedavg", text, 1, "finished", ""))
    fleet.journal.emit("run", run="r-0001", status="finished")
    for _ in range(3):
        fleet.look(SETTLE)
    notes = [line.text for line in fleet.journal.snapshot.lines if "No rollout" in line.text]
    assert notes == ["No rollout: No device has joined this fleet."]
    fleet.close()
