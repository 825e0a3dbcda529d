"""Change the devices' trust scores after an exchange, and tell what changed."""

from __future__ import annotations

from edgefed.clock import timestamp
from edgefed.coordinator.engine_deps import EngineDeps
from edgefed.coordinator.reply_collector import ReplyCollector
from edgefed.coordinator.run_recorder import RunRecorder
from edgefed.coordinator.run_records import OpenExchange
from edgefed.coordinator.trust_scores import Judged


def update_trust(
    deps: EngineDeps, recorder: RunRecorder, opened: OpenExchange, collector: ReplyCollector
) -> None:
    """Write down what the replies to an exchange do to scores, before the exchange is merged."""
    judged = Judged(opened.exchange, collector.stats.devices, collector.blamed)
    now = timestamp(deps.clock.now())
    recorder.written(lambda: deps.trust.judge(judged, deps.recipe.checks, now))
    for change in deps.trust.changes():
        deps.journal.emit("device", **change)
        if change.get("moved") and change["standing"] == "quarantined":
            recorder.warn(f"{change['device']} is quarantined: {change['trust_reason']}")
