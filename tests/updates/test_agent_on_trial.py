"""A new version that its updater judges: it says nothing of itself, and ignores tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.mosquitto import MosquittoBroker
from device_agent.updater.agent_process import HOME
from device_agent.updater.disk import read_json, write_json
from tests.agent.agent_harness import Stage, agent_words, write_data
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]


def test_tasks_are_ignored_until_the_trial_is_over(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    write_json(home / "state.json", {"phase": "trial", "current": "old", "release": "new"})
    words = agent_words(mosquitto.address, tmp_path, write_data(tmp_path / "data.npz"), "cam")
    variables = {**clean_environment(), HOME: str(home)}
    stage = Stage(mosquitto.address, "cam")
    agent = ForkedProgram(words, variables, tmp_path / "log")
    signs = home / "agent.json"
    try:
        stage.wait(lambda: signs.exists() and read_json(signs)["connected"], "its connection")
        stage.ask(stage.task("first"))
        stage.wait(lambda: read_json(signs)["probe"], "the end of its probe")
        assert not (stage.births or stage.states)
        write_json(home / "state.json", {"phase": "idle", "current": "new"})
        stage.wait_online()
        stage.wait_for_state("idle")
        stage.ask(stage.task("second", index=1))
        assert stage.next_reply().exchange == "second"
    finally:
        agent.kill()
        stage.close()
