"""Where the console script ``edgefed-agent`` begins; the command line is ``device_agent.cli``."""

from __future__ import annotations

from edgefed.startup import begin


def main() -> None:
    """Run the command line."""
    begin("device_agent.cli")
