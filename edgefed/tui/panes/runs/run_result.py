"""The lines of a run that has ended: the outcome, its results, and advice when it failed."""

from __future__ import annotations

from datetime import datetime
from statistics import median

from rich.text import Text

from edgefed.events.base.snapshot import RoundView, RunView
from edgefed.terminal.units import clock_time, short_time
from edgefed.tui.look.symbols import RUN_LOOKS
from edgefed.tui.look.text_format import clean, moment
from edgefed.tui.look.theme import MUTED, ORANGE
from edgefed.tui.state.display_state import Shown


def ended_lines(shown: Shown, run: RunView) -> list[Text]:
    """Return the outcome of a run, its summary, and how to continue one that is not finished."""
    look = RUN_LOOKS[run.status]
    first = Text(f"{look.symbol} {run.status.upper()}", f"bold {look.colour}")
    first.append(f"  {clean(run.reason)}", look.colour if run.status == "failed" else "")
    rounds = shown.snapshot.rounds if shown.snapshot else ()
    if run.status == "aborted" and rounds:
        joined = "; " if run.reason else ""
        first.append(f"{joined}the model of round {rounds[-1].round} is kept")
    result = Text(summary(run, rounds))
    if run.status == "finished":
        return [first, result, _times(rounds)]
    hint = Text.assemble(
        ("go on with ", MUTED), (f"edgefed run resume {run.run}", f"bold {ORANGE}")
    )
    return [first, hint, result]


def summary(run: RunView, rounds: tuple[RoundView, ...]) -> str:
    """Return rounds, best and final measure, and duration, as far as known."""
    done = rounds[-1].round if rounds else run.round
    parts = [f"{done} of {run.rounds} rounds", *_measures(rounds)]
    took = _took(moment(run.started_at), moment(run.ended_at))
    return " · ".join([*parts, took] if took else parts)


def _measures(rounds: tuple[RoundView, ...]) -> list[str]:
    scored = [(row.accuracy, row.round) for row in rounds if row.accuracy is not None]
    name, best = "accuracy", max(scored, key=lambda each: each[0], default=None)
    if best is None:
        scored = [(row.loss, row.round) for row in rounds if row.loss is not None]
        name, best = "loss", min(scored, key=lambda each: each[0], default=None)
    if best is None:
        return []
    return [f"best {name} {best[0]:.3f} in round {best[1]}", f"final {scored[-1][0]:.3f}"]


def _took(started: datetime | None, ended: datetime | None) -> str:
    if started is None or ended is None:
        return ""
    return f"in {clock_time((ended - started).total_seconds())}"


def _times(rounds: tuple[RoundView, ...]) -> Text:
    """Return how long rounds took, and how many answers came late or were refused."""
    if not rounds:
        return Text()
    middle = short_time(median(row.seconds for row in rounds))
    late = sum(row.late for row in rounds)
    return Text(f"median round {middle} · late or refused {late}", MUTED)
