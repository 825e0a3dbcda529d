"""State of a board: from sysfs, psutil, NVIDIA's libraries and tools, and NetworkManager."""

from __future__ import annotations

import math
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from device_agent.limits.decision import Readings
from device_agent.reports.nvidia_gpus import NvidiaGpus
from edgefed.config.fleet.when_settings import WhenSettings
from edgefed.errors import StorageError
from edgefed.files.writing import free_bytes
from edgefed.process.memory import free_memory
from edgefed.wire.messages import Telemetry

MODEL_FILES = ("proc/device-tree/model", "sys/class/dmi/id/product_name")
GPU_LOADS = (
    "sys/devices/gpu.0/load",
    "sys/devices/platform/gpu.0/load",
    "sys/devices/platform/bus@0/17000000.gpu/load",
)
TOTAL_RAILS = ("VDD_IN", "POM_5V_IN")
"""Labels of the rail that feeds the whole board."""

FED_RAILS = ("VDDQ_VDD2_1V8AO",)
"""Labels of rails that another one feeds, with which they are counted already."""

CONSTANT_ZONES = ("PMIC-Die",)
"""Thermal zones without a sensor: on a Jetson Nano, TX2 or Xavier this is always 50 or 100 °C."""

TEGRASTATS_EVERY = 10.0
METERED_EVERY = 30.0
"""Seconds for which the answer of a program is used again."""

PROGRAM_SECONDS = 2.0
"""Seconds that a program has to answer."""

METERED = {1: True, 2: False, 3: True, 4: False}
"""``NMMetered`` of NetworkManager: yes, no, guessed yes, guessed no; 0 is unknown."""

_METERED_PROPERTY = (
    *("busctl", "--system", "get-property", "org.freedesktop.NetworkManager"),
    *("/org/freedesktop/NetworkManager", "org.freedesktop.NetworkManager", "Metered"),
)
_TEGRASTATS = ("tegrastats", "--interval", "200")
_TEGRA_POWER = re.compile(r"(\w+) (\d+)(?:mW)?/\d+(?:mW)?(?![\w/]*B)")
_TEGRA_HEAT = re.compile(r"([\w-]+)@(-?[\d.]+)C")


class Sensors:
    """Reads the board's sensors; a value without a sensor is None.

    Args:
        root: the folder with ``sys`` and ``proc``; tests make their own.
        run: runs a program and returns the first line of its output, empty if it fails.
        gpus: the GPUs with a driver of their own; None to read none.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        run: Callable[[tuple[str, ...]], str] | None = None,
        gpus: NvidiaGpus | None = None,
    ) -> None:
        self._root = root
        self._run = run or first_line
        self._gpus = gpus
        self._kept: dict[tuple[str, ...], tuple[float, str]] = {}
        self._process = psutil.Process()
        self._busy = self._busy_seconds()
        psutil.cpu_percent()

    def read(self, session: str, sent: int, received: int) -> Telemetry:
        """Return the health now."""
        memory = psutil.virtual_memory()
        return Telemetry(
            session=session,
            cpu=float(psutil.cpu_percent()),
            gpu=self.gpu(),
            memory=int(memory.used),
            memory_total=int(memory.total),
            temperature=self.temperature(),
            power=self.power(),
            battery=self.battery(),
            sent=sent,
            received=received,
        )

    def readings(self, when: WhenSettings, folder: Path) -> Readings:
        """Return the readings for an owner's limits; those that cost much only if one needs them.

        Args:
            when: the limits.
            folder: on the disk whose free bytes count.
        """
        try:
            disk: int | None = free_bytes(folder)
        except StorageError:
            disk = None
        return Readings(
            temperature=self.temperature(),
            battery=self.battery(),
            mains=self.mains(),
            memory=free_memory(),
            disk=disk,
            load=None if when.highest_load is None else self.load_by_others(),
            metered=None if when.metered else self.metered(),
        )

    def hardware(self) -> str:
        """Return the board's name, such as ``NVIDIA Jetson Orin Nano``."""
        for name in MODEL_FILES:
            text = _text(self._root / name)
            if text:
                return text[:100]
        return ""

    def temperature(self) -> float | None:
        """Return the temperature of the hottest thermal zone or GPU in °C."""
        zones = self._root.glob("sys/class/thermal/thermal_zone*/temp")
        measured = [zone for zone in zones if _text(zone.with_name("type")) not in CONSTANT_ZONES]
        degrees = [value / 1000 for value in _numbers(measured)] or self._tegrastats()[1]
        degrees += self._gpus.temperatures() if self._gpus else []
        return max((degree for degree in degrees if 0 < degree < 150), default=None)

    def power(self) -> float | None:
        """Return the board's total draw in W, from INA3221 monitors; without, that of its GPUs.

        Most boards label a rail for the total; without one, all rails are summed. Voltage is in mV
        and current in mA, so their product is in µW.
        """
        rails: list[tuple[str, float]] = []
        for label in self._root.glob("sys/bus/i2c/drivers/ina3221/*/hwmon/hwmon*/in*_label"):
            number = label.name.removeprefix("in").removesuffix("_label")
            volts = _number(label.with_name(f"in{number}_input"))
            amperes = _number(label.with_name(f"curr{number}_input"))
            if volts is not None and amperes is not None:
                rails.append((_text(label), volts * amperes / 1e6))
        for label in self._root.glob("sys/bus/i2c/drivers/ina3221x/*/iio:device*/rail_name_*"):
            number = label.name.removeprefix("rail_name_")  # the driver of JetPack 4
            milliwatts = _number(label.with_name(f"in_power{number}_input"))
            if milliwatts is not None:
                rails.append((_text(label), milliwatts / 1000))
        rails = rails or self._tegrastats()[0]
        whole = [watts for name, watts in rails if name in TOTAL_RAILS]
        if whole:
            return whole[0]
        own = [watts for name, watts in rails if name not in FED_RAILS]
        if not own and self._gpus:
            own = self._gpus.power()
        return sum(own) if own else None

    def gpu(self) -> float | None:
        """Return the busiest GPU's load in percent; Jetson's file counts tenths of a percent."""
        for name in GPU_LOADS:
            value = _number(self._root / name)
            if value is not None:
                return value / 10
        return max(self._gpus.loads(), default=None) if self._gpus else None

    def battery(self) -> float | None:
        """Return the charge of the fullest battery in percent, without those of other devices."""
        charges = _numbers(supply / "capacity" for supply in self._supplies("Battery"))
        if sys.platform != "linux" and not charges and hasattr(psutil, "sensors_battery"):
            fullest = psutil.sensors_battery()
            return float(fullest.percent) if fullest else None
        return max(charges, default=None)

    def mains(self) -> bool | None:
        """Whether no battery supplies the board; None if it has one that does not tell."""
        batteries = self._supplies("Battery")
        sources = [*self._supplies("Mains"), *self._supplies("USB")]
        if not batteries or 1.0 in _numbers(source / "online" for source in sources):
            return True
        states = {_text(battery / "status") for battery in batteries}
        if "Discharging" in states:
            return False
        return True if states & {"Charging", "Full", "Not charging"} else None

    def _supplies(self, kind: str) -> list[Path]:
        """Return the power supplies of a kind; those of a mouse or a headset do not count."""
        supplies = self._root.glob("sys/class/power_supply/*")
        return [
            supply
            for supply in supplies
            if _text(supply / "type") == kind and _text(supply / "scope") != "Device"
        ]

    def load_by_others(self) -> float:
        """Return the percentage of the processors that other programs have used since before."""
        before, now = self._busy, self._busy_seconds()
        seconds = now[0] - before[0]
        if seconds < 1.0:  # too short to be measured
            return 0.0
        self._busy = now
        others = (now[1] - before[1]) - (now[2] - before[2])
        return min(100.0, max(0.0, 100 * others / seconds / (os.cpu_count() or 1)))

    def _busy_seconds(self) -> tuple[float, float, float]:
        """Return the time, and the processor seconds of all programs and of ours."""
        every = psutil.cpu_times()
        own = 0.0
        for process in (self._process, *self._process.children()):
            try:
                used = process.cpu_times()
            except psutil.Error:  # it has just ended
                continue
            own += used.user + used.system
        return time.monotonic(), every.user + getattr(every, "nice", 0.0) + every.system, own

    def metered(self) -> bool | None:
        """Whether the connection is metered; None if NetworkManager does not know or is not there.

        It counts its own guess, such as for a phone's hotspot.
        """
        kind, _, number = self._said(_METERED_PROPERTY, METERED_EVERY).partition(" ")
        return METERED.get(int(number)) if kind == "u" and number.isdecimal() else None

    def _tegrastats(self) -> tuple[list[tuple[str, float]], list[float]]:
        """Return rails in W and zones in °C from tegrastats, where sysfs does not tell them."""
        return tegrastats_values(self._said(_TEGRASTATS, TEGRASTATS_EVERY))

    def _said(self, words: tuple[str, ...], seconds: float) -> str:
        """Return the first line that a program prints, or has printed not long ago."""
        now = time.monotonic()
        known = self._kept.get(words)
        if known is None or now - known[0] >= seconds:
            known = self._kept[words] = (now, self._run(words))
        return known[1]


def tegrastats_values(line: str) -> tuple[list[tuple[str, float]], list[float]]:
    """Return the power rails in W and the temperatures in °C of a line of ``tegrastats``."""
    rails = [(name, int(now) / 1000) for name, now in _TEGRA_POWER.findall(line)]
    heat = [float(value) for name, value in _TEGRA_HEAT.findall(line) if name != "PMIC"]
    return rails, heat


def first_line(words: tuple[str, ...]) -> str:
    """Run a program until its first line; empty if it is not installed, fails or takes too long."""
    if shutil.which(words[0]) is None:
        return ""
    data, end = b"", time.monotonic() + PROGRAM_SECONDS
    quiet = subprocess.DEVNULL
    with subprocess.Popen(words, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet) as child:
        assert child.stdout is not None
        output = child.stdout.fileno()
        while b"\n" not in data and (left := end - time.monotonic()) > 0:
            ready = select.select([output], [], [], left)[0]
            piece = os.read(output, 4096) if ready else b""
            if not piece:
                break
            data += piece
        child.kill()
    return data.partition(b"\n")[0].decode(errors="replace").strip()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip("\x00 \n")
    except OSError:
        return ""


def _number(path: Path) -> float | None:
    try:
        value = float(_text(path))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _numbers(paths: Iterable[Path]) -> list[float]:
    return [value for value in map(_number, paths) if value is not None]
