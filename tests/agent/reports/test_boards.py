"""Boards as their vendors document their files, and programs that tell what files do not.

The trees in ``boards`` are written from NVIDIA's and Raspberry Pi's documentation and from output
that users have published; none was copied from a board at hand.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from device_agent.reports.telemetry import Sensors, first_line, tegrastats_values
from device_agent.tasks.training_process import LOOK_AGAIN, EnergyMeter
from edgefed.config.fleet.when_settings import WhenSettings

BOARDS = Path(__file__).parent / "boards"


def tree_of(board: str, root: Path) -> Path:
    """Make the files of a board, a line each in its text."""
    for line in (BOARDS / f"{board}.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, text = line.split("\t")
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + ("\x00" if name.startswith("proc") else "\n"))
    return root


@pytest.mark.parametrize(
    ("board", "model", "temperature", "power", "gpu", "battery", "mains"),
    [
        ("orin-nano", "Orin Nano", 48.468, 5.056 * 1.24, 43.7, None, True),
        ("orin-nx", "Orin NX", 55.312, 5.056 * 2.816, 99.8, None, True),
        ("agx-orin", "AGX Orin", 52.968, 5.12 + 3.28 + 5.5, 12.0, None, True),
        ("xavier", "Jetson-AGX", 38.5, 0.929 + 1.238 + 1.393 + 0.309 + 2.123, 0.0, None, True),
        ("raspberry-pi", "Raspberry Pi 5", 61.75, None, None, 83.0, False),
    ],
)
def test_a_board_is_read_as_its_vendor_documents_it(
    board: str,
    model: str,
    temperature: float,
    power: float | None,
    gpu: float | None,
    battery: float | None,
    mains: bool,
    tmp_path: Path,
) -> None:
    sensors = Sensors(tree_of(board, tmp_path))
    assert model in sensors.hardware()
    assert sensors.temperature() == pytest.approx(temperature)
    assert sensors.power() == (None if power is None else pytest.approx(power))
    assert sensors.gpu() == (None if gpu is None else pytest.approx(gpu))
    assert (sensors.battery(), sensors.mains()) == (battery, mains)


@pytest.mark.parametrize(
    ("status", "online", "mains"),
    [
        ("Discharging", "0", False),
        ("Discharging", "1", True),  # a charger that is too weak, or about to be noticed
        ("Charging", "", True),
        ("Not charging", "", True),
        ("Unknown", "0", None),
    ],
)
def test_a_charger_or_a_battery_that_is_charged_means_mains(
    status: str, online: str, mains: bool | None, tmp_path: Path
) -> None:
    supplies = tree_of("raspberry-pi", tmp_path) / "sys/class/power_supply"
    (supplies / "max17042_battery/status").write_text(status)
    (supplies / "ac/online").write_text(online)
    assert Sensors(tmp_path).mains() is mains


TEGRASTATS = {
    "RAM 2448/7772MB (lfb 1x2MB) SWAP 0/3886MB (cached 0MB) CPU [2%@1344,0%@1344] EMC_FREQ 0%@665 "
    "GR3D_FREQ 0%@[305] APE 25 cpu@46.968C tj@48.156C soc2@46.1C PMIC@100C "
    "VDD_IN 4996mW/5012mW VDD_CPU_GPU_CV 799mW/812mW VDD_SOC 1478mW/1478mW": (4.996, 48.156),
    "RAM 1903/3956MB (lfb 7x1MB) IRAM 0/252kB(lfb 252kB) CPU [14%@102,off] EMC_FREQ 2%@408 "
    "PLL@21C CPU@23.5C PMIC@100C GPU@22C AO@28C thermal@22.75C POM_5V_IN 1532/1610 "
    "POM_5V_GPU 0/0 POM_5V_CPU 162/175": (1.532, 28.0),
    "07-25-2026 09:08:28 RAM 20642/62817MB CPU [23%@2201] GR3D_FREQ 12%@[1300,1300] APE 174 "
    "cpu@52.968C/52.968C gpu@47.625C/47.625C VDD_GPU_SOC 5139mW/5139mW/5139mW "
    "VDD_CPU_CV 3268mW/3268mW/3268mW VIN_SYS_5V0 5500mW/5500mW/5500mW": (13.907, 52.968),
    "": (None, None),
}
"""Lines of JetPack 5 and 6, 4 and 7."""


@pytest.mark.parametrize(("line", "values"), TEGRASTATS.items())
def test_tegrastats_tells_what_sysfs_does_not(
    line: str, values: tuple[float | None, float | None], tmp_path: Path
) -> None:
    asked: list[str] = []

    def run(words: tuple[str, ...]) -> str:
        asked.append(words[0])
        return line

    sensors = Sensors(tmp_path, run)
    found = (sensors.power(), sensors.temperature())
    assert found == tuple(None if each is None else pytest.approx(each) for each in values)
    assert asked == ["tegrastats"]  # once for both, and for a while
    if line:
        assert tegrastats_values(line)[0][0][0] in ("VDD_IN", "POM_5V_IN", "VDD_GPU_SOC")
    asked.clear()
    known = Sensors(tree_of("orin-nano", tmp_path), run)
    known.power()
    known.temperature()
    assert not asked


@pytest.mark.parametrize(
    ("answer", "metered"),
    [("u 1", True), ("u 2", False), ("u 3", True), ("u 4", False), ("u 0", None), ("", None),
     ("s x", None)],
)  # fmt: skip
def test_network_manager_tells_whether_the_connection_is_metered(
    answer: str, metered: bool | None, tmp_path: Path
) -> None:
    sensors = Sensors(tmp_path, lambda words: answer if "Metered" in words else "")
    assert sensors.metered() is metered
    assert sensors.readings(WhenSettings(metered=False), tmp_path).metered is metered
    assert sensors.readings(WhenSettings(), tmp_path).metered is None  # nobody is asked


def test_only_the_first_line_of_a_program_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name, script in (
        ("endless", "printf 'RAM '; sleep 0.1; echo '1 2'; exec sleep 60"),
        ("failing", "echo no >&2; exit 1"),
        ("mute", "exec sleep 60"),
    ):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr("device_agent.reports.telemetry.PROGRAM_SECONDS", 5.0)
    assert first_line(("endless",)) == "RAM 1 2"
    assert first_line(("failing",)) == ""
    assert first_line(("none-of-this-name",)) == ""
    monkeypatch.setattr("device_agent.reports.telemetry.PROGRAM_SECONDS", 0.2)
    assert first_line(("mute",)) == ""


def test_readings_of_this_machine() -> None:
    readings = Sensors().readings(WhenSettings(highest_load=50), Path.cwd())
    assert readings.memory and readings.disk
    assert readings.load is not None and 0 <= readings.load <= 100


def test_load_is_the_time_of_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = os.cpu_count() or 1
    times = iter([(0.0, 50.0, 5.0), (10.0, 50.0 + 4.0 * cores, 5.0 + 1.0 * cores)])
    monkeypatch.setattr(Sensors, "_busy_seconds", lambda self: next(times))
    assert Sensors().load_by_others() == pytest.approx(30.0)


class Time:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_energy_is_the_draw_over_the_time_without_pauses() -> None:
    clock, watts = Time(), [4.0]
    meter = EnergyMeter(lambda: watts[0], clock)  # type: ignore[arg-type]
    meter.begin()
    clock.now, watts[0] = 2.0, 6.0
    meter.read()  # 10 J
    clock.now = 3.0
    meter.pause()  # 6 J
    clock.now = 100.0
    meter.read()
    clock.now, watts[0] = 101.0, 8.0
    assert meter.end() == 23.0  # 7 J
    clock.now = 200.0
    assert meter.end() == 23.0  # such as after a full disk
    meter.begin()
    assert meter.end() == 0.0


def test_without_a_sensor_no_energy_is_measured() -> None:
    clock, reads = Time(), list[None]()
    meter = EnergyMeter(lambda: reads.append(None), clock)  # type: ignore[arg-type]
    for clock.now, looks in ((0.0, 1), (LOOK_AGAIN - 1, 1), (LOOK_AGAIN, 2)):
        meter.begin()
        meter.read()
        assert meter.end() is None
        assert len(reads) == looks
