"""What the methods tell in a recorded run: label bounties, experts, matched layers."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

from edgefed.coordinator.event_journal import EventJournal
from edgefed.events.bounty_events import label_events
from edgefed.events.expert_events import expert_events
from edgefed.events.matching_events import matching_events
from edgefed.events.snapshot import ExpertsView, LayerMatchView, MatchingView, MixtureView
from edgefed.sharing.bounty_report import Bounty, BountyReport, Budget
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


class Bounties(Method):
    """Devices ask for labels that they lack; those with much of one offer mixes."""

    def begin(self, journal: EventJournal, run: str, fleet: Holdings) -> None:
        """Open the bounties, then close most of them."""
        self.report = BountyReport()
        rng = random.Random(4)
        opened = [
            Bounty(device, label, count=60, mixes=30)
            for device, held in fleet
            for label, samples in enumerate(held)
            if not samples
        ]
        self._tell(journal, run, BountyReport(tuple(opened)))
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
        self._tell(journal, run, BountyReport(tuple(filled), tuple(budgets)))

    def _filled(self, bounty: Bounty, index: int) -> Bounty:
        if index % 9 == 4:
            return bounty if index % 2 else replace(bounty, offered=12, received=8)
        if index % 13 == 6:
            return replace(bounty, received=10, offered=10, noise=50, status="cancelled")
        return replace(bounty, offered=40, received=30, noise=30, status="closed")

    def _tell(self, journal: EventJournal, run: str, report: BountyReport) -> None:
        for fields in label_events(run, self.report, report):
            journal.emit("labels", **fields)
        self.report = report


class Experts(Method):
    """Four experts, of which the last one dies."""

    algorithm = "fedmoe"

    def begin(self, journal: EventJournal, run: str, fleet: Holdings) -> None:
        """Remember the fleet."""
        self.fleet = fleet

    def merged(self, journal: EventJournal, run: str, number: int) -> None:
        """Tell load, table and the mixtures of the devices that answered."""
        sharpness = number / 4
        mixtures = [
            MixtureView(device=device, samples=sum(held), round=number,
                        shares=_dying(shares(index, EXPERTS, sharpness), number), kept=(0, 1, 2))
            for index, (device, held) in enumerate(self.fleet)
            if (index + number) % 3
        ]  # fmt: skip
        total = sum(each.samples for each in mixtures)
        load = tuple(
            sum(each.samples * each.shares[expert] for each in mixtures) / total
            for expert in range(EXPERTS)
        )
        view = ExpertsView(
            experts=EXPERTS, round=number, condition="label", load=load, labels=10,
            entropy=-sum(share * math.log(share) for share in load if share > 0),
            dead=tuple(expert for expert, share in enumerate(load) if share < 0.01 / EXPERTS),
        )  # fmt: skip
        rows = {label: _dying(shares(label, EXPERTS, sharpness), number) for label in range(10)}
        for fields in expert_events(run, view, rows, mixtures):
            journal.emit("experts", **fields)


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
            view = MatchingView(
                round=number, matched=layer + 1, devices=21, growth=self.growth, total=len(LAYERS)
            )
            changed = {layer: _match(layer, number)}
            if number == 1 and layer == 0:
                others = enumerate(LAYERS)
                known = {
                    at: LayerMatchView(layer=name, local=local) for at, (name, local) in others
                }
                changed = {**known, **changed}
            for fields in matching_events(run, view, changed):
                journal.emit("matching", **fields)

    def detail(self, number: int) -> str:
        """Return which layer is matched."""
        return "layer fc1, 3 of 4"


def _unmatched() -> dict[int, LayerMatchView]:
    return {at: LayerMatchView(layer=name, local=local) for at, (name, local) in enumerate(LAYERS)}


def _match(layer: int, number: int) -> LayerMatchView:
    name, local = LAYERS[layer]
    atoms = local + int(local * 0.06 * number * (1 + layer / 3)) - number % 3
    objective = None if name == "fc2" else -1234.5 * (layer + 1) + 40 * number
    return LayerMatchView(
        layer=name, local=local, atoms=atoms, holders=round(21 * local / atoms, 2),
        objective=objective,
    )  # fmt: skip


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
