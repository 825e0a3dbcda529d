"""The picture for the README shows the program itself."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from edgefed.errors import TimeLimitError
from edgefed.tui import screenshot
from edgefed.tui.screenshot import save_picture
from tests.tui.samples import FakeClock, feed, fine, snapshot


def _words(path: Path) -> str:
    texts = ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    return " ".join(text.text or "" for text in texts).replace("\xa0", " ")


def test_a_picture_of_the_devices(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "devices.svg"
    save_picture(feed(clock, fine(snapshot())), (120, 36), path, clock=clock, screen="devices")
    assert "jetson-07" in _words(path)


def test_keys_are_pressed_before(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "help.svg"
    save_picture(feed(clock, fine(snapshot())), (120, 36), path, clock=clock, press=["f1"])
    assert "pause after the open exchange" in _words(path)


def test_a_feed_without_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screenshot, "_LOOKS", 3)
    clock, path = FakeClock(), tmp_path / "nothing.svg"
    with pytest.raises(TimeLimitError):
        save_picture(feed(clock, fine(None)), (80, 24), path, clock=clock)
    assert not path.exists()
