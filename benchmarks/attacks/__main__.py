"""Attack a fleet of processes over a real Mosquitto with TLS, and see whether it goes on.

Each attack has a fleet of its own: a broker, a coordinator and agents, as ``edgefed init`` makes
them. The rounds of a run are timed beside a process at nice 19 that only computes, and then beside
the attacker at nice 19. Bounds: the median round takes at most twice as long, ``edgefed device
list`` takes at most 2 s ("before": beside the busy process), the final accuracy differs by at most
0.02, and nothing has to be started again.

    python -m benchmarks.attacks [NAME ...] [--agents 4] [--rounds 40] [--json]
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.attacks.attacked_fleet import measure
from benchmarks.attacks.attackers import ATTACKS
from benchmarks.shared.harness import parser, show


def main() -> None:
    """Measure and print."""
    command = parser("attacks", __doc__, agents=4, rounds=40)
    command.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ATTACKS))
    options = command.parse_args()
    rows = []
    for name in options.names or ATTACKS:
        if name not in ATTACKS:
            command.error(f"there is no attack {name}; there are {', '.join(ATTACKS)}")
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(name, options.agents, options.rounds, Path(folder)))
    show(options, rows)


if __name__ == "__main__":
    main()
