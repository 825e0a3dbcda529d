"""Lines under the header: a problem, a frozen display, and facts about a replay."""

from __future__ import annotations

from rich.text import Text

from edgefed.events.state.feed_update import FeedUpdate
from edgefed.tui.look.text_format import clean, countdown, cut, moment, wall_time
from edgefed.tui.look.theme import ORANGE, SKY, VERMILLION
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.state.display_state import Shown
from edgefed.tui.state.problems import reason

MANY_LINES = 200
"""From here the snapshot no longer holds all the lines that wait."""

_MARK = " ! "
_OVER = "The recording is over. {play} plays it again, {back} goes a round back, {quit} closes."


class Banner(Pane):
    """As many lines as there are messages; hidden without any."""

    def heading(self, shown: Shown) -> str:
        """Return nothing: the lines have no border."""
        return ""

    def footing(self, shown: Shown) -> str:
        """Return nothing: the lines have no border."""
        return ""

    def face(self, shown: Shown) -> None:
        """Return None: without messages the banner is hidden."""

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return one line for each message."""
        return Text("\n", no_wrap=True, overflow="ellipsis").join(_lines(shown, width))

    def show(self, shown: Shown) -> None:
        """Take a new drawing; the height follows the number of messages."""
        lines = len(_lines(shown, self.size.width))
        self.styles.height = lines
        self.set_class(lines > 0, "-shown")
        super().show(shown)


def _lines(shown: Shown, width: int) -> list[Text]:
    """Return one line for each thing to say."""
    lines = (_problem(shown, width), _frozen(shown), _left_out(shown), _over(shown))
    return [line for line in lines if line is not None]


def _left_out(shown: Shown) -> Text | None:
    """Return the parts of the recording that are not replayed."""
    if shown.replay is None or not shown.replay.left_out:
        return None
    text = f"Left out: {clean(shown.replay.left_out)}."
    return Text.assemble((f"{_MARK}{text}", f"bold {ORANGE}"))


def _over(shown: Shown) -> Text | None:
    """Return that the recording is over."""
    if shown.replay is None or not shown.replay.over:
        return None
    keys = shown.keys
    play, back = keys.label("replay.play"), keys.label("replay.previous_round")
    text = _OVER.format(play=play, back=back, quit=keys.label("app.quit"))
    return Text.assemble((_MARK, f"bold {SKY}"), text)


def _problem(shown: Shown, width: int) -> Text | None:
    update = shown.latest
    problem = reason(update)
    if not problem:
        return None
    colour = ORANGE if update.broker and update.coordinator else VERMILLION
    tail = _since(shown, update)
    room = width - len(_MARK) - len(tail)
    return Text.assemble((f"{_MARK}{cut(problem, room)}", f"bold {colour}"), tail)


def _since(shown: Shown, update: FeedUpdate) -> str:
    since = moment(update.since)
    if since is None:
        return ""
    tail = f" For {countdown(shown.clock - since)}"
    if update.snapshot is not None:
        tail += f", numbers from {wall_time(since, shown.zone)}"
    return f"{tail}."


def _frozen(shown: Shown) -> Text | None:
    if shown.frozen_at is None:
        return None
    waiting = f"{shown.waiting} events waiting"
    if shown.waiting >= MANY_LINES:
        waiting = f"{MANY_LINES} or more events waiting"
    at, key = wall_time(shown.frozen_at, shown.zone), shown.keys.label("view.freeze")
    return Text.assemble((_MARK, f"bold {SKY}"), f"Frozen at {at} ({key} to go on). {waiting}.")
