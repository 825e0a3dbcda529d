"""GPUs by NVML: a module of the name pynvml with recorded values, and each of its failures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from device_agent.reports.nvidia_gpus import RETRY_EVERY, NvidiaGpus
from device_agent.reports.telemetry import Sensors
from device_agent.tasks.training_process import EnergyMeter
from edgefed.config.fleet.when_settings import WhenSettings
from tests.agent.reports.test_boards import tree_of

NVML = '''
"""The names of nvidia-ml-py, with the values that are in the file ``gpus`` beside this one."""
import json
from pathlib import Path
from types import SimpleNamespace

NVML_TEMPERATURE_GPU = 0

class NVMLError(Exception):
    pass

def read(name, gpu):
    if name not in gpu:
        raise NVMLError("Not Supported")
    return gpu[name]

def nvmlInit():
    global GPUS
    try:
        GPUS = json.loads(Path(__file__).with_name("gpus").read_text())
    except OSError:
        raise NVMLError("Driver Not Loaded") from None

def nvmlDeviceGetCount():
    return len(GPUS)

def nvmlDeviceGetHandleByIndex(number):
    return GPUS[number]

def nvmlDeviceGetTemperature(gpu, sensor):
    assert sensor == NVML_TEMPERATURE_GPU
    return read("temperature", gpu)

def nvmlDeviceGetPowerUsage(gpu):
    return read("milliwatts", gpu)

def nvmlDeviceGetUtilizationRates(gpu):
    return SimpleNamespace(gpu=read("load", gpu), memory=99)
'''

GPUS = (
    '[{"temperature": 61, "milliwatts": 132500, "load": 97},'
    ' {"temperature": 44, "milliwatts": 9250, "load": 0}]'
)
HALF = '[{"temperature": 61, "load": 97}, {"milliwatts": 9250}]'
"""A GPU without a sensor of its power, and one with no other."""


class Clock:
    """A clock that is set."""

    time = 0.0

    def monotonic(self) -> float:
        return self.time


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with such a module; the file ``gpus`` stands for the driver."""
    folder = tmp_path / "nvml"
    folder.mkdir()
    (folder / "pynvml.py").write_text(NVML)
    (folder / "gpus").write_text(GPUS)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    return folder


def values(sensors: Sensors) -> tuple[float | None, float | None, float | None]:
    return sensors.temperature(), sensors.power(), sensors.gpu()


def test_gpus_add_up_and_the_hottest_and_busiest_counts(nvml: Path) -> None:
    sensors = Sensors(nvml, gpus=NvidiaGpus())
    assert values(sensors) == (61.0, 141.75, 97.0)
    limits = WhenSettings(highest_temperature=60)
    assert sensors.readings(limits, nvml).temperature == 61.0
    clock = Clock()
    meter = EnergyMeter(sensors.power, clock)  # type: ignore[arg-type]
    meter.begin()
    clock.time = 2.0
    assert meter.end() == 283.5


def test_each_reading_that_a_gpu_lacks_is_left_out(nvml: Path) -> None:
    (nvml / "gpus").write_text(HALF)
    sensors = Sensors(nvml, gpus=NvidiaGpus())
    assert values(sensors) == (61.0, 9.25, 97.0)


def test_sensors_of_the_board_come_first(nvml: Path, tmp_path: Path) -> None:
    tree = tree_of("agx-orin", tmp_path)
    with_gpus = Sensors(tree, gpus=NvidiaGpus())
    assert with_gpus.temperature() == 61.0
    assert (with_gpus.power(), with_gpus.gpu()) == (Sensors(tree).power(), Sensors(tree).gpu())


def test_without_a_driver_nothing_changes_until_there_is_one(nvml: Path) -> None:
    (nvml / "gpus").rename(nvml / "later")
    clock = Clock()
    sensors = Sensors(nvml, gpus=NvidiaGpus(clock.monotonic))
    assert values(sensors) == values(Sensors(nvml)) == (None, None, None)
    (nvml / "later").rename(nvml / "gpus")
    clock.time = RETRY_EVERY - 1
    assert sensors.power() is None  # a reading takes no time for another try
    clock.time = RETRY_EVERY
    assert sensors.power() == 141.75
    (nvml / "gpus").write_text(HALF)
    clock.time *= 3
    assert sensors.power() == 141.75  # NVML is opened once


@pytest.mark.parametrize("text", [None, "raise OSError", "NVMLError = OSError"])
def test_without_the_package_or_with_a_broken_one_nothing_changes(
    text: str | None, nvml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nvml / "pynvml.py").write_text(text or "")
    if text is None:
        monkeypatch.setitem(sys.modules, "pynvml", None)  # its import fails
    sensors = Sensors(nvml, gpus=NvidiaGpus())
    assert values(sensors) == (None, None, None)


def test_nothing_is_imported_before_the_first_reading(nvml: Path) -> None:
    gpus = NvidiaGpus()
    assert "pynvml" not in sys.modules
    gpus.temperatures()
    assert "pynvml" in sys.modules
