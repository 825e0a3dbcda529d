"""The coordinator stores a repository as it is, and offers releases to devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.errors import EdgeFedError
from edgefed.wire.update_messages import UpdateState
from tests.updates.releases_world import SESSION, Coordinator
from tests.updates.wheels import Publisher


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    made = Publisher(tmp_path)
    made.publish("0.2.0")
    return made


def test_offers_and_reports_outlive_the_process(tmp_path: Path, publisher: Publisher) -> None:
    coordinator = Coordinator(tmp_path / "c")
    (release,) = coordinator.releases.add(publisher.folder)
    assert (release["release"], release["number"]) == ("0.2.0", 1)
    coordinator.releases.offer("0.2.0", ["cam"], during_run=False)
    ((device, offer),) = coordinator.sent
    assert (device, offer.release, len(offer.metadata)) == ("cam", "0.2.0", 4)
    again = Coordinator(tmp_path / "c")
    again.releases.joined("cam")
    assert again.sent == [(device, offer)]
    for ref in offer.metadata.values():
        assert again.releases.serves("cam", ref.digest)
        assert not again.releases.serves("other", ref.digest)
        assert len(again.releases.chunk(ref.digest, 0) or b"") == ref.size
    assert again.releases.status()[0]["phase"] == "offered"
    report = UpdateState(
        session=SESSION, release="0.2.0", phase="idle", offer=offer.offer, reason="it has passed"
    )
    again.releases.take("cam", report)
    again.releases.take("cam", report)
    assert again.notes == ["agent of cam: it has passed"]
    again.releases.joined("cam")
    assert len(again.sent) == 1
    row = Coordinator(tmp_path / "c").releases.status()[0]
    assert (row["release"], row["offered"]) == ("0.2.0", "0.2.0")
    again.releases.take("cam", report.model_copy(update={"release": "0.1.0"}))
    row = again.releases.status()[0]
    assert (row["release"], row["offered"], row["phase"]) == ("0.1.0", "", "idle")


@pytest.mark.parametrize(
    ("release", "device", "code"),
    [
        ("0.2.0", "nobody", "device.unknown"),
        ("0.2.0", "far", "release.site"),
        ("9.9.9", "cam", "release.unknown"),
    ],
)
def test_an_offer_that_cannot_be(
    tmp_path: Path, publisher: Publisher, release: str, device: str, code: str
) -> None:
    coordinator = Coordinator(tmp_path / "c")
    coordinator.releases.add(publisher.folder)
    with pytest.raises(EdgeFedError) as refused:
        coordinator.releases.offer(release, [device], during_run=False)
    assert (refused.value.code, coordinator.sent) == (code, [])


def test_a_damaged_repository_is_reported(tmp_path: Path, publisher: Publisher) -> None:
    coordinator = Coordinator(tmp_path / "c")
    (wheel,) = publisher.folder.glob("targets/wheels/*")
    wheel.write_bytes(b"another")
    with pytest.raises(EdgeFedError) as refused:
        coordinator.releases.add(publisher.folder)
    assert refused.value.code == "release.damaged"
    with pytest.raises(EdgeFedError) as refused:
        coordinator.releases.add(tmp_path / "nowhere")
    assert refused.value.code == "release.unknown"
