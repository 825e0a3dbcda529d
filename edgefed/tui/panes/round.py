"""The round: its phases, the answers so far, and the time that is left."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

from rich.text import Text

from edgefed.events.model import Phase
from edgefed.events.snapshot import RunView, WaitingView
from edgefed.events.waiting import MOST_NAMED, waiting_in_words
from edgefed.tui.display_state import Shown
from edgefed.tui.orders import ENDED
from edgefed.tui.panes.pane import Pane, what_and_next
from edgefed.tui.text_format import bar, clean, countdown
from edgefed.tui.theme import GREEN, MUTED, ORANGE, RULE, SKY

PHASES: tuple[Phase, ...] = tuple(phase for phase in get_args(Phase) if phase != "done")
_SHORT: dict[Phase, str] = {"select": "sel", "broadcast": "bcast", "evaluate": "eval"}


class RoundPane(Pane):
    """Two lines: the phases with the deadline, and a bar of the answers."""

    def heading(self, shown: Shown) -> str:
        """Return round, phase and answers, shorter where the long form does not fit."""
        run = shown.run
        if run is None:
            return "Round"
        if run.status in ENDED:
            return f"Run {run.run} ── {run.status}"
        if run.round == 0:
            return f"Run {run.run} ── not begun"
        number = PHASES.index(run.phase) + 1 if run.phase in PHASES else len(PHASES)
        question = f" ({clean(run.question_in_words)})" if run.question else ""
        long = f"phase {number} of {len(PHASES)}: {run.phase.upper()}{question}"
        short = f"{number}/{len(PHASES)} {run.phase.upper()}"
        answers = ("", "")
        if run.wanted:
            answers = (
                f" ── {run.accepted} of {run.wanted} answers, quorum {run.quorum}",
                f" ── {run.accepted} of {run.wanted}, quorum {run.quorum}",
            )
        forms = [f"{long}{answers[0]}", f"{short}{answers[1]}"]
        if run.detail:  # one of several exchanges of a round: rather shorten the rest
            forms.insert(1, f"{short}{question}{answers[1]}")
        headings = [f"Round {run.round} ── {form}" for form in forms]
        fitting = (each for each in headings if len(each) <= self.size.width - 2)
        return next(fitting, headings[-1])

    def error(self, shown: Shown) -> Text:
        """Return what is wrong and what to do: this pane is the first that is read."""
        return what_and_next(shown)

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the phases and the bar."""
        run = shown.run
        assert run is not None  # without a run the pane shows its empty face
        phases, short = _phases(run, " ───── ", {}), _phases(run, "  ", _SHORT)
        right = _right(shown, run, width - short.cell_len - 2)
        if phases.cell_len + right.cell_len + 2 > width:
            phases = short
        gap = max(1, width - phases.cell_len - right.cell_len)
        lines = Text(no_wrap=True, overflow="ellipsis").append_text(phases)
        lines.append(" " * gap).append_text(right).append("\n")
        return lines.append_text(_progress(run, width))


def _phases(run: RunView, between: str, words: dict[Phase, str]) -> Text:
    line = Text()
    current = PHASES.index(run.phase) if run.phase in PHASES else len(PHASES)
    if run.status in ("aborted", "failed"):
        current = -1
    for index, phase in enumerate(PHASES):
        if index:
            line.append(between, RULE)
        word = words.get(phase, phase)
        if index < current:
            line.append(f"{word} ").append("✓", GREEN)
        elif index == current:
            line.append(f"▶ {word}", f"bold {SKY}")
        else:
            line.append(f"{word} ·", MUTED)
    return line


def _right(shown: Shown, run: RunView, width: int) -> Text:
    """Return what the phases wait for: the deadline, the operator or the devices."""
    match run.status:
        case "waiting":
            return Text("waiting for devices", ORANGE)
        case "paused":
            return Text("paused: p resumes, . steps", ORANGE)
        case "pausing":
            return Text(f"pausing after {run.phase}", ORANGE)
        case "finished" | "aborted" | "failed":
            return Text(clean(run.reason), ORANGE)
    if run.waiting is not None:
        return _waiting(shown, run.waiting, width)
    elapsed = shown.since(run.opened_at)
    if elapsed is None or run.deadline <= 0 or run.phase not in ("broadcast", "collect"):
        return Text("ends after this round" if run.status == "finishing" else "")
    left = timedelta(seconds=run.deadline) - elapsed
    if left <= timedelta(0):
        return Text("deadline passed", ORANGE)
    return Text.assemble(("deadline in ", MUTED), countdown(left))


def _waiting(shown: Shown, waiting: WaitingView, width: int) -> Text:
    """Return whom the round waits for, and for how long; fewer names where there is no room."""
    since = shown.since(waiting.until)
    left = f", {countdown(max(timedelta(0), -since))}" if since is not None else ""
    colour = ORANGE if waiting.lost else MUTED
    forms = [("waiting for ", most) for most in range(MOST_NAMED, 0, -1)]
    for verb, most in (*forms, ("awaits ", 1), ("awaits ", 0)):
        whom = clean(waiting_in_words(waiting, most))
        if len(verb) + len(whom) + len(left) <= width:
            break
    return Text.assemble((verb, colour), whom, left)


def _progress(run: RunView, width: int) -> Text:
    """Return the share of the wanted answers, or of all rounds when the run has ended."""
    done, wanted = run.accepted, run.wanted
    if run.status in ENDED:
        done, wanted = run.round, run.rounds
    fraction = done / wanted if wanted else 0.0
    percent = f"{min(1.0, fraction):5.0%}".replace("%", " %")
    full, empty = bar(fraction, max(0, width - len(percent) - 1))
    return Text.assemble((full, SKY), (empty, RULE), f" {percent}")
