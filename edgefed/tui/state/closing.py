"""The effect of closing the dashboard, for the help page and the question before closing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Closing:
    """The effect of closing the dashboard, which depends on the way it was started.

    Attributes:
        note: for the help page.
        question: asked before it closes; empty to close it at once.
    """

    note: str
    question: str = ""


WATCHES = Closing("Closing it stops nothing: the coordinator is its own process.")

ENDS_FLEET = Closing(
    "Closing it ends the coordinator, and the broker if edgefed up started it. Runs go on at the "
    "next start.",
    "The coordinator ends too, and the broker if edgefed up started it.\n"
    "Devices wait. A run goes on at the next edgefed up.",
)

ENDS_REPLAY = Closing("Closing it ends the replay; the recording stays as it is.")

ENDS_DEMO = Closing("Closing it shows the demo's progress in a line; ctrl+c then ends the demo.")
