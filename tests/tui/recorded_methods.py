"""What the methods tell in a recorded run: label bounties, experts, matched layers."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.events.base.bounty_tables import bounty_view
from edgefed.events.base.method_tables import MethodTable, table_events, table_named, within_limits
from edgefed.events.methods import expert_tables
from edgefed.events.methods.matching_table import layer_row, layer_table
from edgefed.sharing.bounty_report import Bounty, Budget
from tests.tui.samples import shares

Holdings = Sequence[tuple[str, tuple[int, ...]]]
"""The devices with their samples by label."""

EXPERTS = 4
LAYERS = (("conv1", 20), ("conv2", 50), ("fc1", 120), ("fc2", 84))


class Method:
    """An algorithm that tells nothing of its own."""

    algorithm = "fedprox"

    def begin(self, journal: EventJournal, run: str, fleet: Holdings) -> None:
        """Tell what precedes the first round."""

    def merged(self, journal: EventJournal, run: str, number: int) -> None:
        """Tell what a merge brought."""

    def detail(self, number: int) -> str:
        """Return what the exchange of a round is about."""
        return ""


def send(journal: EventJournal, run: str, number: int, *tables: MethodTable) -> None:
    """Send what changed in tables, as a coordinator does."""
    for view in within_limits(tables):
        before = table_named(journal.snapshot.tables, view.table.name)
        for fields in table_events(run, number, before, view):
            journal.emit("table", **fields)


class Bounties(Method):
    """Devices ask for labels that they lack; those with much of one offer mixes."""

    def begin(self, journal: EventJournal, run: str, fleet: Holdings) -> None:
        """Open the bounties, then close most of them."""
        rng = random.Random(4)
        opened = [
            Bounty(device, label, count=60, mixes=30)
            for device, held in fleet
            for label, samples in enumerate(held)
            if not samples
        ]
        send(journal, run, 0, *bounty_view(opened, ()))
        budgets = [
            Budget(
                device,
                released=released,
                mixes_left=None if index % 3 else max(0, 400 - released),
                epsilon=round(released / 60, 3),
                epsilon_left=None if index % 3 else max(0.0, round(8 - released / 60, 3)),
                shares=index % 11 != 5,
            )
            for index, (device, _) in enumerate(fleet)
            if (released := rng.randrange(0, 500, 20)) or index % 11 == 5
        ]
        filled = [self._filled(bounty, index) for index, bounty in enumerate(opened)]
        send(journal, run, 0, *bounty_view(filled, budgets))

    def _filled(self, bounty: Bounty, index: int) -> Bounty:
        if index % 9 == 4:
            return bounty if index % 2 else replace(bounty, offered=12, received=8)
        if index % 13 == 6:
            return replace(bounty, received=10, offered=10, noise=50, status="cancelled")
        return replace(bounty, offered=40, received=30, noise=30, status="closed")


class Experts(Method):
    """Four experts, of which the last one dies."""

    algorithm = "fedmoe"

    def begin(self, journal: EventJournal, run: str, fleet: Holdings) -> None:
        """Remember the fleet."""
        self.fleet = fleet
        self.mixtures: dict[str, expert_tables.Mixture] = {}

    def merged(self, journal: EventJournal, run: str, number: int) -> None:
        """Tell load, table and the mixtures of the devices that answered."""
        sharpness = number / 4
        found = {
            device: (sum(held), _dying(shares(index, EXPERTS, sharpness), number))
            for index, (device, held) in enumerate(self.fleet)
            if (index + number) % 3
        }
        for device, (samples, mixture) in found.items():
            row = expert_tables.mixture_row(device, samples, number, mixture, (0, 1, 2))
            self.mixtures[device] = row
        total = sum(samples for samples, _ in found.values())
        load = tuple(
            sum(samples * mixture[expert] for samples, mixture in found.values()) / total
            for expert in range(EXPERTS)
        )
        entropy = -sum(share * math.log(share) for share in load if share > 0)
        dead = (expert for expert, share in enumerate(load) if share < 0.01 / EXPERTS)
        cells = [row for _, row in self.mixtures.values()]
        states = dict.fromkeys(dead, expert_tables.DEAD)
        rows = (
            (str(label), _dying(shares(label, EXPERTS, sharpness), number)) for label in range(10)
        )
        send(
            journal,
            run,
            number,
            expert_tables.load_table(EXPERTS, number, load, entropy, states, (), cells),
            expert_tables.share_table("label", EXPERTS, rows),
            expert_tables.mixture_table(EXPERTS, self.mixtures.values()),
        )


class Matching(Method):
    """Four layers, which are matched one after the other and grow."""

    algorithm = "fedma"
    growth: float | None = None

    def merged(self, journal: EventJournal, run: str, number: int) -> None:
        """Tell the widths of the layers of a round; of the last one only the first two."""
        layers = range(2 if number == 12 else len(LAYERS))
        for layer in layers:
            if layer == len(LAYERS) - 1:
                self.growth = round(1 + 0.045 * number, 4)
            rows = [_match(at, number if at <= layer else number - 1) for at in range(len(LAYERS))]
            send(journal, run, number, layer_table(rows, number, 21, self.growth))

    def detail(self, number: int) -> str:
        """Return which layer is matched."""
        return "layer fc1, 3 of 4"


def _match(layer: int, number: int) -> tuple[str, tuple[Any, ...]]:
    name, local = LAYERS[layer]
    if not number:
        return layer_row(name, local, 0, 0.0, None, None)
    atoms = local + int(local * 0.06 * number * (1 + layer / 3)) - number % 3
    objective = None if name == "fc2" else -1234.5 * (layer + 1) + 40 * number
    return layer_row(name, local, atoms, round(21 * local / atoms, 2), objective, number)


def _dying(row: tuple[float, ...], number: int) -> tuple[float, ...]:
    """Return shares of which the last one fades."""
    kept = [*row[:-1], row[-1] * 0.3**number]
    return tuple(round(share / sum(kept), 4) for share in kept)


_METHODS: dict[str, type[Method]] = {
    "fedprox": Method,
    "bounties": Bounties,
    "fedmoe": Experts,
    "fedma": Matching,
}


def method_of(name: str) -> Method:
    """Return the method of a recording."""
    return _METHODS[name]()
