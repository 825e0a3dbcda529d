"""The samples of an agent over its restarts: their split, and those of a run at work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from device_agent.daemon.announced_samples import RUN_AT_WORK, SAMPLES, OpenRun
from device_agent.daemon.own_data import DATABASE, OwnData
from device_agent.identity.device_name import agent_folder
from edgefed.config.fleet.settings import AgentSettings
from edgefed.data.base.types import DeviceData
from edgefed.data.devices.sources import load_device
from edgefed.files.samples import Samples
from tests.data.helpers import write_image

SHARE = 0.25


class Device:
    """A device with a table or with photos of three classes, the first of which comes later."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.path = folder / ("rows.npz" if kind == "npz" else "photos")
        source = f"{kind}:{self.path}"
        self.settings = AgentSettings(data=source, state=folder / "state", name="x", holdout=SHARE)
        self.folder = agent_folder(self.settings)
        self.grow(0, 40)

    def grow(self, start: int, end: int) -> None:
        """Write samples; those before ``start`` stay."""
        if self.path.suffix:
            rows = np.random.default_rng(0).standard_normal((1000, 3)).astype(np.float32)
            np.savez(self.path, x=rows[:end], y=np.arange(end) % 2)
            return
        for number in range(start, end):
            name = ("bees", "cats", "dogs")[number % 3 if start else 1 + number % 2]
            write_image(self.path / name / f"{number:04d}.png", (4, 4, 3), number)

    def start(self) -> DeviceData:
        own = OwnData(self.settings)
        data = own.read(at_start=True)
        own.announce()
        return data


@pytest.fixture(params=["npz", "folder"])
def device(request: pytest.FixtureRequest, tmp_path: Path) -> Device:
    return Device(tmp_path, request.param)


def bits(part: Samples) -> list[bytes]:
    return [row.tobytes() for row in np.asarray(part.inputs)]


def everything(data: DeviceData) -> tuple[object, ...]:
    parts = [(bits(part), part.targets.tobytes()) for part in (data.train, data.test)]
    return (*parts, data.classes, data.class_names)


def test_an_older_agents_samples_stay_held_out_when_its_data_grow(device: Device) -> None:
    device.folder.mkdir(parents=True)
    (device.folder / DATABASE).write_bytes(b"")
    before = load_device(device.settings.data, SHARE, device.settings.state / "data")
    assert everything(device.start()) == everything(before)
    device.grow(40, 200)
    grown = device.start()
    assert {*bits(grown.test)} & {*bits(before.train)} == set()
    assert {*bits(grown.test)} > {*bits(before.test)}
    assert everything(device.start()) == everything(grown)


def test_a_new_agents_samples_are_held_out_by_their_content(device: Device) -> None:
    first = device.start()
    by_order = load_device(device.settings.data, SHARE, device.settings.state / "data")
    assert len(first.test) == len(by_order.test) == 10
    assert bits(first.test) != bits(by_order.test)
    device.grow(40, 200)
    grown = device.start()
    assert {*bits(grown.test)} & {*bits(first.train)} == set()
    assert {*bits(grown.test)} > {*bits(first.test)}


def test_in_a_run_an_agent_starts_with_the_samples_that_it_announced(device: Device) -> None:
    first = device.start()
    OpenRun(device.folder).note("owner")
    device.grow(40, 200)
    own = OwnData(device.settings)
    assert everything(own.read(at_start=True)) == everything(first)
    assert own.is_announced and own.seen == "", "the others are read between two runs"
    assert len(own.read().train) > len(first.train)
    OpenRun(device.folder).note(None)
    assert len(device.start().train) > len(first.train)


def test_of_samples_that_have_gone_an_agent_says_how_many(
    device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    device.grow(40, 80)
    device.start()
    OpenRun(device.folder).note("owner")
    if device.path.is_dir():
        for path in device.path.glob("*/00[4-7]*.png"):
            path.unlink()
    else:
        device.grow(0, 40)
    data = device.start()
    assert len(data.train) + len(data.test) == 40
    lost = [int(text.split()[0]) for text in caplog.messages if "cannot be read any more" in text]
    assert sum(lost) == 40


def test_other_data_or_another_share_are_split_anew(device: Device, tmp_path: Path) -> None:
    device.start()
    OpenRun(device.folder).note("owner")
    device.settings = device.settings.model_copy(update={"holdout": 0.5})
    assert len(device.start().test) == 20
    assert len(device.start().test) == 20
    device.settings = device.settings.model_copy(update={"data": device.settings.data + "?"})
    device.grow(40, 44)
    assert len(device.start().test) == 22


def test_a_damaged_record_is_made_anew(device: Device, caplog: pytest.LogCaptureFixture) -> None:
    first = device.start()
    (device.folder / SAMPLES).write_bytes(b"PK no file")
    (device.folder / DATABASE).write_bytes(b"")
    assert everything(device.start()) == everything(first)
    assert "samples.npz is damaged, and the samples are split anew" in caplog.text


def test_a_run_at_work_is_known_after_a_restart_and_its_end_too(tmp_path: Path) -> None:
    for owner in ("one", "two", None):
        OpenRun(tmp_path).note(owner)
        assert OpenRun(tmp_path).owner == owner
    (tmp_path / RUN_AT_WORK).mkdir()
    run = OpenRun(tmp_path)
    run.note("three")
    assert run.owner == "three", "a disk that does not take it stops nothing"
