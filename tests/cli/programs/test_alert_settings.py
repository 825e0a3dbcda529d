"""Alerts reach the coordinator that another command starts."""

from __future__ import annotations

from pathlib import Path

from edgefed.cli.programs.processes import Processes
from edgefed.config.fleet.alert_settings import AlertSettings
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.loading.load import load_settings
from edgefed.config.values.address import Address


def test_a_started_coordinator_has_the_alerts_of_its_fleet(tmp_path: Path) -> None:
    alerts = AlertSettings(
        command=("page", 'a "b" $c'), webhook="http://127.0.0.1:1/x", lost_share=0.5, bell=False
    )
    started = Processes(Address("127.0.0.1", 1883), "lab", tmp_path, alerts=alerts)
    environment = started._environment()
    loaded = load_settings(Surroundings(environment, tmp_path, no_config=True))
    assert loaded.value.alerts == alerts
