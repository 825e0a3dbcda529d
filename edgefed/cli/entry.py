"""The entry point of the console script ``edgefed``; ``edgefed.cli.main`` is the command line."""

from __future__ import annotations

from edgefed.process.startup import begin


def main() -> None:
    """Run the command line."""
    begin("edgefed.cli.main")
