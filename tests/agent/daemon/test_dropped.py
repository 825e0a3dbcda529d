"""An agent whose inbox is full reports it in its status file and its log."""

from __future__ import annotations

import logging
import threading
from functools import partial
from pathlib import Path

import pytest

from broker.mosquitto import MosquittoBroker
from device_agent.commands.launch import identity
from device_agent.daemon import agent as agent_module
from device_agent.daemon.agent import Agent
from device_agent.daemon.own_data import load_data
from device_agent.identity.device_name import agent_folder
from device_agent.reports.status_file import read_status_file
from device_agent.reports.telemetry import Sensors
from device_agent.tasks.device_store import DeviceStore
from device_agent.tasks.training_process import TrainingProcess
from edgefed.config.fleet.settings import AgentSettings
from edgefed.process.clock import SystemClock
from edgefed.transport.inbox import InboxLimits
from edgefed.wire.messages import Chunk
from edgefed.wire.tensors import digest
from tests.agent.agent_harness import FLEET, Stage, write_data

pytestmark = pytest.mark.mosquitto


def test_dropped_messages_are_told(
    mosquitto: MosquittoBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(agent_module, "INBOX_LIMITS", InboxLimits(chunks=0))
    settings = AgentSettings(
        broker=str(mosquitto.address),
        fleet=FLEET,
        state=tmp_path,
        name="full",
        data=f"npz:{write_data(tmp_path / 'data.npz')}",
    )
    data, sensors, folder = load_data(settings), Sensors(), agent_folder(settings)
    memory = DeviceStore(folder, settings.cache)
    agent = Agent(
        identity(settings, data, sensors),
        mosquitto.address,
        memory,
        partial(TrainingProcess, settings, folder, "full", data, SystemClock()),
        sensors,
        SystemClock(),
    )
    stage = Stage(mosquitto.address, "full")
    running = threading.Thread(target=agent.run)
    with caplog.at_level(logging.WARNING):
        running.start()
        try:
            stage.wait_for_state("idle")
            topic = stage.topics.down_chunk("full")
            stage.send(topic, Chunk(digest=digest(b"x"), index=0, data=b"x"))
            stage.wait(lambda: read_status_file(folder, "full")["dropped"] == 1, "the notice")
        finally:
            agent.stop()
            running.join()
            stage.close()
    assert "dropped because they came too fast: 1" in caplog.text
