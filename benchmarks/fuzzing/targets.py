"""Every target by its name."""

from __future__ import annotations

from benchmarks.fuzzing import agent_targets, coordinator_targets, file_targets, wire_targets

TARGETS = {
    target.name: target
    for part in (wire_targets, coordinator_targets, agent_targets, file_targets)
    for target in part.TARGETS
}
