"""Keep trust scores, announced samples and missed deadlines up to date while a run is at work."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from edgefed.algorithms.member import Roster
from edgefed.clock import timestamp
from edgefed.coordinator.compatibility import DataSpec
from edgefed.coordinator.device_admission import Admission, Excluded
from edgefed.coordinator.engine_deps import EngineDeps
from edgefed.coordinator.reply_collector import ReplyCollector
from edgefed.coordinator.run_recorder import RunRecorder
from edgefed.coordinator.run_records import OpenExchange
from edgefed.coordinator.silent_devices import after_exchange
from edgefed.coordinator.trust_scores import Judged
from edgefed.events.early_stopping import REMOVED_TESTERS


def make_admission(
    deps: EngineDeps,
    spec: DataSpec,
    warn: Callable[[str], None],
    excluded: Excluded = lambda device, reason: None,
) -> Admission:
    """Return who takes part in a run, by their data, their trust and what they announce.

    Args:
        deps: the run's.
        spec: what its data look like.
        warn: told of each device that is left out.
        excluded: takes each change of the reason why a device is left out.
    """
    checks = deps.recipe.checks
    factor = 0.0 if deps.fleet.simulated else checks.announced_median_factor

    def quarantined(device: str) -> bool:
        admitted = deps.trust.admits(device, checks, timestamp(deps.clock.now()))
        if not admitted:
            _tell(deps, warn)
        return not admitted

    def announced(known: Roster) -> dict[str, str]:
        return deps.trust.announced.exclude(known, factor)

    parts = (deps.fleet, deps.prepared_recipe, spec, warn, deps.clock)

    def shown() -> dict[str, str]:
        return {view.device: view.excluded for view in deps.journal.snapshot.devices}

    return Admission(*parts, quarantined, announced, excluded, shown)


def update_trust(
    deps: EngineDeps, recorder: RunRecorder, opened: OpenExchange, collector: ReplyCollector
) -> None:
    """Write down what the replies to an exchange do to scores, before the exchange is merged.

    Who let its deadline pass is in the run's row from then on, which is written when it is closed.
    """
    judged = Judged(opened.exchange, collector.stats.devices, collector.blamed)
    now = timestamp(deps.clock.now())
    recorder.written(lambda: deps.trust.judge(judged, deps.recipe.checks, now))
    _tell(deps, recorder.warn)
    missed, accepted = deps.fleet.missed_deadline(opened), collector.stats.devices
    silent = after_exchange(recorder.record.silent, opened.round, missed, accepted)
    recorder.record = replace(recorder.record, silent=silent)


def note_testers(deps: EngineDeps, recorder: RunRecorder, tested: Collection[str]) -> None:
    """Note who tested a round's model, and how many devices did earlier and do so no more.

    Both are in the run's row, which is written when the round is closed.
    """
    if deps.fleet.simulated:
        return
    record, stays = recorder.record, deps.fleet.belongs
    gone = [
        device
        for device in record.testers
        if not stays(device) or deps.trust.is_quarantined(device)
    ]
    testers = tuple(sorted({*record.testers, *tested}.difference(gone)))
    progress = {**record.progress, REMOVED_TESTERS: len(gone)} if gone else record.progress
    recorder.record = replace(record, testers=testers, progress=progress)
    if gone:
        recorder.warn(
            f"no longer tested by {', '.join(gone)}, removed or quarantined: earlier scores of the"
            f" devices' tests do not compare, and the best round is sought from {record.round} on"
        )


def _tell(deps: EngineDeps, warn: Callable[[str], None]) -> None:
    """Tell which trust scores changed."""
    for change in deps.trust.changes():
        deps.journal.emit("device", **change)
        if change.get("moved") and change["standing"] == "quarantined":
            warn(f"{change['device']} is quarantined: {change['trust_reason']}")
