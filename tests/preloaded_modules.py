"""What coordinators and agents import: imported once by the process that they are forked from.

The modules of the command lines are not among them: they are executed anew in each process.
"""

from __future__ import annotations

import device_agent.agent
import device_agent.launch
import device_agent.own_data
import edgefed.cli.coordinator
import edgefed.coordinator.service
import edgefed.coordinator.trackers.choose
import edgefed.data.sources
from edgefed.algorithms.registry import built_in

__all__ = ["device_agent", "edgefed"]

built_in()
