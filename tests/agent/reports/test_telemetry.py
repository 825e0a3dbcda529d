from __future__ import annotations

from pathlib import Path

import pytest

from device_agent.reports.telemetry import Sensors
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import Telemetry


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def rail(root: Path, name: str, number: int, volts: str, amperes: str, monitor: str = "0") -> None:
    folder = f"sys/bus/i2c/drivers/ina3221/1-004{monitor}/hwmon/hwmon{monitor}"
    write(
        root,
        **{
            f"{folder}/in{number}_label": f"{name}\n",
            f"{folder}/in{number}_input": f"{volts}\n",
            f"{folder}/curr{number}_input": f"{amperes}\n",
        },
    )


def test_a_jetson_orin_is_read_as_it_says(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "proc/device-tree/model": "NVIDIA Jetson Orin Nano Developer Kit\x00",
            "sys/class/thermal/thermal_zone0/temp": "48500\n",
            "sys/class/thermal/thermal_zone1/temp": "51250\n",
            "sys/class/thermal/thermal_zone2/temp": "-256000\n",  # a sensor that is switched off
            "sys/devices/platform/bus@0/17000000.gpu/load": "437\n",
        },
    )
    rail(tmp_path, "VDD_IN", 1, "5000", "1600")
    rail(tmp_path, "VDD_CPU_GPU_CV", 2, "5000", "500")
    sensors = Sensors(tmp_path)
    assert sensors.hardware() == "NVIDIA Jetson Orin Nano Developer Kit"
    assert sensors.temperature() == 51.25
    assert sensors.gpu() == pytest.approx(43.7)
    assert sensors.power() == pytest.approx(8.0)


def test_without_a_total_all_rails_of_all_monitors_are_summed(tmp_path: Path) -> None:
    rail(tmp_path, "VDD_GPU_SOC", 1, "5000", "1000")
    rail(tmp_path, "VDD_CPU_CV", 2, "5000", "400")
    rail(tmp_path, "VIN_SYS_5V0", 1, "5000", "200", monitor="1")
    assert Sensors(tmp_path).power() == pytest.approx(8.0)


def test_rails_of_one_name_on_two_monitors_both_count(tmp_path: Path) -> None:
    rail(tmp_path, "NC", 1, "1000", "1000")
    rail(tmp_path, "NC", 1, "1000", "2000", monitor="1")
    assert Sensors(tmp_path).power() == pytest.approx(3.0)


def test_a_board_without_sensors_tells_nothing(tmp_path: Path) -> None:
    sensors = Sensors(tmp_path)
    assert sensors.hardware() == ""
    assert (sensors.temperature(), sensors.gpu(), sensors.power()) == (None, None, None)


def test_sensors_that_talk_nonsense_are_none(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "sys/class/thermal/thermal_zone0/temp": "hot",
            "sys/devices/gpu.0/load": "",
            "sys/class/dmi/id/product_name": "A board",
        },
    )
    rail(tmp_path, "VDD_IN", 1, "nan?", "")
    sensors = Sensors(tmp_path)
    assert (sensors.temperature(), sensors.gpu(), sensors.power()) == (None, None, None)
    assert sensors.hardware() == "A board"


@pytest.mark.parametrize("word", ["nan", "inf", "-inf"])
def test_a_reading_that_is_no_number_of_this_world_is_none(tmp_path: Path, word: str) -> None:
    write(tmp_path, **{"sys/devices/gpu.0/load": word})
    assert Sensors(tmp_path).gpu() is None


def test_telemetry_of_this_machine_can_be_sent() -> None:
    told = Sensors().read("0" * 8, 12, 34)
    assert decode(encode(told), Telemetry) == told
    assert (told.sent, told.received) == (12, 34)
    assert told.memory and told.memory_total
    assert told.memory < told.memory_total
