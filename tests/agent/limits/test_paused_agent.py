"""What an agent tells and does while its owner's limits are passed, beside training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from broker.mosquitto import MosquittoBroker
from device_agent.commands.cli import app
from edgefed.config.recipes.recipe import ModelSection
from edgefed.config.values.address import Address
from edgefed.learn.modeling.model_building import build
from edgefed.wire.messages import BlobRef, Need, Task
from edgefed.wire.tensors import pack
from tests.agent.agent_harness import CLASSES, FLEET, SHAPE, Stage, agent_words, write_data
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram
from tests.programs.sensed_agent import Board

pytestmark = pytest.mark.mosquitto

NAME = "board"
SMALL: dict[str, Any] = {"name": "mlp", "hidden": [8]}


class WatchingStage(Stage):
    """Notes the requests for blobs."""

    def __init__(self, address: Address, device: str) -> None:
        self.needs: list[Need] = []
        super().__init__(address, device)

    def other_task(self, exchange: str) -> Task:
        """A task whose weights the device does not hold."""
        model = build(ModelSection.model_validate(SMALL), SHAPE, CLASSES, 6)
        weights = pack(model.weights())
        ref = BlobRef(digest=self.hold(weights), size=len(weights))
        return self.task(exchange, index=1, model=SMALL, blobs={"weights": ref})

    def _give(self, need: Need) -> None:
        self.needs.append(need)
        super()._give(need)


def test_a_device_whose_rounds_are_used_up_answers_and_then_waits_for_the_next_day(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    board = Board(tmp_path)
    board.set_time("2026-11-25T12:00")
    words = agent_words(mosquitto.address, tmp_path, write_data(tmp_path / "data.npz"), NAME)
    limits = {"EDGEFED_WHEN__ROUNDS_A_DAY": "1", **board.variables}
    agent = ForkedProgram(
        ("tests.programs.sensed_agent", *words[1:]),
        {**clean_environment(), **limits},
        tmp_path / "log",
    )
    stage = WatchingStage(mosquitto.address, NAME)
    try:
        stage.wait_online()
        assert stage.wait_for_state("idle").may_train
        stage.ask(stage.task("first"))
        reply = stage.reply("first")
        upload = stage.wait_for_state("upload")
        assert not upload.may_train  # before its answer can close the round
        assert upload.resumes_in == 12 * 3600
        stage.pull(reply)
        stage.receipt(reply)
        paused = stage.wait_for_state("paused")
        assert (paused.reason, paused.exchange) == ("it trained in 1 round today", "")
        assert stage.seen()[-2:] == ["done", "paused"]
        status = ("--fleet", FLEET, "--state", str(tmp_path), "status", "--name", NAME)

        def shown(*more: str) -> Result:
            return CliRunner().invoke(app, [*status, *more])

        # Its file of states is written after the message
        stage.wait(lambda: "2026-11-26T00:00:00.000Z" in shown().output, "its status")
        assert shown("--check").exit_code == 0, "a limit is no fault"

        stage.forget()
        stage.needs.clear()
        second = stage.other_task("second")
        stage.ask(second)
        held = stage.wait_for_state("paused")
        assert held.exchange == "second"
        board.set_time("2026-11-25T23:59")
        stage.ask(second)
        stage.wait(lambda: stage.states[-1].resumes_in == 60, "its state again")
        assert not stage.needs  # nothing is downloaded meanwhile
        stage.forget()
        board.set_time("2026-11-26T00:00")
        assert stage.reply("second").status == "ok"
        assert stage.needs
        assert stage.states[0].may_train
    finally:
        stage.close()
        agent.terminate()
        agent.wait()
