"""Write the tables of metrics in docs/monitoring.md, and the Grafana board deploy/grafana.json.

python docs/make_monitoring_page.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from device_agent.reports.progress_reporter import AGENT_METRICS
from edgefed.coordinator.process.service_metrics import SERVICE_METRICS
from edgefed.terminal.metrics_server import Metric

PAGE = Path(__file__).with_name("monitoring.md")
BOARD = Path(__file__).parents[1] / "deploy" / "grafana.json"

UNITS = {
    "seconds": "s",
    "bytes": "bytes",
    "celsius": "celsius",
    "watts": "watt",
    "ratio": "percentunit",
}


def table(metrics: Sequence[Metric]) -> str:
    """Return metrics as a table in Markdown."""
    rows = [
        f"| `{metric.name}` | {metric.kind} | {f'`{metric.label}`' if metric.label else ''} |"
        f" {metric.meaning} |"
        for metric in metrics
    ]
    return "\n".join(["| metric | kind | label | meaning |", "|---|---|---|---|", *rows])


def page(written: str) -> str:
    """Return the page with current tables.

    Args:
        written: the page as it is.
    """
    for name, metrics in (("coordinator", SERVICE_METRICS), ("agent", AGENT_METRICS)):
        begin, end = f"<!-- metrics of the {name} -->\n", f"<!-- end of the {name} -->"
        before, _, rest = written.partition(begin)
        written = f"{before}{begin}\n{table(metrics)}\n\n{end}{rest.partition(end)[2]}"
    return written


def board() -> str:
    """Return a board with a panel for each metric."""
    metrics = dict.fromkeys((*SERVICE_METRICS, *AGENT_METRICS))
    panels = [_panel(metric, place) for place, metric in enumerate(metrics)]
    query = {"query": "label_values(edgefed_version_info, instance)", "refId": "instances"}
    instances = {
        "name": "instance",
        "label": "Instance",
        "type": "query",
        "query": query,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }
    source = {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}
    whole = {
        "title": "EdgeFed",
        "uid": "edgefed",
        "schemaVersion": 39,
        "version": 1,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "tags": ["edgefed"],
        "templating": {"list": [source, instances]},
        "panels": panels,
    }
    return json.dumps(whole, indent=1) + "\n"


def _panel(metric: Metric, place: int) -> dict[str, Any]:
    chosen = f'{metric.name}{{instance=~"$instance"}}'
    counts = metric.kind == "counter"
    last = metric.name.removesuffix("_total").rpartition("_")[2]
    unit = UNITS.get(last, "short")
    if counts and unit == "bytes":
        unit = "Bps"
    legend = "{{instance}}" + (f" {{{{{metric.label}}}}}" if metric.label else "")
    return {
        "id": place + 1,
        "title": metric.meaning.rstrip(".") + (", per second" if counts else ""),
        "type": "timeseries",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {"h": 7, "w": 8, "x": place % 3 * 8, "y": place // 3 * 7},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "expr": f"rate({chosen}[$__rate_interval])" if counts else chosen,
                "legendFormat": legend,
                "refId": "A",
            }
        ],
    }


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    BOARD.write_text(board(), encoding="utf-8")
