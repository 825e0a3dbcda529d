"""Keys that concern one device: on the row of the table, and on the device's own screen."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from edgefed.errors import TimeLimitError
from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.tui.keys.actions import ACTIONS
from edgefed.tui.screens.device import DeviceScreen
from edgefed.tui.screens.device_keys import DeviceQuestion
from edgefed.tui.screens.devices import DevicesScreen
from edgefed.tui.state.device_key_orders import DeviceKey, DeviceOrder, order_for_device
from edgefed.tui.state.key_orders import READ_ONLY
from edgefed.tui.tables.device_table import DeviceTable
from tests.tui.driving import drive, notices, press, screen_text, tell
from tests.tui.samples import RecordingControl, ago, dashboard, device_view, fine, snapshot

SMALL = (80, 24)
PAUSED: dict[str, object] = {
    "state": "paused",
    "paused_by": "operator.ann",
    "pause_reason": "noisy fan",
    "state_since": ago(95),
}


def of_fleet(*views: DeviceSnapshot) -> FeedUpdate:
    return fine(snapshot().model_copy(update={"devices": views}))


@pytest.mark.parametrize(
    ("key", "changes", "wanted"),
    [
        ("pause", {}, "pause"),
        ("pause", PAUSED, "resume"),
        ("pause", {"state": "paused"}, "pause"),
        ("quarantine", {}, "quarantine"),
        ("quarantine", {"standing": "quarantined"}, "is quarantined already"),
        ("release", {"standing": "quarantined"}, "release"),
        ("release", {"standing": "suspect"}, "is not quarantined"),
        ("release", {"excluded": "too many; edgefed device release cam-1"}, "release"),
        ("forget", {"state": "lost"}, "forget"),
        ("forget", {}, "is online"),
    ],
)
def test_a_key_orders_what_fits_the_device(
    key: DeviceKey, changes: dict[str, object], wanted: str
) -> None:
    order = order_for_device(key, device_view(6, **changes))
    if isinstance(order, DeviceOrder):
        assert (order.action, order.device) == (wanted, "jetson-06")
    else:
        assert wanted in order


def test_the_key_of_a_paused_device_is_called_resume() -> None:
    both = of_fleet(device_view(6, **PAUSED), device_view(7))

    async def scenario(pilot: Pilot[None]) -> None:
        resumes = ("P Resume" in screen_text(pilot), "P Pause…" in screen_text(pilot))
        await press(pilot, "right")
        assert resumes == ("P Pause…" in screen_text(pilot), "P Resume" in screen_text(pilot))
        assert resumes == (True, False)
        await press(pilot, "left", "enter")
        assert "P Resume" in screen_text(pilot)
        await press(pilot, "right_square_bracket")
        assert "P Pause…" in screen_text(pilot)

    drive(dashboard(both, control=RecordingControl()), scenario)


def test_a_pause_asks_for_the_reason_and_names_the_device() -> None:
    control = RecordingControl()

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "P")
        assert isinstance(pilot.app.screen, DeviceQuestion)
        text = screen_text(pilot)
        assert "Pause jetson-06?" in text
        assert "No round asks it until it is resumed." in text
        await press(pilot, *"y fan", "enter")
        assert control.device_orders == [("pause", "jetson-06", "y fan")]
        assert [text for _, text in notices(pilot)] == [
            "jetson-06 is paused: it is not asked until it is resumed."
        ]

    drive(dashboard(of_fleet(device_view(6)), control=control, screen="devices"), scenario, SMALL)


def test_escape_from_a_question_orders_nothing() -> None:
    control = RecordingControl()

    async def scenario(pilot: Pilot[None]) -> None:
        for key in ("P", "x"):
            await press(pilot, key, "escape")
            assert isinstance(pilot.app.screen, DevicesScreen)
        await press(pilot, "x", "n")
        await press(pilot, "x", "enter")  # Cancel has the focus
        assert isinstance(pilot.app.screen, DevicesScreen)
        assert control.device_orders == []

    drive(dashboard(of_fleet(device_view(6)), control=control, screen="devices"), scenario)


KEYS: list[tuple[tuple[str, ...], dict[str, object], str]] = [
    (("x", "y"), {}, "quarantine"),
    (("x", "tab", "enter"), {}, "quarantine"),
    (("r",), {"standing": "quarantined"}, "release"),
    (("D", "y"), {"state": "lost"}, "forget"),
    (("P",), PAUSED, "resume"),
]


def test_keys_order_on_the_table_and_on_the_devices_screen() -> None:
    control = RecordingControl()

    async def scenario(pilot: Pilot[None]) -> None:
        for keys, changes, action in KEYS:
            control.device_orders.clear()
            await tell(pilot, of_fleet(device_view(6, **changes)))
            await press(pilot, *keys)
            await press(pilot, "enter")
            assert isinstance(pilot.app.screen, DeviceScreen)
            await press(pilot, *keys)
            assert control.device_orders == [(action, "jetson-06", "")] * 2
            await press(pilot, "escape")

    app = dashboard(of_fleet(device_view(6)), control=control, screen="devices")
    drive(app, scenario, SMALL)


def test_a_ping_says_how_long_it_took_and_a_silent_device_is_named() -> None:
    silent = TimeLimitError("jetson-06 did not answer within 5 s.", code="device.silent", hint="h")

    async def answered(pilot: Pilot[None]) -> None:
        await press(pilot, "i")
        assert notices(pilot) == [("", "jetson-06 answered in 9.0 ms.")]

    async def unanswered(pilot: Pilot[None]) -> None:
        await press(pilot, "i")
        assert notices(pilot) == [("jetson-06 did not answer within 5 s.", "h")]

    update = of_fleet(device_view(6))
    drive(dashboard(update, control=RecordingControl(), screen="devices"), answered)
    drive(dashboard(update, control=RecordingControl(silent), screen="devices"), unanswered)


def test_a_dashboard_that_only_watches_says_so_for_every_key() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        keys = [action.key for action in ACTIONS if action.place == "device"]
        assert len(keys) == 5
        await press(pilot, *keys)
        await press(pilot, "enter", "l")
        assert isinstance(pilot.app.screen, DeviceScreen)
        assert [text for _, text in notices(pilot)] == [READ_ONLY] * 6

    drive(dashboard(of_fleet(device_view(6)), screen="devices"), scenario)


def test_without_a_row_a_key_orders_nothing() -> None:
    control = RecordingControl()

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "i", "x", "P")
        assert isinstance(pilot.app.screen, DevicesScreen)
        assert (control.device_orders, notices(pilot)) == ([], [])

    drive(dashboard(of_fleet(), control=control, screen="devices"), scenario)


def test_who_paused_a_device_and_why_is_on_every_screen() -> None:
    update = of_fleet(device_view(6, **PAUSED))

    async def scenario(pilot: Pilot[None]) -> None:
        assert "jetson-06 paused by operator.ann" in " ".join(screen_text(pilot).split())
        await press(pilot, "2")
        assert "◌ paused    by operator.ann" in screen_text(pilot)
        await press(pilot, "enter")
        text = screen_text(pilot)
        assert "paused  90 s since 14:00:56" in text
        assert "reason      by operator.ann: noisy fan" in text

    drive(dashboard(update), scenario, (120, 36))


def test_a_device_that_finishes_its_work_says_that_it_is_paused_then() -> None:
    view = device_view(2, **{**PAUSED, "state": "train"})

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "enter")
        text = screen_text(pilot)
        assert "● train" in text
        assert "paused      by operator.ann: noisy fan" in text

    drive(dashboard(of_fleet(view), screen="devices"), scenario, SMALL)


def test_brackets_step_through_the_devices_in_the_order_of_the_table() -> None:
    views = [device_view(1, device=name) for name in ("a-1", "b-2", "c-3")]

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "o", "O")  # by id, from the end
        assert pilot.app.screen.query_one(DeviceTable).ids == ("c-3", "b-2", "a-1")
        await press(pilot, "g", "enter")
        for key, name in (("]", "b-2"), ("]", "a-1"), ("]", "c-3"), ("[", "a-1"), ("[", "b-2")):
            await press(pilot, "right_square_bracket" if key == "]" else "left_square_bracket")
            assert f"╭─ {name} ─" in screen_text(pilot)
        await press(pilot, "P")
        assert isinstance(pilot.app.screen, DeviceQuestion)
        pilot.app.screen.query_one(Input).value = "heat"
        await press(pilot, "enter")
        assert control.device_orders == [("pause", "b-2", "heat")]

    control = RecordingControl()
    drive(dashboard(of_fleet(*views), control=control, screen="devices"), scenario)


def test_odd_ids_are_shown_clean_in_questions() -> None:
    odd = device_view(6, device="[red]\x1b" + "x" * 90)

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "x")
        text = screen_text(pilot)
        assert "Quarantine [red]?xxx" in text
        assert not {char for char in text if ord(char) > 126 or (ord(char) < 32 and char != "\n")}

    app = dashboard(of_fleet(odd), control=RecordingControl(), screen="devices", letters=True)
    drive(app, scenario, SMALL)
