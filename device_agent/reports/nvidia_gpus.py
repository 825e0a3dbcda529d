"""Sensors of NVIDIA's GPUs, by NVML: the extra ``nvidia`` and a driver; without, there are none."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

RETRY_EVERY = 60.0
"""Seconds after which NVML is tried again: a driver may be loaded later than an agent starts."""


class NvidiaGpus:
    """Reads all GPUs that NVML knows; a reading that a GPU lacks is left out.

    Nothing is imported before the first reading, and no failure of NVML raises an error.

    Args:
        monotonic: clock for the time between two tries.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._nvml: Any = None
        self._handles: list[Any] = []
        self._try_at = float("-inf")

    def temperatures(self) -> list[float]:
        """Return the temperature of each GPU in °C."""
        return self._read(
            lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
        )

    def power(self) -> list[float]:
        """Return the draw of each GPU in W, with its memory."""
        return self._read(lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000)

    def loads(self) -> list[float]:
        """Return the load of each GPU in percent."""
        return self._read(lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu)

    def _read(self, reading: Callable[[Any, Any], float]) -> list[float]:
        self._open()
        readings: list[float] = []
        for gpu in self._handles:
            try:
                readings.append(float(reading(self._nvml, gpu)))
            except Exception:  # not supported, or lost: no reading is worth the agent
                continue
        return readings

    def _open(self) -> None:
        """Look for the library, the driver and the GPUs, unless that was done a moment ago."""
        if self._handles or self._monotonic() < self._try_at:
            return
        self._try_at = self._monotonic() + RETRY_EVERY
        try:
            self._nvml = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            numbers = range(self._nvml.nvmlDeviceGetCount())
            self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(number) for number in numbers]
        except Exception:  # no package, no driver, or one that is of another version
            return
