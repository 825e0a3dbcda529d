"""``python -m device_agent.updater SETTINGS``: the updater's process; SETTINGS are JSON."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys

from device_agent.updater.state import UpdaterSettings
from device_agent.updater.updates import AgentUpdater
from edgefed.process.stop_signals import call_soon


def main() -> int:
    """Run until SIGTERM or Ctrl-C; return the agent's exit code."""
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("tuf").setLevel(logging.WARNING)
    os.umask(0o077)
    updater = AgentUpdater(UpdaterSettings.of(json.loads(sys.argv[1])))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: call_soon(updater.stop))
    return updater.run()


if __name__ == "__main__":
    sys.exit(main())
