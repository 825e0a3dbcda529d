"""What the dashboard writes shows the same as Textual's own output; it writes far less.

These tests fail where another version of Textual updates the screen in another way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from textual._compositor import LayoutUpdate
from textual.pilot import Pilot

from edgefed.tui.app import DRAW_EVERY, DRAWING_SHARE, WAITS_AT_MOST, Dashboard
from tests.support.terminal_screen import TerminalScreen
from tests.tui.driving import settle, until
from tests.tui.output.drivers import ScreenDriver, driver_of
from tests.tui.samples import FakeClock, dashboard, fine, snapshot

SIZE = (120, 36)


def in_terminal(
    scenario: Callable[[Pilot[None], FakeClock], Awaitable[None]],
) -> None:
    """Run a scenario on a dashboard that draws as in a real terminal."""
    clock = FakeClock()
    app = dashboard(fine(snapshot()), clock=clock)
    app.driver_class = ScreenDriver

    async def run() -> None:
        async with app.run_test(headless=False, size=SIZE, notifications=True) as pilot:
            await settle(pilot)
            await scenario(pilot, clock)

    asyncio.run(run())


def textual_picture(app: Dashboard) -> list[list[tuple[str, object]]]:
    """Return what the screen shows where Textual writes all of it."""
    compositor = app.screen._compositor
    update = compositor.render_update(full=True, screen_stack=app._background_screens)
    assert isinstance(update, LayoutUpdate)
    whole = TerminalScreen(*app.size)
    whole.take(update.render_segments(app.console).encode())
    return whole.picture()


def shows_the_same(pilot: Pilot[None]) -> bool:
    app = pilot.app
    assert isinstance(app, Dashboard)
    return driver_of(app).shown.picture() == textual_picture(app)


KEYS = (
    "2", "j", "G", "O", "slash", "x", "escape", "enter", "q", "3", "7", "question_mark", "escape",
    "1", "z", "v", "ctrl+t", "ctrl+p", "escape", "2",
)  # fmt: skip


def test_every_screen_looks_as_textual_draws_it() -> None:
    async def scenario(pilot: Pilot[None], clock: FakeClock) -> None:
        app = pilot.app
        assert isinstance(app, Dashboard)
        for key in KEYS:
            await pilot.press(key)
            clock.seconds += 1.0
            app._draw()
            await settle(pilot)
            await until(pilot, lambda: shows_the_same(pilot))
        for size in ((60, 15), (200, 50), SIZE):
            driver_of(app).resize(*size)
            await settle(pilot)
            await until(pilot, lambda: shows_the_same(pilot))

    in_terminal(scenario)


def test_a_screen_that_stands_still_sends_next_to_nothing() -> None:
    async def scenario(pilot: Pilot[None], clock: FakeClock) -> None:
        app = pilot.app
        assert isinstance(app, Dashboard)
        await pilot.press("2")
        await settle(pilot)
        driver = driver_of(app)
        before = driver.bytes
        for _ in range(5):
            app._draw()
            app.screen.refresh()
            await settle(pilot)
        assert driver.bytes == before
        clock.seconds += 1.0  # the time in the header, and ages
        app._draw()
        await settle(pilot)
        assert 0 < driver.bytes - before < 400

    in_terminal(scenario)


def test_a_terminal_that_falls_behind_gets_the_newest_frame_only() -> None:
    async def scenario(pilot: Pilot[None], clock: FakeClock) -> None:
        app = pilot.app
        assert isinstance(app, Dashboard)
        driver = driver_of(app)
        driver.answers = False
        app._backlog._now = lambda: 0.0  # however slow this machine is
        await pilot.press("2")  # writes enough for a question
        await until(pilot, lambda: driver.questions > 0)
        assert app.behind
        before = driver.shown.text()
        for key in ("3", "7", "1", "question_mark"):
            await pilot.press(key)
        await settle(pilot)
        assert driver.shown.text() == before
        driver.answers = True
        driver.answer()
        await until(pilot, lambda: shows_the_same(pilot))

    in_terminal(scenario)


def test_a_drawing_waits_for_a_terminal_that_falls_behind() -> None:
    async def scenario(pilot: Pilot[None], clock: FakeClock) -> None:
        app = pilot.app
        assert isinstance(app, Dashboard)
        driver = driver_of(app)
        driver.answers = False
        app._backlog._now = lambda: 0.0
        await pilot.press("2")
        await until(pilot, lambda: driver.questions > 0)
        drawn = app._drawn_at
        clock.seconds += 10.0
        app._draw_if_due()
        assert app._drawn_at == drawn
        driver.answer()
        await until(pilot, lambda: app._drawn_at > drawn)

    in_terminal(scenario)


def test_a_disturbed_terminal_is_drawn_anew() -> None:
    async def scenario(pilot: Pilot[None], clock: FakeClock) -> None:
        app = pilot.app
        assert isinstance(app, Dashboard)
        for disturb in (app.action_redraw, lambda: driver_of(app).resize(*SIZE)):
            driver_of(app).shown.take(b"\x1b[5;5Ha message to all users\x1b[7;1H\x1b[31mof it")
            assert not shows_the_same(pilot)
            disturb()
            await settle(pilot)
            await until(pilot, lambda: shows_the_same(pilot))

    in_terminal(scenario)


def test_an_answer_does_not_reach_the_shell() -> None:
    """The end waits for an answer that is on its way, about as long as the last one took."""

    async def scenario(pilot: Pilot[None], clock: FakeClock) -> None:
        app = pilot.app
        assert isinstance(app, Dashboard)
        waited: list[float] = []

        async def sleep(seconds: float) -> None:
            waited.append(seconds)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("edgefed.tui.output.lean_app.asyncio.sleep", sleep)
            await app.await_answer()
            assert waited == []
            app._backlog._asked_at = time.monotonic()
            app._backlog.round_trip = 0.2
            await app.await_answer()
            app._backlog.round_trip = 30.0
            await app.await_answer()
        assert waited == [0.4, 1.0]

    in_terminal(scenario)


def test_after_a_costly_drawing_the_next_one_waits() -> None:
    async def scenario(pilot: Pilot[None], clock: FakeClock) -> None:
        app = pilot.app
        assert isinstance(app, Dashboard)
        spent = 0.0
        app._processor = lambda: spent

        def drawn_after(seconds: float) -> bool:
            app._changed = True
            clock.seconds = app._drawn_at + seconds
            before = app._drawn_at
            app._draw_if_due()
            return app._drawn_at > before

        assert drawn_after(DRAW_EVERY)
        spent += 0.7 * DRAWING_SHARE
        assert drawn_after(DRAW_EVERY)
        assert not drawn_after(0.69)
        spent += 0.3 * DRAWING_SHARE
        assert drawn_after(0.71)
        spent += 50 * DRAWING_SHARE
        assert drawn_after(DRAW_EVERY)
        assert not drawn_after(WAITS_AT_MOST - 0.01)
        assert drawn_after(WAITS_AT_MOST)

    in_terminal(scenario)
