"""The confirmation before a run is aborted: the run, the kept parts, and the lost ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from edgefed.events.base.snapshot import RunView, Snapshot
from edgefed.tui.look.symbols import ACTIVE, Glyphs
from edgefed.tui.look.theme import GREEN, ORANGE, VERMILLION
from edgefed.tui.state.display_state import Shown


class AbortScreen(ModalScreen[bool]):
    """Answers True only when the run's name was typed and the button chosen."""

    AUTO_FOCUS = "#name"
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "leave", "Cancel")]

    def __init__(self, glyphs: Glyphs, run: RunView, newest: Callable[[], Shown]) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._run = run
        self._newest = newest

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        with Vertical(id="abort") as box:
            box.border_title = Content(f"Abort run {self._run.run}?")
            box.border_subtitle = Content("esc leaves")
            yield Static(id="question")
            with Horizontal(id="confirm"):
                yield Static(Content(f"Type {self._run.run} to confirm: "), id="ask")
                yield Input(id="name", compact=True, select_on_focus=False)
            with Horizontal(id="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button("Abort run", id="sure", variant="error", compact=True, disabled=True)

    def on_mount(self) -> None:
        """Show the kept and lost parts at once."""
        self.draw()

    def draw(self) -> None:
        """Show the parts that aborting would keep and lose now; the run continues meanwhile."""
        shown = self._newest()
        snapshot = shown.latest.snapshot
        if snapshot and snapshot.run and snapshot.run.run == self._run.run:
            text = question(snapshot, snapshot.run, shown.as_of if shown.cut_off else "")
            self.query_one("#question", Static).update(self._glyphs.text(text))

    @on(Input.Changed, "#name")
    def allow(self, event: Input.Changed) -> None:
        """Only the right name makes the button work."""
        self.query_one("#sure", Button).disabled = not self._right(event.value)

    @on(Input.Submitted, "#name")
    def submit(self, event: Input.Submitted) -> None:
        """Abort after the right name, leave without one, and refuse a wrong one."""
        if self._right(event.value) or not event.value.strip():
            self.dismiss(self._right(event.value))
        else:
            self.notify(f"The run's id is {self._run.run}.", severity="warning", markup=False)

    @on(Button.Pressed)
    def choose(self, event: Button.Pressed) -> None:
        """Leave, or abort."""
        name = self.query_one("#name", Input).value
        self.dismiss(event.button.id == "sure" and self._right(name))

    def action_leave(self) -> None:
        """Close the question without an order."""
        self.dismiss(False)

    def _right(self, name: str) -> bool:
        return name.strip() == self._run.run


def question(snapshot: Snapshot, run: RunView, as_of: str = "") -> Text:
    """Return the kept and lost parts of an abort; ``as_of`` is the time of old numbers."""
    busy = sum(device.state in ACTIVE for device in snapshot.devices)
    finished = snapshot.rounds[-1].round if snapshot.rounds else None
    model = f"model of round {finished}, " if finished is not None else ""
    scored = finished is not None and finished >= run.round
    state = "is scored" if scored else "is under way"
    return Text.assemble(
        (f"Connection lost; numbers from {as_of}.\n" if as_of else "", ORANGE),
        f"Round {run.round} {state}; {_count(busy, 'device is', 'devices are')} working.\n",
        ("Kept:   ", GREEN), f"{model}all logs, the event file\n",
        ("Lost:   ", VERMILLION), _lost(run, busy, scored=scored),
    )  # fmt: skip


def _lost(run: RunView, busy: int, *, scored: bool) -> str:
    """Return the lost parts: the answers of a round that is scored are in its model."""
    if scored:
        return "what devices compute now" if busy else "nothing: no round is open"
    answers = _count(run.accepted, "answer", "answers")
    return f"{answers} of round {run.round} and what devices train now"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
