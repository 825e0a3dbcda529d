"""The dashboard: it watches a fleet through a feed and sends requests through a control."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from pathlib import Path

from platformdirs import user_downloads_path
from textual.app import SystemCommand
from textual.filter import LineFilter, Monochrome, NoColor
from textual.screen import Screen
from textual.widgets import Input

from edgefed.errors import EdgeFedError, StorageError
from edgefed.events.history.recording import Recording
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.files.writing import make_folder
from edgefed.process.clock import Clock
from edgefed.tui.alert_bell import AlertBell
from edgefed.tui.board_app import BoardApp
from edgefed.tui.commands import Commands
from edgefed.tui.keys.actions import Place, actions_of, bindings_of
from edgefed.tui.keys.keymap import OWN_KEYS, Keymap
from edgefed.tui.look.contrast import ReadableColours
from edgefed.tui.look.symbols import AsciiFilter, Glyphs
from edgefed.tui.look.text_format import clean
from edgefed.tui.look.theme import EDGEFED, EDGEFED_LIGHT
from edgefed.tui.panes.base.keyline import word_of
from edgefed.tui.preferences import Preferences, load_preferences, save_preferences
from edgefed.tui.screens.abort import AbortScreen
from edgefed.tui.screens.board import Board
from edgefed.tui.screens.close import CloseScreen
from edgefed.tui.screens.help import HelpScreen
from edgefed.tui.screens.jump import JumpScreen
from edgefed.tui.screens.question import QuestionScreen, QuestionText
from edgefed.tui.screens.registry import FIRST, SCREENS, Drawn, ScreenName
from edgefed.tui.state.closing import WATCHES, Closing
from edgefed.tui.state.display_state import DisplayState
from edgefed.tui.state.interfaces import Control, Events, Feed, Runs
from edgefed.tui.state.jumping import round_targets
from edgefed.tui.state.key_orders import (
    FINISH,
    CoordinatorOrder,
    OrderKey,
    give,
    order_for,
    takes_orders,
)
from edgefed.tui.state.launching import Launcher
from edgefed.tui.state.messages import (
    Answered,
    CoordinatorRequest,
    Fresh,
    ReplayChosen,
    RequestWanted,
)
from edgefed.tui.state.replay import Replay, ReplayMove
from edgefed.tui.state.run_commands import OWN_COMMANDS, RunCommands

DRAW_EVERY = 0.45
"""Least seconds between two drawings; less than passes between two updates of a live feed, so that
each of them is drawn when it comes."""

AGES_EVERY = 1.0
"""Seconds after which ages are drawn anew, though nothing else has changed."""

DRAWING_SHARE = 0.018
"""Share of a core that drawing may take: after a costly drawing the next one waits, for at most
``WAITS_AT_MOST``."""

WAITS_AT_MOST = 1.5
"""Most seconds between a change and its drawing, however costly drawings are."""

LOOK_EVERY = 0.2
"""Seconds between two looks at whether a drawing is due, or the terminal takes what waits."""

_FOREVER = 7 * 24 * 3600.0
"""Seconds for which a notice stays that only the user ends."""


class Dashboard(BoardApp):
    """Screens over one feed.

    Args:
        feed: source of snapshots.
        control: takes orders; None makes the dashboard read-only.
        clock: source of the time.
        ascii: draw letters in place of symbols, for terminals without them.
        zone: zone for times of day; None is this machine's.
        screen: the screen to begin with.
        preferences: the file that remembers the user's choices; None remembers nothing.
        closing: describes the processes that end with the dashboard.
        starting: text to show while there is no run, because one was just started.
        runs: the runs to list and compare; None where they are not known.
        events: the event log; None where it is not known.
        replay: controls the feed where it is a recording; None for a live fleet.
        bell: ring the terminal's bell for an alert.
        keys: the keys that the user chose.
        launcher: starts runs; None starts none.
        commands: command lines about runs.
        processor: returns the seconds of processor time that the app's thread has taken.

    Attributes:
        chosen_replay: the recording for which the dashboard was closed; None if it was for none.
    """

    CSS_PATH = "dashboard.tcss"
    TITLE = "EdgeFed"
    COMMANDS = {Commands}  # noqa: RUF012 - as Textual declares it
    BINDINGS = bindings_of("screens", "run", "replay", "everywhere")

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
        runs: Runs | None = None,
        events: Events | None = None,
        replay: Replay | None = None,
        bell: bool = False,
        keys: Keymap = OWN_KEYS,
        launcher: Launcher | None = None,
        commands: RunCommands = OWN_COMMANDS,
        processor: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__()
        self.chosen_replay: Recording | None = None
        self._processor = processor
        self._processor_at = 0.0
        self._draws_after = DRAW_EVERY
        self._replay = replay
        self._replay_moved = False
        self._preferences = preferences
        self._closes = closing
        self._ended = False
        self._launcher = launcher
        self._bell = AlertBell(audible=bell)
        self._readable: dict[tuple[str, tuple[LineFilter, ...]], ReadableColours] = {}
        self._feed = feed
        self._control = control
        self._time = clock
        starts = launcher is not None
        shown = replace(commands, new_run_key=keys.label("run.new") if starts else "")
        self._watch_of_feed = DisplayState(clock, zone, starting, replay, keys, shown)
        self._letters = [AsciiFilter()] if ascii else []
        self._board = Board(self._watch_of_feed, Glyphs(ascii), control, runs, starts, events)
        self._first_screen = screen
        self._drawn_at = -AGES_EVERY
        self._changed = False
        for name, kind in SCREENS.items():
            self.add_mode(name, partial(kind, self._board))

    @property
    def latest(self) -> FeedUpdate:
        """The newest update of the feed."""
        return self._watch_of_feed.latest

    async def on_mount(self) -> None:
        """Open the first screen, then start the feed."""
        self._choose_theme()
        self.set_keymap(self._board.keys.bindings())
        self.set_class(self._board.glyphs.ascii, "-ascii")
        await self.switch_mode(self._first_screen)
        self.set_interval(LOOK_EVERY, self._draw_if_due)
        # Panes draw their cursors in the theme's colours, also while no news comes.
        self.theme_changed_signal.subscribe(self, lambda _: self._draw())
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
        """Return one filter that makes all colours readable after Textual's and the letters'."""
        filters = [*super().get_line_filters(), *self._letters]
        before = tuple(one for one in filters if not isinstance(one, Monochrome | NoColor))
        if (self.theme, before) not in self._readable:
            self._readable[self.theme, before] = ReadableColours(
                self.current_theme,
                colours=not self.no_color,
                system=self.colour_system,
                before=before,
            )
        return [self._readable[self.theme, before]]

    async def on_unmount(self) -> None:
        """Stop listening."""
        self._feed.stop()
        await self.await_answer()

    def _listen(self, update: FeedUpdate) -> None:
        """Take an update in the feed's thread; nothing but the message crosses over."""
        self.post_message(Fresh(update))

    def on_fresh(self, message: Fresh) -> None:
        """Keep the newest update and draw it, unless another one was drawn a moment ago."""
        at_once = self.latest.snapshot is None or self._replay_moved
        self._changed |= message.update.is_news_after(self.latest)
        self._watch_of_feed.take(message.update)
        for alert in self._bell.new(message.update):
            self.tell_alert(alert, audible=self._bell.audible)
        if at_once:
            self._replay_moved = False
            self._draw()
        else:
            self._draw_if_due()

    def _draw_if_due(self) -> None:
        self.leave_closed_terminal()
        self.send_changes()
        if self.behind:  # nobody would see it: the next drawing will be a newer one
            return
        since = self._time.monotonic() - self._drawn_at
        if since >= (self._draws_after if self._changed else AGES_EVERY):
            self._draw()

    def _draw(self) -> None:
        self._drawn_at, self._changed = self._time.monotonic(), False
        before, self._processor_at = self._processor_at, self._processor()
        pause = (self._processor_at - before) / DRAWING_SHARE
        self._draws_after = max(DRAW_EVERY, min(pause, WAITS_AT_MOST))
        for screen in reversed(self.screen_stack):
            if screen.is_mounted and isinstance(screen, Drawn):
                screen.draw()
            if screen.styles.background.a == 1:  # it covers those under it, as a dialog does not
                break

    async def action_show(self, screen: ScreenName) -> None:
        """Go to a screen, and close the screens above its first one."""
        await self.switch_mode(screen)
        while len(self.screen_stack) > 1:
            await self.pop_screen()

    async def action_back(self) -> None:
        """Leave a screen for the one before; on the first one, close the dashboard."""
        if len(self.screen_stack) > 1:
            self.pop_screen()
        elif self.current_mode != FIRST:
            await self.switch_mode(FIRST)
        else:
            await self.action_quit()

    async def action_quit(self) -> None:
        """Close the dashboard from any screen, after a question where more ends with it."""
        if not self._closes.question or isinstance(self.screen, CloseScreen):
            self.exit()
            return

        def decided(sure: bool | None) -> None:
            if sure:
                self.exit()

        question, keys = self._closes.question, self._board.keys
        self.push_screen(CloseScreen(self._board.glyphs, question, keys), decided)

    def run_ended(self) -> None:
        """Stay open when the run for which the dashboard was opened has ended, and say so."""
        self._ended = True
        text = f"{self._board.keys.label('view.back')} closes the dashboard."
        self.notify(text, title="The run has ended.", timeout=_FOREVER, markup=False)

    def action_freeze(self) -> None:
        """Freeze the display, or continue it."""
        watch = self._watch_of_feed
        if watch.frozen:
            watch.thaw()
        else:
            watch.freeze()
        self._draw()

    def action_other_theme(self) -> None:
        """Switch between dark and light colours."""
        self.theme = (EDGEFED_LIGHT if self.current_theme.dark else EDGEFED).name

    def action_help(self) -> None:
        """Open the page of keys."""
        hidden: Place = "replay" if self._replay is None else "run"
        self.push_screen(HelpScreen(self._board.glyphs, self._closes, self._board.keys, hidden))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action works.

        A replay has keys of its own in place of the run's. A field takes the key for quitting if it
        types a character.
        """
        if action == "quit" and isinstance(self.focused, Input):
            return not self._board.keys.types_character("app.quit")
        if action in ("replay", "ask_round", "pause_or_resume", "step"):
            return (action in ("replay", "ask_round")) == (self._replay is not None)
        return super().check_action(action, parameters)

    def action_replay(self, move: ReplayMove) -> None:
        """Control the replay, and draw the result at once."""
        if self._replay is not None:
            self._replay_moved = True
            self._replay.move(move)

    def action_ask_round(self) -> None:
        """Ask for a round of the replay, and go to its start."""
        if self._replay is not None:
            targets = round_targets(self._replay.rounds)
            self.push_screen(JumpScreen(self._board.glyphs, targets), self.run_call)

    def action_pause_or_resume(self) -> None:
        """Ask to pause the run, or to resume it."""
        self._order(self._order_for("pause"))

    def action_step(self) -> None:
        """Ask for one exchange."""
        self._order(self._order_for("step"))

    def action_finish(self) -> None:
        """Ask the user, then ask to end the run after its round."""
        order = self._order_for("finish")
        if order is None:
            return

        def decided(sure: bool | None) -> None:
            self._order(order if sure else None)

        question = QuestionText(f"Finish run {clean(order.run)}?", FINISH, "Finish run")
        self.push_screen(QuestionScreen(self._board.glyphs, question), decided)

    def action_abort(self) -> None:
        """Ask the user, then ask to abort the run."""
        order, snapshot = self._order_for("abort"), self.latest.snapshot
        if order is None or snapshot is None or snapshot.run is None:
            return

        def decided(sure: bool | None) -> None:
            self._order(order if sure else None)

        glyphs, newest = self._board.glyphs, self._watch_of_feed.shown
        self.push_screen(AbortScreen(glyphs, snapshot.run, newest), decided)

    def _order_for(self, key: OrderKey) -> CoordinatorOrder | None:
        """Return the order behind a key, or tell the user why there is none."""
        snapshot = self.latest.snapshot
        watch = self._watch_of_feed
        order = order_for(key, snapshot, watch.keys, watch.commands)
        if self._control is None:
            order = self._board.refusal
        if isinstance(order, CoordinatorOrder):
            return order
        self.notify(order, severity="warning", markup=False)
        return None

    def _order(self, order: CoordinatorOrder | None) -> None:
        control = self._control
        if order is not None and control is not None:
            self._send(CoordinatorRequest(partial(give, control, order), order.failed))

    def on_replay_chosen(self, message: ReplayChosen) -> None:
        """Close the dashboard for a replay."""
        self.chosen_replay = message.recording
        self.exit()

    def on_request_wanted(self, message: RequestWanted) -> None:
        """Send a screen's request."""
        self._send(message.request)

    def _send(self, request: CoordinatorRequest) -> None:
        """Send a request from a thread of its own: the coordinator may take its time."""

        def send() -> None:
            try:
                answer = request.ask()
            except Exception as error:  # whatever it is, the screen must live on
                self.post_message(Answered(request, error=error))
            else:
                self.post_message(Answered(request, answer))

        self.run_worker(send, thread=True, group="requests")

    def on_answered(self, message: Answered) -> None:
        """Show the user the outcome of a request."""
        error = message.error
        if error is None:
            if message.answer:
                self.notify(message.answer, markup=False)
        elif isinstance(error, EdgeFedError):
            self.notify(error.hint, title=error.message, severity="error", markup=False)
        else:
            text = f"{type(error).__name__}: {error}"
            self.notify(text, title=message.request.failed, severity="error", markup=False)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield the palette's commands: Textual's theme and screenshot, the registry's actions."""
        yield from self._commands("screens", "everywhere")
        for command in super().get_system_commands(screen):
            if command.title in ("Theme", "Screenshot"):
                yield command
        if self._launcher is not None and self.latest.snapshot and self.latest.snapshot.run:
            help_text = "the run as a command line of edgefed run start"
            yield SystemCommand("Copy command", help_text, self.action_copy_command)
        if self._replay is not None:
            yield from self._commands("replay")
        elif takes_orders(self.latest.snapshot.run if self.latest.snapshot else None):
            yield from self._commands("run")

    def deliver_screenshot(
        self, filename: str | None = None, path: str | None = None, time_format: str | None = None
    ) -> str | None:
        """Save a picture of the screen among the user's downloads, else in the state folder."""
        if path is None and self._preferences and not user_downloads_path().is_dir():
            path = str(make_folder(self._preferences.parent))
        return super().deliver_screenshot(filename, path, time_format)

    def _commands(self, *places: Place) -> Iterator[SystemCommand]:
        shown = self._watch_of_feed.shown()
        for action in actions_of(*places):
            yield SystemCommand(
                word_of(action, shown),
                action.sentence,
                lambda call=action.call: self.run_call(call),
            )
