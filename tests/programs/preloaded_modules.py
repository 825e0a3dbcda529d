"""What the programs of tests import: imported once by the process that they are forked from.

Torchvision is among them since it imports torch's compiler, which takes as long as torch itself.
The modules of the two command lines themselves are executed anew in each process.
"""

from __future__ import annotations

import sys

import torchvision

import device_agent.commands.cli
import device_agent.daemon.agent
import device_agent.daemon.own_data
import device_agent.tasks.training_child
import edgefed.cli.main
import edgefed.coordinator.process.service
import edgefed.coordinator.trackers.choose
import edgefed.data.devices.sources
from edgefed.algorithms.composed.registry import built_in

__all__ = ["device_agent", "edgefed", "torchvision"]

built_in()
for program in ("edgefed.cli.main", "device_agent.commands.cli"):
    del sys.modules[program]
