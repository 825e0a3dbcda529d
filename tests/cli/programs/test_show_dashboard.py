"""A dashboard is closed for a replay that its user chooses, and opened again afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgefed.cli.programs import show_dashboard
from edgefed.events.history.recording import Recording
from edgefed.process.clock import SystemClock
from edgefed.tui.keys.keymap import OWN_KEYS


class FakeDashboard:
    """A dashboard whose user chooses a replay, or closes it."""

    def __init__(self, replay: Recording | None) -> None:
        self.chosen_replay = replay

    def run(self) -> None: ...


def test_the_list_of_runs_is_shown_after_each_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Recording(tmp_path / "a"), Recording(tmp_path / "b")
    happened: list[object] = []
    choices: list[Recording | None] = [first, second, None]

    def make(screen: str) -> Any:
        happened.append(screen)
        return FakeDashboard(choices.pop(0))

    def replay(recording: Recording, clock: object, *, speed: float, **others: Any) -> None:
        happened.append((recording, speed, others["state"], others["keys"]))

    monkeypatch.setattr(show_dashboard, "show_recording", replay)
    show = show_dashboard._show_with_replays
    show(make, SystemClock(), letters=False, state=tmp_path, keys=OWN_KEYS)
    replays = [(each, 1.0, tmp_path, OWN_KEYS) for each in (first, second)]
    assert happened == ["overview", replays[0], "runs", replays[1], "runs"]
