"""Functions of the dashboard on every screen: jump, copy, alert, and keys that wait for a form."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from textual import events

from edgefed.events.base.alert_events import AlertView
from edgefed.tui.look.text_format import clean
from edgefed.tui.output.lean_app import LeanApp
from edgefed.tui.screens.board import Board
from edgefed.tui.screens.jump import JumpScreen
from edgefed.tui.screens.new_run import NewRunScreen
from edgefed.tui.screens.registry import Copied
from edgefed.tui.screens.run_form import RunFormScreen
from edgefed.tui.state.launching import Draft, Launcher
from edgefed.tui.state.messages import Loaded, ThreadDone
from edgefed.tui.state.threaded_requests import in_thread

_EFFECT_WITHIN = 1.0
"""Seconds at most that a key which has waited may take before the next one is typed."""

_SUSPEND_AFTER = 0.05
"""Seconds between two looks at whether the terminal has taken all that was sent."""


class BoardApp(LeanApp):
    """The base of the dashboard, which gives it a board before it runs."""

    _board: Board
    _launcher: Launcher | None

    def __init__(self) -> None:
        super().__init__()
        self._typed: list[events.Key] = []
        self._typing = False

    async def on_event(self, event: events.Event) -> None:
        """Let keys wait while the form of a new run is loading, and behind others that wait."""
        if isinstance(event, events.Key) and not event.is_forwarded and self._waits(event):
            self._typed.append(event)
        else:
            await super().on_event(event)

    def _waits(self, event: events.Key) -> bool:
        screen = self.screen
        loading = isinstance(screen, NewRunScreen | RunFormScreen) and screen.is_loading
        return self._typing or (loading and event.key != "escape")

    def on_loaded(self, message: Loaded) -> None:
        """Type the keys that have waited into the form; without one, they have no effect."""
        if not message.ok:
            self._typed.clear()
        elif self._typed:
            self._typing = True
            self.run_worker(self._type())

    async def _type(self) -> None:
        """Type one key after the other, each when the one before has had its effect."""
        while self._typed:
            event, target = self._typed.pop(0), self.focused or self.screen
            await super().on_event(event)
            for node in target.ancestors_with_self:  # a key goes up this way
                done = asyncio.Event()
                if node.call_later(done.set):
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(done.wait(), _EFFECT_WITHIN)
        self._typing = False

    def action_jump(self) -> None:
        """Ask for the name of a screen, and go there."""
        self.push_screen(JumpScreen(self._board.glyphs), self.run_call)

    def action_copy(self) -> None:
        """Copy the subject of the screen, or the id of the run."""
        update = self._board.watch.latest
        run = update.snapshot.run if update.snapshot else None
        copied = self.screen.copied() if isinstance(self.screen, Copied) else None
        text = copied or (run.run if run else "")
        if text:
            self.copy_to_clipboard(text)
        self.notify(f"Copied {clean(text)}" if text else "Nothing to copy.", markup=False)

    def action_suspend_process(self) -> None:
        """Suspend to the shell, or report that a browser has none."""
        if self.is_web:
            self.notify("A dashboard in a browser cannot be suspended.", markup=False)
        elif self.behind:  # the shell would get the terminal's answer
            self.set_timer(_SUSPEND_AFTER, self.action_suspend_process)
        else:
            super().action_suspend_process()

    async def action_new_run(self) -> None:
        """Open the choice of the start of a new run."""
        if self._launcher is None:
            board = self._board
            refusal = board.refusal if board.read_only else board.watch.commands.no_start
            self.notify(refusal, severity="warning", markup=False)
        else:
            self._typed.clear()
            await self.push_screen(NewRunScreen(self._board, self._launcher))

    def action_copy_command(self) -> None:
        """Copy the command line that starts a run like the one that is shown."""
        launcher, update = self._launcher, self._board.watch.latest
        run = update.snapshot.run if update.snapshot else None
        if launcher is not None and run is not None:
            ask = partial(launcher.from_run, run.run)
            in_thread(self.screen, ask, self._copy_command, "The run's recipe is not known.")

    def _copy_command(self, draft: Draft) -> None:
        self.copy_to_clipboard(draft.command({}))
        self.notify(f"Copied the command line of {clean(draft.title)}.", markup=False)

    def on_thread_done(self, message: ThreadDone) -> None:
        """Continue with the result of a thread."""
        message.then()

    def tell_alert(self, alert: AlertView, *, audible: bool) -> None:
        """Show on every screen that an alert began, and ring the terminal's bell."""
        title = f"Alert: {alert.about}" if alert.about else "Alert"
        self.notify(clean(alert.text), title=clean(title), severity="error", markup=False)
        if audible:
            self.bell()

    async def run_call(self, call: str | None) -> None:
        """Run an action of the registry; nothing for None."""
        if call:
            await self.run_action(call)
