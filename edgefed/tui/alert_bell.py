"""Find the alerts that ring the dashboard's bell: those that begin while it is open."""

from __future__ import annotations

from edgefed.events.base.alert_events import AlertView
from edgefed.events.state.feed_update import FeedUpdate


class AlertBell:
    """Finds the alerts that are new since the last update; the first update has none.

    Args:
        audible: whether to ring; alerts are shown on the screen anyway.
    """

    def __init__(self, *, audible: bool) -> None:
        self.audible = audible
        self._known: frozenset[AlertView] | None = None

    def new(self, update: FeedUpdate) -> tuple[AlertView, ...]:
        """Return the alerts that have begun since the update before."""
        if update.snapshot is None:
            return ()
        alerts, known = update.snapshot.alerts, self._known
        self._known = frozenset(alerts)
        return () if known is None else tuple(alert for alert in alerts if alert not in known)
