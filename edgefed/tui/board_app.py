"""Functions of the dashboard on every screen: jump, copy, alert."""

from __future__ import annotations

from functools import partial

from edgefed.events.base.alert_events import AlertView
from edgefed.tui.look.text_format import clean
from edgefed.tui.output.lean_app import LeanApp
from edgefed.tui.screens.board import Board
from edgefed.tui.screens.jump import JumpScreen
from edgefed.tui.screens.new_run import NewRunScreen
from edgefed.tui.screens.registry import Copied
from edgefed.tui.state.launching import Draft, Launcher
from edgefed.tui.state.messages import ThreadDone
from edgefed.tui.state.threaded_requests import in_thread

_SUSPEND_AFTER = 0.05
"""Seconds between two looks at whether the terminal has taken all that was sent."""


class BoardApp(LeanApp):
    """The base of the dashboard, which gives it a board before it runs."""

    _board: Board
    _launcher: Launcher | None

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

    def action_new_run(self) -> None:
        """Open the choice of the start of a new run."""
        if self._launcher is None:
            board = self._board
            refusal = board.refusal if board.read_only else board.watch.commands.no_start
            self.notify(refusal, severity="warning", markup=False)
        else:
            self.push_screen(NewRunScreen(self._board, self._launcher))

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
