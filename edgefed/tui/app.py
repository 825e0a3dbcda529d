"""The dashboard: it watches a fleet through a feed and sends requests through a control."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Literal

from textual.app import App, SystemCommand
from textual.filter import LineFilter, Monochrome, NoColor
from textual.screen import Screen

from edgefed.clock import Clock
from edgefed.errors import EdgeFedError, StorageError
from edgefed.events.feed_update import FeedUpdate
from edgefed.tui.actions import Place, actions_of, bindings_of
from edgefed.tui.closing import WATCHES, Closing
from edgefed.tui.commands import Commands
from edgefed.tui.contrast import ReadableColours
from edgefed.tui.display_state import DisplayState
from edgefed.tui.interfaces import Control, Feed
from edgefed.tui.messages import Answered, Fresh
from edgefed.tui.orders import READ_ONLY, Order, order_for, takes_orders
from edgefed.tui.preferences import Preferences, load_preferences, save_preferences
from edgefed.tui.screens.abort import AbortScreen
from edgefed.tui.screens.board import Board
from edgefed.tui.screens.close import CloseScreen
from edgefed.tui.screens.device import DeviceScreen
from edgefed.tui.screens.devices import DevicesScreen
from edgefed.tui.screens.experts import ExpertsScreen
from edgefed.tui.screens.help import HelpScreen
from edgefed.tui.screens.overview import OverviewScreen
from edgefed.tui.screens.rounds_map import RoundsMapScreen
from edgefed.tui.symbols import Glyphs
from edgefed.tui.theme import EDGEFED, EDGEFED_LIGHT

DRAW_EVERY = 0.5
"""Least seconds between two drawings."""

ScreenName = Literal["overview", "devices", "experts"]
SCREENS: dict[ScreenName, Callable[[Board], Screen[None]]] = {
    "overview": OverviewScreen,
    "devices": DevicesScreen,
    "experts": ExpertsScreen,
}
_FOREVER = 7 * 24 * 3600.0
"""Seconds for which a notice stays that only the user ends."""

FIRST: ScreenName = "overview"
"""Where going back ends."""


_DRAWN = OverviewScreen | DevicesScreen | ExpertsScreen | DeviceScreen | RoundsMapScreen
"""Screens that show the newest snapshot."""


class Dashboard(App[None]):
    """Screens over one feed.

    Args:
        feed: where snapshots come from.
        control: who takes orders; None makes the dashboard read-only.
        clock: where the time comes from.
        ascii: draw letters in place of symbols, for terminals without them.
        zone: zone for times of day; None is this machine's.
        screen: the screen to begin with.
        preferences: the file that remembers the user's choices; None remembers nothing.
        closing: what ends with the dashboard.
        starting: what to say as long as there is no run, because one was just started.
    """

    CSS_PATH = "dashboard.tcss"
    TITLE = "EdgeFed"
    COMMANDS = {Commands}  # noqa: RUF012 - as Textual declares it
    BINDINGS = bindings_of("screens", "run", "everywhere")

    def __init__(
        self,
        feed: Feed,
        control: Control | None,
        clock: Clock,
        ascii: bool = False,  # noqa: A002
        *,
        zone: tzinfo | None = None,
        screen: ScreenName = "overview",
        preferences: Path | None = None,
        closing: Closing = WATCHES,
        starting: str = "",
    ) -> None:
        super().__init__()
        self._preferences = preferences
        self._closes = closing
        self._ended = False
        self._readable: dict[str, ReadableColours] = {}
        self._feed = feed
        self._control = control
        self._time = clock
        self._watch_of_feed = DisplayState(clock, zone, starting)
        self._board = Board(self._watch_of_feed, Glyphs(ascii), control is None)
        self._first_screen = screen
        self._drawn_at = -DRAW_EVERY
        for name, kind in SCREENS.items():
            self.add_mode(name, partial(kind, self._board))

    @property
    def latest(self) -> FeedUpdate:
        """The newest update of the feed."""
        return self._watch_of_feed.latest

    async def on_mount(self) -> None:
        """Open the first screen, then begin to listen."""
        self._choose_theme()
        self.set_class(self._board.glyphs.ascii, "-ascii")
        await self.switch_mode(self._first_screen)
        self.set_interval(DRAW_EVERY, self._draw_if_due)
        self._feed.start(self._listen)

    def _choose_theme(self) -> None:
        """Begin with the theme that was chosen last, then remember each other choice."""
        self.register_theme(EDGEFED)
        self.register_theme(EDGEFED_LIGHT)
        path = self._preferences
        chosen = load_preferences(path).theme if path else EDGEFED.name
        self.theme = chosen if chosen in self.available_themes else EDGEFED.name
        if path is not None:
            self.watch(self, "theme", partial(self._remember_theme, path), init=False)

    def _remember_theme(self, path: Path, theme: str) -> None:
        try:
            save_preferences(path, Preferences(theme=theme))
        except StorageError as error:
            self.notify(error.hint, title=error.message, severity="warning", markup=False)

    @property
    def colour_system(self) -> str | None:
        """Rich's name of the terminal's colours; a picture, which has none, shows them all."""
        return None if self.is_headless else self.console.color_system

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return Textual's filters, with the one that makes all colours readable as the last."""
        own = self._readable.get(self.theme)
        if own is None:
            own = self._readable[self.theme] = ReadableColours(
                self.current_theme,
                colours=not self.no_color,
                system=self.colour_system,
            )
        others = super().get_line_filters()
        return [*(each for each in others if not isinstance(each, Monochrome | NoColor)), own]

    def on_unmount(self) -> None:
        """Stop listening."""
        self._feed.stop()

    def _listen(self, update: FeedUpdate) -> None:
        """Take an update in the feed's thread; nothing but the message crosses over."""
        self.post_message(Fresh(update))

    def on_fresh(self, message: Fresh) -> None:
        """Keep the newest update and draw it, unless it was drawn a moment ago."""
        first = self.latest.snapshot is None
        self._watch_of_feed.take(message.update)
        if first:
            self._draw()
        else:
            self._draw_if_due()

    def _draw_if_due(self) -> None:
        if self._time.monotonic() - self._drawn_at >= DRAW_EVERY:
            self._draw()

    def _draw(self) -> None:
        self._drawn_at = self._time.monotonic()
        screen = self.screen
        if isinstance(screen, _DRAWN) and screen.is_mounted:
            screen.draw()

    def action_show(self, screen: ScreenName) -> None:
        """Go to a screen."""
        self.switch_mode(screen)

    async def action_back(self) -> None:
        """Leave a screen for the one before; on the first one, say how to quit."""
        if len(self.screen_stack) > 1:
            self.pop_screen()
        elif self.current_mode != FIRST:
            await self.switch_mode(FIRST)
        elif self._ended:
            self.exit()
        else:
            self.notify("This is the first screen: ctrl+q quits.", markup=False)

    async def action_quit(self) -> None:
        """Close the dashboard, after a question where more ends with it."""
        if not self._closes.question or isinstance(self.screen, CloseScreen):
            self.exit()
            return

        def decided(sure: bool | None) -> None:
            if sure:
                self.exit()

        self.push_screen(CloseScreen(self._board.glyphs, self._closes.question), decided)

    def run_ended(self) -> None:
        """Stay open when the run for which the dashboard was opened has ended, and say so."""
        self._ended = True
        self.notify("q closes the dashboard.", title="The run has ended.", timeout=_FOREVER,
                    markup=False)  # fmt: skip

    def action_freeze(self) -> None:
        """Let the display stand still, or go on."""
        watch = self._watch_of_feed
        if watch.frozen:
            watch.thaw()
        else:
            watch.freeze()
        self._draw()

    def action_other_theme(self) -> None:
        """Go from dark colours to light ones, or back."""
        self.theme = (EDGEFED_LIGHT if self.current_theme.dark else EDGEFED).name

    def action_help(self) -> None:
        """Open the page of keys."""
        self.push_screen(HelpScreen(self._board.glyphs, self._closes))

    def action_pause_or_resume(self) -> None:
        """Ask to pause the run, or to resume it."""
        self._order(self._order_for("pause"))

    def action_step(self) -> None:
        """Ask for one exchange."""
        self._order(self._order_for("step"))

    def action_abort(self) -> None:
        """Ask the user, then ask to abort the run."""
        order, snapshot = self._order_for("abort"), self.latest.snapshot
        if order is None or snapshot is None or snapshot.run is None:
            return

        def decided(sure: bool | None) -> None:
            self._order(order if sure else None)

        self.push_screen(AbortScreen(self._board.glyphs, snapshot, snapshot.run), decided)

    def _order_for(self, key: Literal["pause", "step", "abort"]) -> Order | None:
        """Return the order behind a key, or tell the user why there is none."""
        snapshot = self.latest.snapshot
        order = order_for(key, snapshot.run if snapshot else None)
        if self._control is None:
            order = READ_ONLY
        if isinstance(order, Order):
            return order
        self.notify(order, severity="warning", markup=False)
        return None

    def _order(self, order: Order | None) -> None:
        """Send an order from a thread of its own: the coordinator may take its time."""
        control = self._control
        if order is None or control is None:
            return

        def send() -> None:
            try:
                control.order(order.action, order.run)
            except Exception as error:  # whatever it is, the screen must live on
                self.post_message(Answered(order, error))
            else:
                self.post_message(Answered(order))

        self.run_worker(send, thread=True, group="orders")

    def on_answered(self, message: Answered) -> None:
        """Tell the user what became of an order."""
        error = message.error
        if error is None:
            self.notify(message.order.taken(), markup=False)
        elif isinstance(error, EdgeFedError):
            self.notify(error.hint, title=error.message, severity="error", markup=False)
        else:
            title = f"Could not {message.order.action} {message.order.run}."
            self.notify(f"{type(error).__name__}: {error}", title=title, severity="error",
                        markup=False)  # fmt: skip

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield the palette's commands: Textual's theme and screenshot, the registry's actions."""
        yield from self._commands("screens", "everywhere")
        for command in super().get_system_commands(screen):
            if command.title in ("Theme", "Screenshot"):
                yield command
        if takes_orders(self.latest.snapshot.run if self.latest.snapshot else None):
            yield from self._commands("run")

    def _commands(self, *places: Place) -> Iterator[SystemCommand]:
        for action in actions_of(*places):
            yield SystemCommand(
                action.word, action.sentence, lambda call=action.call: self._run_call(call)
            )

    async def _run_call(self, call: str) -> None:
        await self.run_action(call)


def run_dashboard(
    feed: Feed,
    control: Control | None,
    clock: Clock,
    ascii: bool = False,  # noqa: A002
    *,
    screen: ScreenName = "overview",
) -> int:
    """Show the dashboard until the user closes it, and return the exit code of the process.

    Textual draws on stderr: do not redirect it, and let no log go there.
    """
    app = Dashboard(feed, control, clock, ascii, screen=screen)
    app.run()
    return app.return_code or 0
