"""A device refuses releases that are tampered with, older, expired or frozen, with any clock."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from device_agent.updater.verification import RefusedReleaseError, VerifiedRelease, verify
from edgefed.trust import releases
from edgefed.trust.releases import ReleaseRepository
from tests.updates.wheels import NOW, Publisher

DAY = timedelta(days=1)
WITHOUT_BATTERY = datetime(1970, 1, 2, tzinfo=timezone.utc)


@dataclass
class Device:
    """What a device keeps between two offers."""

    folder: Path
    root: bytes
    clock: datetime = NOW
    signed_at: str = field(default="")

    def take(self, release: str, metadata: Path) -> VerifiedRelease:
        def find(name: str) -> Path | None:
            return metadata / name if (metadata / name).exists() else None

        made = verify(release, find, self.folder, self.root, self.clock, self.signed_at)
        self.signed_at = made.signed_at
        return made


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    made = Publisher(tmp_path)
    made.publish("0.2.0", others={"small": "1.0"})
    return made


@pytest.fixture
def device(tmp_path: Path, publisher: Publisher) -> Device:
    return Device(tmp_path / "device", publisher.root.read_bytes())


def copy(publisher: Publisher, place: str) -> Path:
    """Return the metadata as they are now."""
    return Path(shutil.copytree(publisher.folder / "metadata", publisher.folder.parent / place))


def refuses(device: Device, release: str, metadata: Path, word: str) -> None:
    with pytest.raises(RefusedReleaseError, match=word):
        device.take(release, metadata)


def test_a_release_is_verified(device: Device, publisher: Publisher) -> None:
    made = device.take("0.2.0", publisher.folder / "metadata")
    assert (made.number, sorted(made.versions.values())) == (1, ["0.2.0", "1.0"])
    assert len(made.files) == 3


def test_an_older_state_of_the_repository_is_refused(device: Device, publisher: Publisher) -> None:
    older = copy(publisher, "older")
    publisher.publish("0.3.0")
    device.take("0.3.0", publisher.folder / "metadata")
    refuses(device, "0.2.0", older, "version")
    refuses(device, "0.4.0", publisher.folder / "metadata", "no release 0.4.0")


def test_tampered_metadata_is_refused(device: Device, publisher: Publisher) -> None:
    for name in ("timestamp.json", "2.snapshot.json", "2.targets.json"):
        tampered = copy(publisher, f"tampered-{name}")
        read = json.loads((tampered / name).read_text())
        read["signed"]["expires"] = "2099-01-01T00:00:00Z"
        (tampered / name).write_text(json.dumps(read))
        refuses(device, "0.2.0", tampered, "refused")


def test_a_repository_of_somebody_else_is_refused(
    device: Device, tmp_path: Path, publisher: Publisher
) -> None:
    other = Publisher(tmp_path / "other")
    other.publish("0.2.0")
    refuses(device, "0.2.0", other.folder / "metadata", "refused")
    own_targets = copy(other, "own-targets")
    for path in (publisher.folder / "metadata").glob("*.root.json"):
        shutil.copy(path, own_targets)
    refuses(device, "0.2.0", own_targets, "refused")


def test_a_device_follows_the_root_that_it_has_pinned_to_new_keys(
    device: Device, tmp_path: Path, publisher: Publisher
) -> None:
    """Neither what a replaced key signs, nor a root that the old key has not signed, is taken."""
    device.take("0.2.0", publisher.folder / "metadata")
    thief = Path(shutil.copytree(tmp_path, tmp_path / "thief"))
    for day, replaced in enumerate((["timestamp"], ["targets", "snapshot"], ["root"], [])):
        device.clock = NOW + (300 * day) * DAY  # past the year of the first root
        ReleaseRepository(publisher.folder, device.clock).renew(publisher.keys, 30.0, replaced)
        assert device.take("0.2.0", publisher.folder / "metadata").number == 1, replaced
    publisher.publish("0.3.0", now=device.clock)
    assert device.take("0.3.0", publisher.folder / "metadata").number == 2
    new = Device(tmp_path / "new", publisher.root.read_bytes(), device.clock)
    assert new.take("0.3.0", publisher.folder / "metadata").number == 2

    theft = ReleaseRepository(thief / "repository", device.clock)
    theft.renew(thief / "keys", 30.0)
    for path in (publisher.folder / "metadata").glob("*.root.json"):
        shutil.copy(path, thief / "repository" / "metadata")
    fresh = Device(tmp_path / "fresh", publisher.root.read_bytes(), device.clock)
    for one in (device, fresh):  # a fresh one has no newer metadata to hold against it
        refuses(one, "0.2.0", thief / "repository" / "metadata", "refused")


@pytest.mark.parametrize("again", [["root", "targets"], []], ids=["same", "without"])
@pytest.mark.parametrize("written", range(5))
def test_a_renewal_that_is_cut_short_is_repeated(
    device: Device,
    publisher: Publisher,
    monkeypatch: pytest.MonkeyPatch,
    written: int,
    again: list[str],
) -> None:
    """The two keys, then the metadata of root, targets and snapshot are there before the cut."""
    left = iter(range(written))

    def cut(write: Callable[..., None]) -> Callable[..., None]:
        def one(path: Path, data: bytes) -> None:
            if next(left, None) is None:
                raise InterruptedError
            write(path, data)

        return one

    repository = ReleaseRepository(publisher.folder, NOW)
    with monkeypatch.context() as patch:
        for name in ("write_atomic", "write_output"):
            patch.setattr(releases, name, cut(getattr(releases, name)))
        with pytest.raises(InterruptedError):
            repository.renew(publisher.keys, 30.0, ["root", "targets"])
    repository.renew(publisher.keys, 30.0, again)
    assert device.take("0.2.0", publisher.folder / "metadata").number == 1
    assert not list(publisher.keys.glob("*.new.pem"))


def test_frozen_metadata_expires(device: Device, publisher: Publisher) -> None:
    device.clock = NOW + 31 * DAY
    refuses(device, "0.2.0", publisher.folder / "metadata", "expired")
    ReleaseRepository(publisher.folder, device.clock).sign(7)
    assert device.take("0.2.0", publisher.folder / "metadata").number == 1


def test_a_clock_that_is_behind_revives_nothing(device: Device, publisher: Publisher) -> None:
    frozen = copy(publisher, "frozen")
    device.clock = WITHOUT_BATTERY
    ReleaseRepository(publisher.folder, NOW + 60 * DAY).sign(7)
    device.take("0.2.0", publisher.folder / "metadata")
    newest = device.signed_at
    shutil.rmtree(device.folder)  # even then the time of the last signature counts
    refuses(device, "0.2.0", frozen, "expired")
    assert device.signed_at == newest


def test_the_build_time_counts_too(tmp_path: Path) -> None:
    long_ago = Publisher(tmp_path, now=datetime(2020, 1, 1, tzinfo=timezone.utc), days=3)
    device = Device(tmp_path / "device", long_ago.root.read_bytes(), WITHOUT_BATTERY)
    refuses(device, "0.2.0", long_ago.folder / "metadata", "expired")


def test_a_wheel_for_other_boards_and_one_of_torch(device: Device, publisher: Publisher) -> None:
    from device_agent.updater.verification import _chosen

    with pytest.raises(RefusedReleaseError, match="no wheel of small"):
        _chosen(["small-1.0-cp27-cp27m-win32.whl"])
    with pytest.raises(RefusedReleaseError, match="replace nvidia-cublas"):
        _chosen(["nvidia_cublas-1.0-py3-none-any.whl"])
