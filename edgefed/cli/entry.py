"""Where the console script ``edgefed`` begins; the command line itself is ``edgefed.cli.main``."""

from __future__ import annotations

from edgefed.startup import begin


def main() -> None:
    """Run the command line."""
    begin("edgefed.cli.main")
