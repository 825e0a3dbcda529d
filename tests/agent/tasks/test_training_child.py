"""The training process's side of its socket: pauses, and a GPU that it cannot use."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from device_agent.tasks import training_child
from device_agent.tasks.training_child import _Agent
from device_agent.tasks.training_messages import PAUSE, packed, unpacked
from edgefed.config.fleet.settings import AgentSettings


@pytest.mark.parametrize(
    ("then", "stops"),
    [
        (lambda ours: ours.send_bytes(packed(PAUSE, on=False)), False),
        (lambda ours: ours.send_bytes(packed("give up")), True),
        (lambda ours: ours.close(), True),
    ],
)
def test_a_pause_lasts_until_the_agent_says_so(then: Callable[[Any], None], stops: bool) -> None:
    ours, theirs = Pipe()
    agent = _Agent(theirs)
    begun = time.monotonic(), agent.work_clock.monotonic()
    assert not agent.beat()
    for on in (True, False, True):  # the last word counts
        ours.send_bytes(packed(PAUSE, on=on))
    beats, answers = [unpacked(ours.recv_bytes())["kind"]], list[bool]()
    waiting = threading.Thread(target=lambda: answers.append(agent.beat()))
    waiting.start()
    assert ours.poll(30)  # it is heard of while it waits
    beats.append(unpacked(ours.recv_bytes())["kind"])
    assert beats == ["beat", "beat"] and not answers
    then(ours)
    waiting.join(timeout=30)
    assert answers == [stops]
    if not stops:
        passed = time.monotonic() - begun[0], agent.work_clock.monotonic() - begun[1]
        assert passed[1] < passed[0]  # a pause is no work
        assert not agent.beat()
    elif not ours.closed:
        assert agent.order()["kind"] == "give up"  # it is still there for who takes orders


def test_a_gpu_that_torch_cannot_use_is_told_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_child, "unused_gpu", lambda: "/dev/nvgpu")
    ours, theirs = Pipe()
    child = os.fork()
    if not child:
        ours.close()
        training_child.run(theirs.fileno())
    theirs.close()
    settings = AgentSettings().model_dump_json()
    ours.send_bytes(packed("start", level=30, settings=settings, folder=str(tmp_path), device="a"))
    assert ours.poll(60)
    told = unpacked(ours.recv_bytes())
    ours.close()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert told["text"].startswith("training on the CPU, although there is /dev/nvgpu: ")
