"""Every target by its name."""

from __future__ import annotations

from benchmarks.fuzzing import (
    agent_target,
    coordinator_target,
    decoders,
    files,
    signed_agent_target,
    signed_coordinator_target,
    signed_target,
    trust_files,
)

PARTS = (
    *(decoders, signed_target, coordinator_target, signed_coordinator_target),
    *(agent_target, signed_agent_target, files, trust_files),
)

TARGETS = {target.name: target for part in PARTS for target in part.TARGETS}
