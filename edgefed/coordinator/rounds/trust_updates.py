"""Keep trust scores, announced samples and missed deadlines up to date while a run is at work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from dataclasses import replace

from edgefed.algorithms.interface.member import Roster
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.devices.missed_deadlines import after_exchange
from edgefed.coordinator.devices.trust_scores import Judged
from edgefed.coordinator.exchanges.device_admission import Admission, Excluded
from edgefed.coordinator.rounds.engine_deps import EngineDeps
from edgefed.coordinator.rounds.reply_collector import ReplyCollector
from edgefed.coordinator.rounds.run_recorder import RunRecorder
from edgefed.coordinator.storage.compatibility import DataSpec
from edgefed.coordinator.storage.stored_runs import OpenExchange, RunRecord
from edgefed.events.history.early_stopping import REMOVED_TESTERS, FleetTesters
from edgefed.process.clock import timestamp


def make_admission(
    deps: EngineDeps,
    spec: DataSpec,
    warn: Callable[[str], None],
    excluded: Excluded = lambda device, reason: None,
) -> Admission:
    """Return the admission to a run, by devices' data, trust and announced samples.

    Args:
        deps: the run's.
        spec: the form of its data.
        warn: called for each device that is left out.
        excluded: called with each change of the reason why a device is left out.
    """
    checks = deps.recipe.checks
    factor = 0.0 if deps.fleet.simulated else checks.announced_median_factor

    def quarantined(devices: Set[str]) -> Set[str]:
        out = deps.trust.not_admitted(devices, checks, lambda: timestamp(deps.clock.now()))
        if out:
            _tell(deps, warn)
        return out

    def announced(known: Roster) -> dict[str, str]:
        return deps.trust.announced.exclude(known, factor)

    parts = (deps.fleet, deps.prepared_recipe, spec, warn, deps.clock)

    return Admission(*parts, quarantined, announced, excluded, deps.journal.excluded)


def update_trust(
    deps: EngineDeps, recorder: RunRecorder, opened: OpenExchange, collector: ReplyCollector
) -> None:
    """Store the effect of an exchange's replies on the scores, before the exchange is merged.

    Devices that missed its deadline are then noted in the run's row, which is written when the
    exchange is closed.
    """
    accepted = collector.stats.devices
    judge(deps, recorder, Judged(opened.exchange, accepted, collector.blamed))
    note_missed(recorder, opened.round, deps.fleet.missed_deadline(opened), accepted)


def judge(deps: EngineDeps, recorder: RunRecorder, judged: Judged) -> None:
    """Store the effect of replies on the scores."""
    now = timestamp(deps.clock.now())
    recorder.written(lambda: deps.trust.judge(judged, deps.recipe.checks, now))
    _tell(deps, recorder.warn)


def note_missed(
    recorder: RunRecorder, number: int, missed: Collection[str], accepted: Collection[str]
) -> None:
    """Note in the run's row the devices that missed a deadline in a round, and those that did not.

    It is written when the exchange is closed.
    """
    silent = after_exchange(recorder.record.silent, number, missed, accepted)
    recorder.record = replace(recorder.record, silent=silent)


def note_testers(deps: EngineDeps, recorder: RunRecorder, tested: Collection[str]) -> None:
    """Note the devices that tested a round's model, and how many stopped testing.

    Both are kept in the run's row, which is written when the round is closed.
    """
    if deps.fleet.simulated:
        return
    record, stays = recorder.record, deps.fleet.belongs
    gone = [
        device
        for device in record.testers
        if not stays(device) or deps.trust.is_quarantined(device)
    ]
    # Sorted, so that the row does not depend on the order of answers
    testers = tuple(sorted({*record.testers, *tested}.difference(gone)))
    progress = {**record.progress, REMOVED_TESTERS: len(gone)} if gone else record.progress
    recorder.record = replace(record, testers=testers, progress=progress)
    if gone:
        recorder.warn(
            f"no longer tested by {', '.join(gone)}, removed or quarantined: earlier scores of the"
            f" devices' tests do not compare, and the best round is sought from {record.round} on"
        )


def fleet_testers(recipe: Recipe, record: RunRecord, opened: OpenExchange) -> FleetTesters:
    """Return the devices that can test a round, after ``note_testers``."""
    rounds = recipe.rounds
    drawn = rounds.cohort if rounds.test_cohort is None else rounds.test_cohort
    return FleetTesters(
        known=record.testers,
        drawn=opened.wanted if drawn else 0,
        removed=bool(record.progress.get(REMOVED_TESTERS)),
    )


def _tell(deps: EngineDeps, warn: Callable[[str], None]) -> None:
    """Tell which trust scores changed."""
    for change in deps.trust.changes():
        deps.journal.emit("device", **change)
        if change.get("moved") and change["standing"] == "quarantined":
            warn(f"{change['device']} is quarantined: {change['trust_reason']}")
