"""The alerts that have begun and are not over; kept across restarts of the coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from edgefed.database.database import Database, DatabaseTable, Schema
from edgefed.events.base.alert_events import AlertName, AlertView
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.alerts import Alert

FILE = "open-alerts.db"

_SCHEMA = Schema(
    1,
    {
        "alerts": DatabaseTable(
            {
                "alert": "text not null",
                "run": "text not null",
                "text": "text not null",
                "since": "text not null",
                "occurrence": "text not null",
            },
            ("alert",),
        )
    },
    "the database of open alerts",
)


class OpenAlerts:
    """The alerts that were sent and are not over; one for each name.

    Args:
        folder: the coordinator's state directory; None to keep nothing, as in tests.

    Raises:
        StorageError: the file cannot be used, or is damaged.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._db = None if folder is None else Database(folder / FILE, _SCHEMA)

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()

    def alerts(self) -> tuple[Alert, ...]:
        """Return them as the conditions of alerts know them; an unknown name is left out."""
        return tuple(
            Alert(name, row[2], row[1], occurrence=row[4])
            for row in self._rows()
            for name in get_args(AlertName)
            if name == row[0]
        )

    def in_snapshot(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot that has them."""
        return snapshot.model_copy(update={"alerts": self.views()})

    def views(self) -> tuple[AlertView, ...]:
        """Return them as a snapshot has them, oldest first."""
        views = (
            AlertView(alert=name, about=row[1], text=row[2], since=row[3])
            for row in self._rows()
            for name in get_args(AlertName)
            if name == row[0]
        )
        return tuple(sorted(views, key=lambda view: view.since))

    def begin(self, alert: Alert, since: str) -> None:
        """Keep an alert that has begun, in place of an older one of its name.

        Raises:
            StorageError: the disk does not take it.
        """
        if self._db is not None:
            with self._db.transaction():
                self._db.put("alerts", alert.name, alert.run, alert.text, since, alert.occurrence)

    def end(self, alert: Alert) -> None:
        """Keep an alert no longer.

        Raises:
            StorageError: the disk does not take it.
        """
        if self._db is not None:
            with self._db.transaction():
                self._db.delete("alerts", alert=alert.name)

    def _rows(self) -> list[tuple[str, ...]]:
        rows = () if self._db is None else self._db.rows("alerts")
        return [tuple(map(str, row)) for row in rows]
