"""The round: its phases, the answers so far, the devices that it waits for, and the time left."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from statistics import median

from rich.text import Text

from edgefed.events.base.best_rounds import MEASURES, best_of
from edgefed.events.base.device_rounds import ASKING, MOST_NAMED, waiting_in_words
from edgefed.events.base.model import Phase
from edgefed.events.base.snapshot import TEST_COUNTS, RoundView, RunView, WaitingView
from edgefed.events.state.attention import device_count, devices_there
from edgefed.events.state.awaited_devices import why_slow
from edgefed.terminal.units import counted, duration, tested_by
from edgefed.tui.look.symbols import RUN_LOOKS
from edgefed.tui.look.text_format import bar, clean, countdown, cut, cut_middle, moment
from edgefed.tui.look.theme import GREEN, MUTED, ORANGE, RULE, SKY, VERMILLION
from edgefed.tui.panes.base.curve import points_of
from edgefed.tui.panes.base.pane import Pane, what_and_next
from edgefed.tui.panes.runs.waited_devices import slowest_line, waits_line
from edgefed.tui.state.display_state import Shown
from edgefed.tui.state.key_orders import ENDED
from edgefed.tui.state.pause_place import PHASES, PausePlace, pause_place
from edgefed.tui.state.run_commands import NextStep, command_lines


def ended_lines(shown: Shown, run: RunView, model: str, width: int) -> list[Text]:
    """Return the outcome of a run, its summary, its model's path, and the next steps."""
    look = RUN_LOOKS[run.status]
    first = Text(f"{look.symbol} {run.status.upper()}", f"bold {look.colour}")
    first.append(f"  {clean(run.reason)}", look.colour if run.status == "failed" else "")
    rounds = shown.snapshot.rounds if shown.snapshot else ()
    if run.status == "aborted" and rounds:
        joined = "; " if run.reason else ""
        first.append(f"{joined}the model of round {rounds[-1].round} is kept")
    early = shown.snapshot.early_best if shown.snapshot else ()
    result = Text(summary(run, rounds, early))
    lines = [first, result]
    if model:
        name = f"{'model':<{_PURPOSE_WIDTH}} "
        lines.append(Text.assemble((name, MUTED), cut_middle(clean(model), width - len(name))))
    if shown.replay is None:
        done = rounds[-1].round if rounds else 0
        steps = shown.commands.next_steps(run.run, run.status, done)
        for step in steps:
            lines += _step_lines(step, width)
    return [*lines, _times(rounds)] if run.status == "finished" else lines


_PURPOSE_WIDTH = 13
"""Characters of the longest purpose of a next step."""


def _step_lines(step: NextStep, width: int) -> Iterator[Text]:
    """Yield a next step: its purpose, and beside it its command, on as many lines as it needs."""
    purpose = step.purpose
    for part in command_lines(step.command, width - _PURPOSE_WIDTH - 1):
        yield Text.assemble((f"{purpose:<{_PURPOSE_WIDTH}} ", MUTED), (part, SKY))
        purpose = ""


def summary(run: RunView, rounds: tuple[RoundView, ...], early: tuple[RoundView, ...] = ()) -> str:
    """Return rounds, best and final measure, and duration, as far as known.

    Args:
        run: the run.
        rounds: its last ones.
        early: the best ones before these.
    """
    done = rounds[-1].round if rounds else run.round
    parts = [f"{done} of {run.rounds} rounds", *_measures(rounds, early)]
    took = _took(moment(run.started_at), moment(run.ended_at))
    return " · ".join([*parts, took] if took else parts)


def _measures(rounds: tuple[RoundView, ...], early: tuple[RoundView, ...]) -> list[str]:
    for measure in MEASURES:
        if points := points_of(rounds, measure):
            best = best_of((*early, *rounds), measure)
            reached = f"best {measure} {best.value:.3f} in round {best.round}" if best else ""
            last = next(row for row in reversed(rounds) if row.round == points[-1][0])
            final = f"final {points[-1][1]:.3f}"
            counts = tested_by(last.model_dump(include=set(TEST_COUNTS)))
            return list(filter(None, (reached, final, counts)))
    return []


def _took(started: datetime | None, ended: datetime | None) -> str:
    if started is None or ended is None:
        return ""
    return f"in {duration((ended - started).total_seconds())}"


def _times(rounds: tuple[RoundView, ...]) -> Text:
    """Return how long rounds took, and how many answers came late or were refused, if any.

    Devices that are lost send neither, so that a zero would deny their absence.
    """
    if not rounds:
        return Text()
    middle = duration(median(row.seconds for row in rounds))
    late = sum(row.late for row in rounds)
    failed = f" · {counted(late, 'answer')} late or refused" if late else ""
    return Text(f"median round {middle}{failed}", MUTED)


_LEFT = " left"
"""What follows the time for which a round still waits, where there is room."""

_SET_BACK = timedelta(seconds=5)
"""How far a fleet's clock may be set back before times that it gave are not believed any more."""

_OVERDUE = timedelta(days=1)
"""How long after its deadline an exchange may be open: a coordinator takes a moment to close it."""

_LONGEST_WAIT = timedelta(days=366)
"""How long a run may wait for devices; longer only where the clock was changed."""

_SHORT: dict[Phase, str] = {"select": "sel", "broadcast": "bcast", "evaluate": "eval"}


class RoundPane(Pane):
    """The phases with the deadline, a bar of the answers, and the awaited devices where they fit.

    A run that has ended shows its result instead.

    Attributes:
        model: path of the model of a run that has ended; empty if unknown.
    """

    model = ""

    def heading(self, shown: Shown) -> str:
        """Return round, phase and answers, shorter where the long form does not fit."""
        run = shown.run
        if run is None:
            return "Round"
        if run.status in ENDED:
            loud = run.status.upper() if run.status == "failed" else run.status
            return f"Run {run.run} ── {loud}"
        if run.round == 0:
            return f"Run {run.run} ── not begun"
        if run.status == "paused":
            paused = f"Round {run.round} ── PAUSED"
            return self._fitting((f"{paused} {_place(shown, run).words}", paused))
        number = PHASES.index(run.phase) + 1 if run.phase in PHASES else len(PHASES)
        question = f" ({clean(run.question_in_words)})" if run.question else ""
        long = f"phase {number} of {len(PHASES)}: {run.phase.upper()}{question}"
        short = f"{number}/{len(PHASES)} {run.phase.upper()}"
        answers = ("", "")
        if run.wanted:
            quorum = f", quorum {run.quorum}" if run.quorum > 1 else ""  # any answer suffices
            so_far = f" ── {run.accepted} of {run.wanted}"
            answers = (f"{so_far} answers{quorum}", f"{so_far}{quorum}")
        forms = [f"{long}{answers[0]}", f"{short}{answers[1]}"]
        if run.detail:  # one of several exchanges of a round: rather shorten the rest
            forms.insert(1, f"{short}{question}{answers[1]}")
        return self._fitting([f"Round {run.round} ── {form}" for form in forms])

    def _fitting(self, headings: Sequence[str]) -> str:
        """Return the first heading that fits; the last one where none does."""
        fitting = (heading for heading in headings if len(heading) <= self.size.width - 2)
        return next(fitting, headings[-1])

    def error(self, shown: Shown) -> Text:
        """Return the problem with advice: this is the first pane that users read."""
        return what_and_next(shown)

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the phases and the bar."""
        run = shown.run
        assert run is not None  # without a run the pane shows its empty face
        if run.status in ENDED:
            ended = ended_lines(shown, run, self.model, width)[: max(1, height)]
            return Text("\n", no_wrap=True, overflow="ellipsis").join(ended)
        slow = _slow_line(shown, run, width)
        phases, short = _phases(shown, run, " ───── ", {}), _phases(shown, run, "  ", _SHORT)
        named = height > 2
        right = _right(shown, run, width - short.cell_len - 2, named=named)
        if phases.cell_len + right.cell_len + 2 > width:
            phases = short if short.cell_len + right.cell_len + 1 <= width else Text()
        gap = max(1, width - phases.cell_len - right.cell_len)
        lines = Text(no_wrap=True, overflow="ellipsis")
        if slow.plain and not named:  # the heading has the phase
            lines.append_text(slow)
        else:
            lines.append_text(phases).append(" " * gap).append_text(right)
        lines.append("\n").append_text(_progress(run, width))
        waits = slowest_line(run) if run.status == "paused" else waits_line(shown, run, width)
        return lines.append("\n").append_text(slow if slow.plain else waits) if named else lines

    def show(self, shown: Shown) -> None:
        """Take a new drawing; the border of a failed run is highlighted like its text."""
        self.set_class(shown.run is not None and shown.run.status == "failed", "-failed")
        super().show(shown)


def _slow_line(shown: Shown, run: RunView, width: int) -> Text:
    """Return the silent or lost device that holds the round up; nothing without one.

    It is empty while the broker or the coordinator is away, since the state of devices is unknown.
    """
    if shown.snapshot is None or shown.cut_off or run.status == "paused":
        return Text()
    text = clean(why_slow(shown.snapshot, shown.now))
    if len(text) > width:
        text = text.replace("; the round ", "; ")
    return Text(cut(text, width), VERMILLION)


def _place(shown: Shown, run: RunView) -> PausePlace:
    return pause_place(run, shown.snapshot.rounds if shown.snapshot else ())


def _phases(shown: Shown, run: RunView, between: str, words: dict[Phase, str]) -> Text:
    """Return the phases with those that are over and, but in a pause, the one that goes on."""
    line, paused = Text(), run.status == "paused"
    current = PHASES.index(run.phase) if run.phase in PHASES else len(PHASES)
    if paused:
        current = _place(shown, run).done
    for index, phase in enumerate(PHASES):
        if index:
            line.append(between, RULE)
        word = words.get(phase, phase)
        if index < current:
            line.append(f"{word} ").append("✓", GREEN)
        elif index == current and not paused:
            line.append(f"▶ {word}", f"bold {SKY}")
        else:
            line.append(word, MUTED)
    return line


def _right(shown: Shown, run: RunView, width: int, *, named: bool) -> Text:
    """Return the cause of the wait: the deadline, the operator or the devices.

    ``named`` says that the devices stand on a line of their own.
    """
    match run.status:
        case "waiting":
            return _for_devices(shown, run)
        case "paused" if shown.replay is not None:
            return Text("paused", ORANGE)
        case "paused":
            resumes, steps = shown.keys.label("run.pause"), shown.keys.label("run.step")
            return Text(f"paused: {resumes} resumes, {steps} steps", ORANGE)
        case "pausing":
            return Text("pausing after this exchange", ORANGE)
    if run.reason:  # such as a full disk
        return Text(cut(clean(run.reason), width), ORANGE)
    if shown.cut_off:  # nobody knows whether it is still open
        return Text(f"as of {shown.as_of}", MUTED)
    if run.waiting is not None:
        return _waiting(shown, run, run.waiting, 0 if named else width)
    return _deadline(shown, run)


def _deadline(shown: Shown, run: RunView) -> Text:
    elapsed = shown.since(run.opened_at)
    if elapsed is None or run.deadline <= 0 or run.phase not in ASKING:
        return Text("ends after this round" if run.status == "finishing" else "")
    if not _plausible(elapsed, run):
        return Text("clock changed", MUTED)
    left = timedelta(seconds=run.deadline) - elapsed
    if left <= timedelta(0):
        return Text("deadline passed", ORANGE)
    return Text.assemble(("deadline in ", MUTED), countdown(left))


def _for_devices(shown: Shown, run: RunView) -> Text:
    """Return how many devices are there of those that a run begins with, and since when."""
    there = devices_there(shown.snapshot) if shown.snapshot else 0
    line = Text(f"waiting for devices: {device_count(there, run.min_devices)}", ORANGE)
    since = shown.since(run.started_at)
    if since is None or not timedelta(0) <= since < _LONGEST_WAIT:
        return line
    return line.append(f", for {countdown(since)}")


def _plausible(elapsed: timedelta, run: RunView) -> bool:
    """Return whether an exchange can be open for so long: no clock was changed meanwhile."""
    return -_SET_BACK <= elapsed <= timedelta(seconds=run.deadline) + _OVERDUE


def _waiting(shown: Shown, run: RunView, waiting: WaitingView, width: int) -> Text:
    """Return whom the round waits for, and the time left; fewer names where there is no room."""
    since = shown.since(waiting.until)
    left = ""
    if since is not None and _plausible(since + timedelta(seconds=run.deadline), run):
        left = f", {countdown(max(timedelta(0), -since))}"
    colour = ORANGE if waiting.lost else MUTED
    forms = [("waiting for ", most) for most in range(MOST_NAMED, 0, -1)]
    for verb, most in (*forms, ("awaits ", 1), ("awaits ", 0)):
        whom = clean(waiting_in_words(waiting, most))
        if len(verb) + len(whom) + len(left) <= width:
            break
    if left and (not width or len(verb) + len(whom) + len(left) + len(_LEFT) <= width):
        left += _LEFT
    return Text.assemble((verb, colour), whom, left)


def _progress(run: RunView, width: int) -> Text:
    """Return the share of the wanted answers with the quorum marked on it."""
    fraction = run.accepted / run.wanted if run.wanted else 0.0
    percent = f"{min(1.0, fraction):5.0%}".replace("%", " %")
    room = max(0, width - len(percent) - 1)
    full, empty = bar(fraction, room)
    line = Text.assemble((full, SKY), (empty, RULE))
    if 0 < run.quorum < run.wanted and room:
        at = min(room - 1, math.ceil(run.quorum / run.wanted * room))
        met = run.accepted >= run.quorum
        mark = Text("│", f"bold {GREEN if met else ORANGE}")
        line = Text().append_text(line[:at]).append_text(mark).append_text(line[at + 1 :])
    return line.append(f" {percent}")
