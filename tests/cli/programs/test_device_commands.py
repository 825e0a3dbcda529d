"""Commands by which an operator looks after single devices, with two real ones."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import Popen

import pytest

from edgefed.cli.programs.mqtt_feed import MqttFeed
from edgefed.errors import EdgeFedError
from edgefed.process.clock import SystemClock
from edgefed.simulator.local_fleet import device_names
from tests.cli.commands import Told
from tests.cli.conftest import FLEET, SmallFleet
from tests.processes import edgefed as start_edgefed
from tests.processes import outcome
from tests.programs.forked_fleet import ForkedChild
from tests.transport.listening import wait_until

pytestmark = pytest.mark.mosquitto

FIRST, SECOND = device_names(2)


def view(fleet: SmallFleet, device: str) -> dict[str, object]:
    return dict(fleet("device", "show", device, "--json").json)


def rounds_of(fleet: SmallFleet, device: str) -> list[dict[str, object]]:
    """The rounds of the current run in which a device was asked."""
    return list(fleet("device", "show", device, "--json").json["rounds"])


@contextmanager
def paused(fleet: SmallFleet, *words: str) -> Iterator[Told]:
    told = fleet("device", "pause", FIRST, *words)
    try:
        yield told
    finally:
        fleet("device", "resume", FIRST)


@contextmanager
def stopped(fleet: SmallFleet, device: str) -> Iterator[None]:
    """An agent that stands still, while its connection stays."""
    agent = fleet.processes.agents[device]
    assert isinstance(agent, ForkedChild)
    os.kill(agent.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(agent.pid, signal.SIGCONT)


def test_a_run_that_needs_more_devices_says_so_when_it_is_started(fleet: SmallFleet) -> None:
    told = fleet("run", "start", fleet.recipe, "--set", "merging.rule=krum")
    run = told.out.strip()
    try:
        because = (
            'merging.rule = "krum" with merging.malicious = 1 needs 2f + 3 = 5 answers a round.'
        )
        assert f"{because} 2 of 5 devices are there. The run waits for more." in told.err
        assert fleet.wait_for(run, "waiting")["error"] == ""
    finally:
        fleet("run", "abort", run, "--yes")
        fleet.wait_for(run, "aborted")


def test_a_paused_device_is_shown_and_not_asked_until_it_is_resumed(fleet: SmallFleet) -> None:
    with paused(fleet, "--reason", "noisy fan") as told:
        assert (told.code, told.out, told.err) == (0, "", f"paused: {FIRST}\n")
        shown = view(fleet, FIRST)
        assert (shown["state"], shown["paused_by"]) == ("paused", "local")
        assert (shown["pause_reason"], shown["standing"]) == ("noisy fan", "trusted")
        listed = [line.split()[:2] for line in fleet("device", "list").out.splitlines()]
        assert [FIRST, "paused"] in listed
        fleet("device", "pause", FIRST).failed(2, "device.paused", FIRST, "by local")
        run = fleet.begin("--set", "rounds.min_devices=1")
        record = fleet.wait_for(run, "finished")
        assert record["devices"] == 1
        assert view(fleet, FIRST)["state"] == "paused"
    shown = view(fleet, FIRST)
    assert (shown["state"], shown["paused_by"], shown["trust"]) == ("idle", "", 1.0)
    fleet("device", "resume", FIRST).failed(5, "device.not_paused", FIRST)


def test_a_device_is_paused_and_resumed_in_the_middle_of_a_run(fleet: SmallFleet) -> None:
    def step(number: int) -> None:
        assert fleet("run", "step", run).code == 0
        wait_until(
            lambda: (
                (shown := fleet.show(run))["round"] == number
                and shown["status"] in ("paused", "finished")
            ),
            f"round {number}",
        )

    run = fleet.begin("--paused", "--set", "rounds.min_devices=1")
    fleet.wait_for(run, "paused")
    step(1)
    with paused(fleet):
        step(2)
    step(3)
    asked = {each: [row["round"] for row in rounds_of(fleet, each)] for each in (FIRST, SECOND)}
    assert asked == {FIRST: [1, 3], SECOND: [1, 2, 3]}
    if fleet.show(run)["status"] == "paused":
        fleet("run", "resume", run)
    fleet.wait_for(run, "finished")


def test_a_run_waits_for_a_paused_device_that_it_needs(fleet: SmallFleet) -> None:
    with paused(fleet):
        run = fleet.begin("--rounds", "1")
        fleet.wait_for(run, "waiting")
    assert fleet.wait_for(run, "finished")["devices"] == 2


def test_orders_about_nobody_are_refused(fleet: SmallFleet) -> None:
    fleet("device", "pause", "nobody").failed(5, "device.unknown", "nobody")
    fleet("device", "resume", "nobody").failed(5, "device.not_paused", "nobody")
    fleet("device", "ping", "nobody").failed(5, "device.unknown", "nobody")
    fleet("device", "logs", "nobody").failed(5, "device.unknown", "nobody")
    fleet("device", "pause", FIRST, "--reason", "x" * 201).failed(2, "request.arguments", "reason")
    fleet("device", "ping").failed(2, "usage", "--all")
    fleet("device", "ping", FIRST, "--all").failed(2, "usage", "--all")


def test_every_device_answers_a_ping(fleet: SmallFleet) -> None:
    told = fleet("device", "ping", "--all")
    assert (told.code, told.err) == (0, "")
    head, *rows = (line.split() for line in told.out.splitlines())
    assert head == ["DEVICE", "ROUND", "TRIP"]
    assert [(row[0], row[2]) for row in rows] == [(FIRST, "ms"), (SECOND, "ms")]
    (result,) = fleet("device", "ping", SECOND, "--json").json
    assert (result["device"], result["outcome"]) == (SECOND, "answered")
    assert result["seconds"] > 0


def test_a_device_that_stands_still_is_named(fleet: SmallFleet) -> None:
    with stopped(fleet, FIRST):
        some = fleet("device", "ping", "--all", "--timeout", "1")
        none = fleet("--json", "device", "ping", FIRST, "--timeout", "0.5")
        log = fleet("device", "logs", FIRST, "--timeout", "0.5")
    assert some.code == 7
    assert f"No answer within 1 s from {FIRST}.  [device.ping]" in some.err
    assert [line.split()[0] for line in some.out.splitlines() if " ms" in line] == [SECOND]
    assert (none.code, json.loads(none.err)["error"]["code"]) == (6, "device.silent")
    assert none.json == [{"device": FIRST, "outcome": "silent", "seconds": None}]
    log.failed(6, "device.silent", FIRST, "0.5 s")
    assert fleet("device", "ping", FIRST).code == 0


def test_the_end_of_a_log_is_printed(fleet: SmallFleet) -> None:
    fleet.wait_for(fleet.begin("--rounds", "1"), "finished")
    told = fleet("device", "logs", SECOND)
    assert (told.code, told.err) == (0, "")
    lines = told.out.splitlines()
    assert "taken: fit, round 1" in told.out
    assert 1 < len(lines) <= 20
    assert fleet("device", "logs", SECOND, "--lines", "1").out.splitlines() == lines[-1:]
    (line,) = fleet("device", "logs", SECOND, "-n", "1", "--json").lines
    assert line == {"device": SECOND, "line": lines[-1]}
    fleet("device", "logs", SECOND, "--lines", "201").failed(2, "usage", "--lines")


def test_a_log_is_followed_across_a_restart_of_the_agent(fleet: SmallFleet) -> None:
    common = ("--broker", fleet.url, "--fleet", FLEET)
    words = ("device", "logs", SECOND, "-n", "1", "--follow", "--timeout", "0.5")
    process: Popen[str] = start_edgefed(*common, *words)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        fleet.processes.agents[SECOND].stop()
        try:
            told = process.stderr.readline()
            time.sleep(1.5)  # some looks, which tell nothing more
        finally:
            fleet.processes.start_agent(SECOND, f"npz:{fleet.recipe.parent / SECOND}.npz")
        wait_until(lambda: "connected to" in process.stdout.readline(), "the new agent")  # type: ignore[union-attr]
        again = process.stderr.readline()
        run = fleet.begin("--rounds", "1")
        fleet.wait_for(run, "finished")
        wait_until(lambda: run in process.stdout.readline(), "the new lines")  # type: ignore[union-attr]
    finally:
        process.send_signal(signal.SIGINT)
        code, _, err = outcome(process)
    assert told == f"{SECOND} does not answer; waiting for it.\n"
    assert again == f"The agent of {SECOND} was started again.\n"
    assert code == 130, err
    assert "Traceback" not in err
    assert "does not answer" not in err


def test_following_the_log_of_nobody_is_refused(fleet: SmallFleet) -> None:
    fleet("device", "logs", "nobody", "--follow").failed(5, "device.unknown", "nobody")


def test_the_dashboard_asks_the_same(fleet: SmallFleet) -> None:
    feed = MqttFeed(fleet.processes.near_address(), FLEET, SystemClock())
    feed.start(lambda update: None)
    try:
        assert 0 < feed.ping(FIRST) < 60
        assert any("connected to the broker" in line for line in feed.log(FIRST))
        feed.device_order("pause", FIRST, "by key")
        assert view(fleet, FIRST)["pause_reason"] == "by key"
        feed.device_order("resume", FIRST)
        assert view(fleet, FIRST)["paused_by"] == ""
        with pytest.raises(EdgeFedError) as caught:
            feed.device_order("forget", FIRST)
        assert caught.value.code == "device.online"
        with stopped(fleet, SECOND), pytest.raises(EdgeFedError) as caught:
            feed.ping(SECOND)
        assert (caught.value.code, caught.value.message) == (
            "device.silent",
            f"{SECOND} did not answer within 5 s.",
        )
    finally:
        feed.stop()
