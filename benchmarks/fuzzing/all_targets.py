"""Every target by its name."""

from __future__ import annotations

from benchmarks.fuzzing import agent_target, coordinator_target, decoders, files

TARGETS = {
    target.name: target
    for part in (decoders, coordinator_target, agent_target, files)
    for target in part.TARGETS
}
