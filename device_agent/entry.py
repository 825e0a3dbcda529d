"""The entry point of the console script ``edgefed-agent``; its command line is in ``cli``."""

from __future__ import annotations

from edgefed.process.startup import begin


def main() -> None:
    """Run the command line."""
    begin("device_agent.commands.cli")


if __name__ == "__main__":  # so an updater starts any version
    main()
