"""Every target by its name."""

from __future__ import annotations

from benchmarks.fuzzing import agent_target, coordinator_target, decoders

TARGETS = {
    target.name: target
    for target in (*decoders.TARGETS, *coordinator_target.TARGETS, *agent_target.TARGETS)
}
