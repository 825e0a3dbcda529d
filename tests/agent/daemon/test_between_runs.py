"""Between two runs an agent looks at its photos again, and drops what only ended runs needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.address import LOOPBACK, free_port
from broker.mosquitto import MosquittoBroker
from device_agent.commands.launch import described, identity
from device_agent.daemon.agent import Agent
from device_agent.daemon.data_watch import DataRead, DataUnused, DataWatch
from device_agent.daemon.own_data import OwnData
from device_agent.identity.device_name import agent_folder
from device_agent.reports.telemetry import Sensors
from device_agent.tasks.device_store import DeviceStore
from device_agent.tasks.training_process import TrainingProcess
from edgefed.config.fleet.settings import AgentSettings
from edgefed.config.recipes.recipe import ModelSection
from edgefed.config.values.address import Address
from edgefed.learn.modeling.model_building import build
from edgefed.process.clock import SystemClock
from edgefed.wire.messages import BlobRef, CoordinatorState, Reply
from edgefed.wire.tensors import pack
from tests.agent.agent_harness import FLEET, MODEL, Stage, fork_agent, write_data
from tests.data.bombs import write_png
from tests.data.helpers import write_image
from tests.programs.forked_programs import ForkedProgram

pytestmark = pytest.mark.mosquitto

NAME = "cam"
CLASSES = ("cat", "dog", "elk")
SHAPE = (3, 8, 8)
HELD = "0.2"


class Camera:
    """A device with photos, and a scripted coordinator."""

    def __init__(self, address: Address, folder: Path) -> None:
        self.address, self.folder, self.photos = address, folder, folder / "photos"
        self.add("cat", 5)
        self.add("dog", 5)
        self.stage = Stage(address, NAME)
        self.process = self.start()
        self.stage.wait_online()
        self.asked = 0

    def start(self) -> ForkedProgram:
        source = f"folder:{self.photos}?size=8"
        words = (self.address, self.folder / "state", self.folder / "agent", NAME)
        return fork_agent(*words, "--data", source, "--holdout", HELD)

    def add(self, name: str, count: int) -> None:
        start = len(list((self.photos / name).glob("*")))
        for number in range(start, start + count):
            write_image(self.photos / name / f"{number}.png", (8, 8, 3), (20 * number + 5) % 256)

    def say(self, run: str, status: str, through: int = -1) -> None:
        """Tell the state of a run, as a coordinator does."""
        told = CoordinatorState(
            session="feedfacefeedface",
            owner="me",
            status="online",
            run=run,
            run_status=status,
            closed_through=through,
        )
        self.stage.send(self.stage.topics.coordinator(), told)

    def train(self, run: str, **changes: Any) -> Reply:
        """Ask for weights of its own, in an exchange of a run; return the reply."""
        self.asked += 1
        model = build(ModelSection.model_validate(MODEL), SHAPE, len(CLASSES), self.asked)
        weights = pack(model.weights())
        ref = BlobRef(digest=self.stage.hold(weights), size=len(weights))
        fields: dict[str, Any] = {
            "run": run,
            "shape": SHAPE,
            "classes": len(CLASSES),
            "class_names": CLASSES,
            "blobs": {"weights": ref},
            "error_feedback": False,
            **changes,
        }
        exchange = f"{run}-{self.asked}"
        self.stage.ask(self.stage.task(exchange, index=self.asked, **fields))
        reply = self.stage.reply(exchange)
        assert reply.status == "ok", reply.reason
        self.stage.receipt(reply)
        return reply

    def ask(self, exchange: str) -> None:
        """Ask for a training that depends on the samples and on nothing else."""
        self.asked += 1
        model = build(ModelSection.model_validate(MODEL), SHAPE, len(CLASSES), 1)
        weights = pack(model.weights())
        task = self.stage.task(
            exchange,
            index=self.asked,
            run="r-30",
            shape=SHAPE,
            classes=len(CLASSES),
            class_names=CLASSES,
            blobs={"weights": BlobRef(digest=self.stage.hold(weights), size=len(weights))},
            error_feedback=False,
            training={"epochs": 60, "batch_size": 4},
        )
        self.stage.ask(task)

    def updates(self, exchange: str) -> dict[str, bytes]:
        """Return the blobs of the reply to such a task."""
        reply = self.stage.reply(exchange)
        assert reply.status == "ok", reply.reason
        blobs = self.stage.pull(reply)
        self.stage.receipt(reply)
        return blobs

    def wait_for_revision(self, revision: int) -> None:
        self.stage.wait(lambda: self.stage.births[-1].revision == revision, "other data")

    @property
    def blobs(self) -> set[str]:
        folder = self.folder / "state" / "agents" / FLEET / NAME / "blobs"
        return {path.name for path in folder.iterdir()}

    @property
    def log(self) -> str:
        return (self.folder / "agent.log").read_text()


@pytest.fixture(scope="module")
def camera(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Camera]:
    folder = tmp_path_factory.mktemp("camera")
    with MosquittoBroker(Address(LOOPBACK, free_port()), folder / "mosquitto") as broker:
        made = Camera(broker.address, folder)
        try:
            yield made
        finally:
            made.stage.close()
            made.process.kill()
            made.process.wait()


def test_blobs_of_ended_runs_are_dropped_however_many_there_were(camera: Camera) -> None:
    for number in range(2):
        run = f"r-{number}"
        camera.say(run, "running")
        replies = [camera.train(run) for _ in range(2)]
        last = replies[-1].bases["weights"]
        assert last in camera.blobs, "while the run lasts, its weights are the base of the next"
        camera.say(run, "finished" if number % 2 else "aborted", replies[-1].index)
        camera.stage.wait(lambda: not camera.blobs, "an empty cache")


def test_a_kept_reply_stays_when_its_run_ends_before_it_was_taken(camera: Camera) -> None:
    camera.say("r-open", "running")
    reply = camera.train("r-open", codec="fp32")
    assert not reply.inline
    delta = reply.blobs["delta"].digest
    camera.say("r-open", "aborted", reply.index - 1)
    camera.stage.wait(lambda: camera.blobs == {delta}, "what the reply names")
    assert camera.stage.pull(reply)["delta"]
    camera.say("r-open", "aborted", reply.index)
    camera.stage.wait(lambda: not camera.blobs, "an empty cache")


def test_tests_of_saved_models_between_runs_leave_only_the_last_ones_blobs(camera: Camera) -> None:
    camera.say("r-ended", "finished", camera.asked)
    replies = [camera.train(f"r-saved-{number}") for number in range(2)]
    kept = {ref.digest for reply in replies for ref in reply.blobs.values()}
    assert camera.blobs - kept == {replies[-1].bases["weights"]}


def test_new_photos_are_used_from_the_next_run_on_and_a_broken_one_is_counted(
    camera: Camera,
) -> None:
    camera.say("r-10", "running")
    assert camera.train("r-10").samples == 8
    camera.add("cat", 4)
    camera.add("elk", 1)
    (camera.photos / "dog" / "broken.jpg").write_bytes(b"\xff\xd8 half of a photo")
    assert camera.train("r-10").samples == 8, "a run's data stay as they are"
    assert camera.stage.births[-1].revision == 0
    camera.say("r-10", "finished", camera.asked)
    camera.wait_for_revision(1)
    birth, first = camera.stage.births[-1], camera.stage.births[0]
    assert (birth.samples, birth.held_out, birth.ignored) == (13, 2, 1)
    assert birth.class_names == CLASSES
    assert birth.session == first.session and birth.data != first.data
    assert sum(birth.labels) == 13
    camera.say("r-11", "running")
    assert camera.train("r-11").samples == 13
    camera.say("r-11", "finished", camera.asked)
    assert "1 of 16 image files" in camera.log and "such as dog/broken.jpg" in camera.log
    assert "the data have changed: 13 samples to train on" in camera.log


def test_data_that_cannot_be_used_leave_the_earlier_ones_and_the_agent_at_work(
    camera: Camera,
) -> None:
    columns = camera.photos / "columns.csv"
    columns.write_text("no columns")
    camera.stage.wait(lambda: "columns.csv cannot be used" in camera.log, "a warning")
    camera.say("r-20", "running")
    assert camera.train("r-20").samples == 13
    camera.say("r-20", "finished", camera.asked)
    columns.unlink()
    write_png(camera.photos / "dog" / "bomb.png", 13300, 13300)
    camera.add("dog", 5)
    camera.wait_for_revision(2)
    birth = camera.stage.births[-1]
    assert (birth.samples + birth.held_out, birth.ignored) == (20, 2), "the bomb is skipped"
    assert camera.log.count("columns.csv cannot be used") == 1
    assert camera.log.count("broken.jpg") == 2, "once, and once more beside the bomb"


def test_a_folder_that_is_renamed_leaves_the_agent_at_work_until_it_is_back(
    camera: Camera,
) -> None:
    births, away = len(camera.stage.births), camera.photos.with_name("away")
    samples = camera.stage.births[-1].samples
    camera.photos.rename(away)
    camera.stage.wait(lambda: camera.stage.states[-1].reason, "a reason")
    said = f"refused its data: {camera.photos} does not exist.  [data.missing]"
    assert camera.stage.states[-1].reason == said
    camera.say("r-25", "running")
    assert camera.train("r-25").samples == samples
    camera.say("r-25", "finished", camera.asked)
    away.rename(camera.photos)
    camera.stage.wait(lambda: not camera.stage.states[-1].reason, "the end of the reason")
    assert camera.log.count("does not exist") == 1
    assert len(camera.stage.births) == births, "the samples are those that it had"


def test_data_that_were_read_while_a_run_began_wait_for_its_end(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    source = f"npz:{write_data(tmp_path / 'data.npz')}"
    address, name = str(mosquitto.address), "late"
    settings = AgentSettings(broker=address, fleet=FLEET, state=tmp_path, name=name, data=source)
    own, sensors, reports = OwnData(settings), Sensors(), []
    data = own.read()

    def watch(report: Callable[[DataRead | DataUnused], None]) -> DataWatch:
        reports.append(report)
        return DataWatch(own, partial(described, settings), report)

    agent = Agent(
        identity(settings, data, sensors),
        mosquitto.address,
        DeviceStore(agent_folder(settings), settings.cache),
        partial(TrainingProcess, settings, agent_folder(settings), name, data, SystemClock()),
        sensors,
        SystemClock(),
        watch=watch,
    )
    stage = Stage(mosquitto.address, name)
    running = threading.Thread(target=agent.run)
    running.start()
    try:
        stage.wait_online()
        state = CoordinatorState(session="feedface", owner="me", status="online", run="r-1")
        topic = stage.topics.coordinator()
        stage.send(topic, state.model_copy(update={"run_status": "waiting"}), retain=True)
        stage.ask(stage.task("first"))
        assert stage.reply("first").samples == len(data.train)
        reports[0](DataRead(data, {"samples": 99}))
        stage.wait(lambda: not own.seen, "the refusal of the data")
        assert {birth.revision for birth in stage.births} == {0}
        stage.send(topic, state.model_copy(update={"run_status": "failed"}), retain=True)
        stage.wait(lambda: stage.births[-1].revision == 1, "the data that are read once more")
        assert stage.births[-1].samples == len(data.train)
    finally:
        agent.stop()
        running.join()
        stage.close()


def test_a_birth_counts_ignored_files_and_no_classes(tmp_path: Path) -> None:
    for number in range(2):
        write_image(tmp_path / "cat" / f"{number}.png", (4, 4, 3), 9)
    (tmp_path / "dog").mkdir()
    for name in ("a.heic", "b.heic"):
        (tmp_path / "dog" / name).write_bytes(b"x")
    settings = AgentSettings(data=f"folder:{tmp_path}", state=tmp_path / ".state", name="cam")
    data = OwnData(settings).read()
    assert data.ignored == {"unsupported": 2, "unusable": 1}
    assert described(settings, data)["ignored"] == 2
    private = settings.model_copy(update={"share_labels": False})
    assert described(private, data)["labels"] == ()
    assert described(settings, data)["refuses"] == ("mixes",)
    assert described(private, data)["refuses"] == ("mixes", "labels")
    means = settings.model_copy(update={"share_means": False, "share_mixes": True})
    assert described(means, data)["refuses"] == ("means",)
    assert described(settings, data)["channels"] == ()
    channels = settings.model_copy(update={"share_channels": True})
    assert described(channels, data)["channels"] == ((9.0, 0.0),) * 3


def test_a_task_that_is_repeated_after_sigkill_has_the_samples_that_were_announced(
    camera: Camera,
) -> None:
    camera.say("r-30", "running")
    before = camera.stage.births[-1]
    camera.ask("undisturbed")
    expected = camera.updates("undisturbed")
    camera.stage.forget()
    camera.ask("killed")
    camera.stage.wait_for_state("train")
    camera.process.kill()
    camera.process.wait()
    camera.add("bee", 3)  # the first of the classes
    camera.add("cat", 5)
    camera.stage.wait(lambda: camera.stage.births[-1].status == "lost", "the will")
    camera.process = camera.start()
    camera.stage.wait(lambda: camera.stage.births[-1].status == "online", "the new birth")
    birth = camera.stage.births[-1]
    assert birth.session != before.session
    same = {"session", "revision", "ignored", "hardware"}
    assert birth.model_dump(exclude=same) == before.model_dump(exclude=same)
    camera.ask("killed")
    assert camera.updates("killed") == expected
    camera.say("r-30", "finished", camera.asked)
    camera.wait_for_revision(1)
    birth = camera.stage.births[-1]
    assert birth.samples + birth.held_out == 28
    assert birth.class_names == ("bee", *CLASSES)
