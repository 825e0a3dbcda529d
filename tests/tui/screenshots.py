"""Every screen of the dashboard, over recorded runs of 40 boards."""

from __future__ import annotations

from functools import partial

from textual.pilot import Pilot

from edgefed.tui.app import Dashboard
from edgefed.tui.forms.form_list import FormList
from edgefed.tui.screens.registry import ScreenName
from edgefed.tui.state.closing import ENDS_FLEET
from tests.tui.driving import press
from tests.tui.screenshot_apps import (
    RecordedEvents,
    Replayed,
    Screenshot,
    follow,
    of_recording,
    read_events,
)

A_LATE_DEVICE = ("G", "k", "enter")
TWO_RUNS = ("m", "down", "m", "down", "down", "down", "m", "enter")
A_FORM = ("n", "enter")


def over(name: str, screen: ScreenName, *keys: str) -> Screenshot:
    """Return a screen over a recording."""
    return Screenshot(partial(of_recording, name, screen), keys)


async def write(pilot: Pilot[None], key: str, *typed: str) -> None:
    """Type into the value of a key of the form."""
    pilot.app.screen.query_one(FormList).go_to(key)
    await press(pilot, "enter", *typed)


async def mistake(pilot: Pilot[None]) -> None:
    """Change two values of the form, the second of them to a wrong one."""
    await write(pilot, "seed", "7", "enter")
    await write(pilot, "algorithm.mu", "0", "0", "e", "9")


async def leave(pilot: Pilot[None]) -> None:
    """Change a value of the form and leave it."""
    await write(pilot, "seed", "7", "enter")
    await press(pilot, "escape")


def closing() -> Dashboard:
    """Return a dashboard that ends more than itself."""
    return of_recording("fedprox", "overview", closing=ENDS_FLEET)


def replayed() -> Dashboard:
    """Return a replay at its beginning."""
    return Replayed().app


def events() -> Dashboard:
    """Return the screen of events over a recording."""
    return of_recording("fedprox", "events", events=RecordedEvents("fedprox"))


SCREENS: dict[str, Screenshot] = {
    "overview": over("fedprox", "overview"),
    "devices": over("fedprox", "devices"),
    "device": over("fedprox", "devices", *A_LATE_DEVICE),
    "device-log": over("fedprox", "devices", *A_LATE_DEVICE, "l"),
    "rounds-map": over("fedprox", "devices", "m"),
    "classes": over("fedprox", "classes"),
    "labels": over("bounties", "labels"),
    "experts": over("fedmoe", "experts"),
    "matching": over("fedma", "matching"),
    "runs": over("fedprox", "runs", "m", "down"),
    "comparison": over("fedprox", "runs", *TWO_RUNS),
    "events": Screenshot(events, ["down"], read_events),
    "replay": Screenshot(replayed, ["full_stop"] * 6, follow),
}
"""The screens, each with the window to itself."""

DIALOGS: dict[str, Screenshot] = {
    "new-run": over("fedprox", "overview", "n"),
    "form": Screenshot(partial(of_recording, "fedprox", "overview"), A_FORM, mistake),
    "discard": Screenshot(partial(of_recording, "fedprox", "overview"), A_FORM, leave),
    "abort": over("fedprox", "overview", "A"),
    "pause-device": over("fedprox", "devices", "P"),
    "quit": Screenshot(closing, ["ctrl+q"]),
    "help": over("fedprox", "overview", "question_mark"),
    "jump": over("fedprox", "overview", "colon", "m"),
}
"""What opens over a screen."""

VARIANTS: dict[str, Screenshot] = {
    "many-classes": over("fedma", "classes"),
}
"""Screens with other contents, which have the same colours."""
