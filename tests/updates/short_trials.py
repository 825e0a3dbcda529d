"""``edgefed-agent`` whose updater waits seconds for a new version, not minutes."""

from __future__ import annotations

from functools import partial

from device_agent.commands.cli import main
from device_agent.updater import state

if __name__ == "__main__":
    vars(state)["TrialLimits"] = partial(state.TrialLimits, start=45.0, connect=5.0)
    main()
