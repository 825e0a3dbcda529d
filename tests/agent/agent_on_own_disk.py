"""``edgefed-agent`` with a disk of its own: ``python -m tests.agent.agent_on_own_disk DISK …``."""

from __future__ import annotations

import sys
from pathlib import Path

from device_agent.commands.cli import main
from tests.coordinator.full_disk import mount_own

if __name__ == "__main__":
    mount_own(Path(sys.argv.pop(1)), "12m")
    main()
