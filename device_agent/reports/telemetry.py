"""Health of a board: from psutil, and from a Jetson's sensors in sysfs if there are any."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import psutil

from edgefed.wire.messages import Telemetry

MODEL_FILES = ("proc/device-tree/model", "sys/class/dmi/id/product_name")
GPU_LOADS = (
    "sys/devices/gpu.0/load",
    "sys/devices/platform/gpu.0/load",
    "sys/devices/platform/bus@0/17000000.gpu/load",
)
TOTAL_RAILS = ("VDD_IN", "POM_5V_IN")
"""Labels of the rail that feeds the whole board."""


class Sensors:
    """Reads the board's sensors; a value without a sensor is None.

    Args:
        root: the folder with ``sys`` and ``proc``; tests make their own.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._process = psutil.Process()
        psutil.cpu_percent()

    def read(self, session: str, sent: int, received: int) -> Telemetry:
        """Return the health now."""
        memory = psutil.virtual_memory()
        battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
        return Telemetry(
            session=session,
            cpu=float(psutil.cpu_percent()),
            gpu=self.gpu(),
            memory=int(memory.used),
            memory_total=int(memory.total),
            temperature=self.temperature(),
            power=self.power(),
            battery=float(battery.percent) if battery else None,
            sent=sent,
            received=received,
        )

    def hardware(self) -> str:
        """Return the board's name, such as ``NVIDIA Jetson Orin Nano``."""
        for name in MODEL_FILES:
            text = _text(self._root / name)
            if text:
                return text[:100]
        return ""

    def temperature(self) -> float | None:
        """Return the hottest thermal zone in °C."""
        zones = self._root.glob("sys/class/thermal/thermal_zone*/temp")
        degrees = [value / 1000 for value in _numbers(zones)]
        return max((degree for degree in degrees if 0 < degree < 150), default=None)

    def power(self) -> float | None:
        """Return the board's total draw in W, from INA3221 monitors.

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
        whole = [watts for name, watts in rails if name in TOTAL_RAILS]
        if whole:
            return whole[0]
        return sum(watts for _, watts in rails) if rails else None

    def gpu(self) -> float | None:
        """Return the GPU's load in percent; Jetson's file counts tenths of a percent."""
        for name in GPU_LOADS:
            value = _number(self._root / name)
            if value is not None:
                return value / 10
        return None


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
