"""Attack a fleet of processes over a real Mosquitto with TLS, and see whether it goes on.

Each attack has a fleet of its own: a broker, a coordinator and agents, as ``edgefed init`` makes
them. The rounds of a run are timed beside a process at nice 19 that only computes, and then beside
the attacker at nice 19. Bounds: the median round takes at most twice as long, ``edgefed device
list`` takes at most 2 s ("before": beside the busy process), the final accuracy differs by at most
0.02, and nothing has to be started again.

    python -m benchmarks.attacks [NAME ...] [--agents 4] [--rounds 40] [--json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.attacks.attacked_fleet import measure
from benchmarks.attacks.attackers import ATTACKS


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows for people."""
    head = f"{'attack':<22}{'round s':>9}{'attacked':>10}{'ratio':>7}{'before':>8}{'list s':>8}"
    lines = [f"{head}{'failed':>8}{'accuracy':>10}{'restarts':>10}  result"]
    lines += [
        f"{row['attack']:<22}{row['baseline_s']:>9.2f}{row['attacked_s']:>10.2f}"
        f"{row['ratio']:>7.2f}{row['baseline_list_s']:>8.2f}{row['list_s']:>8.2f}"
        f"{row['failed_lists']:>8}{row['accuracy']:>10.3f}"
        f"{len(row['restarts']):>10}  {'within bounds' if row['ok'] else 'OUT OF BOUNDS'}"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attacks", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ATTACKS))
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.names or ATTACKS:
        if name not in ATTACKS:
            parser.error(f"there is no attack {name}; there are {', '.join(ATTACKS)}")
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(name, arguments.agents, arguments.rounds, Path(folder)))
    print(json.dumps(rows) if arguments.json else table(rows))


if __name__ == "__main__":
    main()
