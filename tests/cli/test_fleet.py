"""Commands of an operator, with a real coordinator and two real devices."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from edgefed.process.clock import moment_of
from edgefed.simulator.local_fleet import device_names
from edgefed.terminal.units import size
from tests.cli.commands import Told, edgefed
from tests.cli.conftest import FLEET, SmallFleet
from tests.processes import PATIENCE
from tests.processes import edgefed as start_edgefed
from tests.support.open_modes import open_to_others
from tests.transport.listening import wait_until

pytestmark = pytest.mark.mosquitto

DIVERGING = (
    "training.learning_rate=100",
    "training.weight_decay=1",
    "training.epochs=30",
    "rounds.retries=0",
)
"""Settings with which no device has an answer."""


def test_a_run_is_started_paused_stepped_resumed_and_watched_to_its_end(
    fleet: SmallFleet,
) -> None:
    run = fleet.begin("--paused")
    record = fleet.wait_for(run, "paused")
    assert (record["round"], record["exchanges"]) == (0, 0)
    stepped = fleet("--json", "run", "step", run)
    assert (stepped.code, stepped.json["run"]) == (0, run)
    fleet.wait_for(run, "paused")
    watched = _until_round(fleet, run, 1)
    assert (watched["exchanges"], watched["status"]) == (1, "paused")
    told = fleet("run", "resume")
    assert (told.code, told.out) == (0, "")
    assert run in told.err
    lines = fleet("run", "watch", run, "--json")
    assert (lines.code, lines.err) == (0, "")
    assert [line["round"] for line in lines.lines] == [1, 2, 3]
    record = fleet.show(run)
    assert (record["status"], record["round"], record["devices"]) == ("finished", 3, 2)
    assert [point["round"] for point in record["history"]] == [1, 2, 3]
    assert Path(record["folder"], "model.safetensors").is_file()
    assert len(record["weights_digest"]) == 64
    assert record["recipe"]["name"] == "tiny"


def test_state_is_for_its_owner_only_whatever_the_umask_is(fleet: SmallFleet) -> None:
    run = fleet.begin("--rounds", "1")
    record = fleet.wait_for(run, "finished")
    state = fleet.processes.folder
    written = {path.name for path in state.rglob("*")}
    assert {
        "edgefed.db",
        "edgefed.db-wal",
        "agent.db",
        "events.jsonl",
        "coordinator.log",
    } <= written
    assert Path(record["folder"], "model.safetensors").is_file()
    assert open_to_others(state) == {}


def test_an_ended_run_is_deleted_by_its_coordinator(fleet: SmallFleet) -> None:
    gone = fleet.begin("--rounds", "1")
    folder = Path(fleet.wait_for(gone, "finished")["folder"])
    run = fleet.begin("--paused")
    fleet.wait_for(run, "paused")
    fleet("run", "delete", run, "--yes").failed(4, "run.busy", run, f"edgefed run finish {run}")
    local = ("run", "delete", gone, "--local", "--yes")
    edgefed(*local, state=fleet.processes.folder).failed(4, "state.locked", "a coordinator")
    typed = gone[:-2]
    fleet("run", "delete", typed).failed(2, "usage.confirm", f"Deleting {gone} needs")
    told = fleet("run", "delete", gone, "--yes")
    assert (told.code, told.out, told.err) == (0, "", f"deleted: {gone}\n")
    assert not folder.exists()
    fleet("run", "show", gone).failed(5, "run.unknown", gone)
    fleet("run", "resume", run)
    fleet.wait_for(run, "finished")
    assert fleet("run", "delete", run, "--yes", "--json").json == {"run": run}
    edgefed(*local, state=fleet.processes.folder).failed(5, "run.unknown", gone)


def _until_round(fleet: SmallFleet, run: str, number: int) -> dict[str, Any]:
    wait_until(
        lambda: fleet.show(run)["round"] == number and fleet.show(run)["status"] == "paused",
        f"round {number}",
    )
    return fleet.show(run)


def test_a_failed_run_counts_finished_rounds_only(fleet: SmallFleet) -> None:
    run = fleet.begin(*(f"--set={each}" for each in DIVERGING))
    record = fleet.wait_for(run, "failed")
    assert (record["round"], record["history"]) == (0, [])
    assert re.search(r"^rounds +0 of 3$", fleet("run", "show", run).out, re.MULTILINE)
    assert f"{run}  failed" in fleet("run", "list").out
    assert " 0/3 " in fleet("run", "list").out
    assert fleet("status", "--json").json["run"]["round"] == 0
    assert "lower training.learning_rate, now 100" in record["hint"]
    assert record["hint"] in fleet("run", "show", run).out


def test_watching_ends_when_nobody_reads_any_more(fleet: SmallFleet) -> None:
    run = fleet.begin("--paused")
    fleet.wait_for(run, "paused")
    watching = start_edgefed("--broker", fleet.url, "--fleet", FLEET, "run", "watch", "--json")
    assert watching.stdout is not None
    assert watching.stderr is not None
    fleet("run", "step", run)
    assert watching.stdout.readline()
    watching.stdout.close()
    fleet("run", "resume", run)
    try:
        assert watching.wait(PATIENCE) == 0
        assert watching.stderr.read() == ""
    finally:
        watching.kill()
        watching.stderr.close()
    fleet.wait_for(run, "finished")


def test_a_finished_early_run_keeps_its_model(fleet: SmallFleet) -> None:
    run = fleet.begin("--rounds", "100000", "--paused")
    fleet.wait_for(run, "paused")
    told = fleet("run", "finish", run)
    assert told.code == 0
    record = fleet.wait_for(run, "finished")
    assert record["round"] < 100
    fleet("run", "resume", run).failed(2, "run.not_active", run, "is finished")


def test_only_one_run_is_at_work_and_it_can_be_aborted(fleet: SmallFleet) -> None:
    run = fleet.begin("--rounds", "100000")
    fleet("run", "start", fleet.recipe).failed(4, "run.busy", run, "edgefed run finish")
    fleet("run", "abort", run).failed(2, "usage.confirm", run, "--yes")
    assert fleet.show(run)["status"] in ("waiting", "running")
    assert fleet("run", "abort", run, "--yes").code == 0
    assert fleet.wait_for(run, "aborted")["error"] == "run.aborted"
    fleet("run", "watch", run).failed(1, "run.aborted", run)


def test_runs_are_listed_newest_first(fleet: SmallFleet) -> None:
    first = fleet.begin("--rounds", "1")
    fleet("run", "watch", first)
    second = fleet.begin("--rounds", "1", "--algorithm", "fedprox")
    fleet("run", "watch", second)
    runs = fleet("run", "list", "--json").json
    assert [each["run"] for each in runs[:2]] == [second, first]
    assert runs[0]["algorithm"] == "fedprox"
    shown = fleet("run", "list").out.splitlines()
    assert shown[0].split() == [
        *("RUN", "STATUS", "ALGORITHM", "ROUND", "ACCURACY", "STARTED", "BYTES", "NAME")
    ]
    assert shown[1].split()[:4] == [second, "finished", "fedprox", "1/1"]
    assert fleet("run", "show").out.splitlines()[0].split() == ["run", second]
    assert fleet("run", "show", second[:6], "--json").json == fleet.show(second)
    local = ("run", "show", second, "--local", "--json")
    assert edgefed(*local, state=fleet.processes.folder).json == fleet.show(second)
    assert fleet("run", "show", "latest", "--json").json["run"] == second
    told = fleet("run", "compare", first, "latest", "--json")
    assert (told.code, told.json) == (0, fleet("run", "compare", first, second, "--json").json)
    for name in ("latest", fleet.show(second)["folder"]):
        fleet("label", "cancel", name, "--all").failed(2, "run.not_active", second)


def test_unknown_runs_and_devices_are_told(fleet: SmallFleet) -> None:
    for command in ("show", "watch", "pause", "resume", "finish"):
        fleet("run", command, "r-9999").failed(5, "run.unknown", "r-9999", "edgefed run list")
    told = fleet("run", "show", "r-9999")
    told.failed(5, "run.unknown", "edgefed run show r-9999 --local")
    near = fleet("device", "show", device_names(2)[0][:-1])
    near.failed(5, "device.unknown", "did you mean", "edgefed device list")


CHANGING = {
    "seen_at",
    "sent",
    "received",
    "cpu",
    "gpu",
    "memory",
    "temperature",
    "power",
    "battery",
}
"""What a device tells anew with each heartbeat, also between two commands."""


def test_status_and_devices(fleet: SmallFleet) -> None:
    status = fleet("status", "--json").json
    assert (status["fleet"], status["broker"]) == (FLEET, fleet.url)
    assert {each["device"] for each in status["devices"]} == set(device_names(2))
    shown = {
        line.split(None, 1)[0]: line.split(None, 1)[1] for line in fleet("status").out.splitlines()
    }
    assert shown["devices"].startswith("2 of 2 online")
    listed = fleet("device", "list", "--json").json
    assert [each["device"] for each in listed] == list(device_names(2))
    assert all(each["samples"] > 0 for each in listed)
    assert fleet("device", "ls").out.splitlines()[0].split()[:2] == ["DEVICE", "STATE"]
    one = fleet("device", "show", device_names(2)[1], "--json").json
    assert one.keys() == listed[1].keys()
    for key in one.keys() - CHANGING:
        assert one[key] == listed[1][key]
    assert fleet("doctor").code == 0


AGE = r"now|[0-9]+ (s|min|h|d) ago"
SIZE = r"[0-9.]+ ([KMGT]i)?B"


def test_ages_and_bytes_are_for_people_and_json_has_them_raw(fleet: SmallFleet) -> None:
    run = fleet.begin("--rounds", "1")
    fleet("run", "watch", run)
    for line in fleet("device", "list").out.splitlines()[1:]:
        assert re.search(rf"  ({AGE})  ", line), line
    name = device_names(2)[0]
    raw = fleet("device", "show", name, "--json").json
    moment_of(raw["seen_at"])
    wait_until(
        lambda: fleet("device", "show", name, "--json").json["sent"] > 0, "the device's health"
    )
    shown = rows(fleet("device", "show", name))
    assert re.fullmatch(AGE, shown["seen_at"])
    assert all(re.fullmatch(SIZE, shown[word]) for word in ("sent", "received"))
    assert re.fullmatch(r"[0-9.]+ of [0-9.]+ [KMGT]iB", shown["memory"])
    assert "memory_total" not in shown
    status = rows(fleet("status"))
    assert all(re.fullmatch(AGE, status[word]) for word in ("started", "ended"))
    raw = fleet("status", "--json").json
    assert status["bytes"] == f"{size(raw['received'])} up, {size(raw['sent'])} down"
    assert raw["sent"] > 1000
    moment_of(raw["run"]["started_at"])
    (line,) = [line for line in fleet("run", "list").out.splitlines() if line.startswith(run)]
    assert re.search(rf"  ({AGE})  +{SIZE}  ", line), line
    shown = rows(fleet("run", "show", run))
    assert all(re.fullmatch(AGE, shown[word]) for word in ("started", "ended"))
    record = fleet.show(run)
    moment_of(record["ended"])
    assert record["bytes_up"] > 1000


def rows(told: Told) -> dict[str, str]:
    """Return what a command shows before its first empty line, by its first column."""
    words = [line.split(None, 1) for line in told.out.partition("\n\n")[0].splitlines()]
    return dict(words)


def test_a_device_that_is_online_is_not_forgotten(fleet: SmallFleet) -> None:
    name = device_names(2)[0]
    fleet("device", "forget", name).failed(4, "device.online", name)
    fleet("device", "forget", "nobody").failed(5, "device.unknown", "nobody")
    fleet("device", "forget").failed(2, "usage", "--all-lost")
    fleet("device", "forget", name, "--all-lost").failed(2, "usage", "--all-lost")
    assert fleet("device", "forget", "--all-lost", "--json").json == {"forgotten": []}
    assert len(fleet("device", "list", "--json").json) == 2


def test_a_quarantined_device_is_shown_and_released_by_order(fleet: SmallFleet) -> None:
    name, other = device_names(2)
    fleet("device", "release", name).failed(5, "device.not_quarantined", name)
    fleet("device", "quarantine", "nobody").failed(5, "device.unknown", "nobody")
    assert fleet("device", "quarantine", name, "--json").json == {"quarantined": name}
    try:
        fleet("device", "quarantine", name).failed(2, "device.quarantined", name)
        shown = rows(fleet("device", "show", name))
        assert (shown["state"], shown["quarantined_by"]) == ("quarantined", "local")
        assert (shown["standing"], shown["trust_reason"]) == ("quarantined", "ordered by local")
        head, *lines = fleet("device", "list").out.splitlines()
        assert head.split()[2:4] == ["REASON", "TRUST"]
        words = {line.split()[0]: line.split() for line in lines}
        assert words[name][1:5] == ["quarantined", "ordered", "by", "local"]
        assert "1.00" in words[other]
        checked = fleet("run", "check", "--json")
        fits = {each["device"]: each["reason"] for each in checked.json["devices"]}
        assert fits == {name: "it is quarantined", other: ""}
        merging = fleet("run", "check", "--set", "merging.rule=median", "--json").json["merging"]
        assert merging["rule"] == "median"
        assert merging["memory"] == 2 * merging["held"] > 0, "one device, and the result"
    finally:
        told_release = fleet("device", "release", name).err
    assert told_release == f"released: {name}\n"
    shown = rows(fleet("device", "show", name))
    assert (shown["standing"], shown["state"]) == ("suspect", "idle")
    assert "quarantined_by" not in shown


def test_a_second_coordinator_is_refused(fleet: SmallFleet, tmp_path: Path) -> None:
    state = fleet.processes.folder
    common = ("--broker", fleet.url, "--fleet", FLEET)
    told = edgefed(*common, "--quiet", "coordinator", state=state)
    told.failed(4, "state.locked", "is in use by a coordinator, process ")
    told = edgefed(*common, "--quiet", "coordinator", state=tmp_path)
    told.failed(4, "coordinator.taken", f"Fleet {FLEET} already has a coordinator", "--fleet")
    assert fleet("status").code == 0
