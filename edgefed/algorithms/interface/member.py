"""A device that could be asked, as it has announced itself, and all of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """A device that could be asked.

    Attributes:
        device: its id.
        samples: training samples that it announced.
        shape: shape of one of its inputs.
        classes: number of labels that it distinguishes, or of numbers in a target; 0 when not
            stated.
        data: a word of the device's own that changes when its samples do.
        class_names: names of its labels, label 0 first; empty when they have none.
        held_out: samples that it announced to hold out for tests.
        newcomer: it never trains, and only tests; in simulations.
        pace: seconds of its last answer in this run, divided by its local steps; None before the
            first, and where they are not measured.
        rank: its place in the choice of a cohort, the lowest first; None to draw at random.
    """

    device: str
    samples: int
    shape: tuple[int, ...] = ()
    classes: int = 0
    data: str = ""
    class_names: tuple[str, ...] = ()
    held_out: int = 0
    newcomer: bool = False
    pace: float | None = None
    rank: int | None = None


Roster = tuple[Member, ...]
"""The devices that are there, sorted by id."""
