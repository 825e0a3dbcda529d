"""The page about monitoring and the Grafana board have all metrics and no other."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from runpy import run_path

from device_agent.reports.progress_reporter import AGENT_METRICS
from edgefed.coordinator.process.service_metrics import SERVICE_METRICS
from edgefed.process.installed_service import ServiceStatus

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
BOARD = (ROOT / "deploy" / "grafana.json").read_text(encoding="utf-8")
METRICS = {metric.name: metric for metric in (*SERVICE_METRICS, *AGENT_METRICS)}


def test_page_and_board_are_up_to_date() -> None:
    made = run_path(str(ROOT / "docs" / "make_monitoring_page.py"))
    assert made["page"](PAGE) == PAGE
    assert made["board"]() == BOARD


def test_the_board_shows_each_metric_once_and_none_that_there_is_not() -> None:
    board = json.loads(BOARD)
    terms = [panel["targets"][0]["expr"] for panel in board["panels"]]
    named = [name for term in terms for name in re.findall(r"edgefed_\w+", term)]
    assert sorted(named) == sorted(METRICS)
    for name, term in zip(named, terms, strict=True):
        assert term.startswith("rate(") == (METRICS[name].kind == "counter"), term


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, metric in METRICS.items():
        assert re.fullmatch(r"edgefed_[a-z]+(_[a-z]+)*", name), name
        assert name.endswith("_total") == (metric.kind == "counter"), name
        assert metric.meaning.endswith("."), name


def test_the_fields_of_a_service_are_described() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ", PAGE.partition("## Metrics")[0], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"\w+", row)]
    assert named and set(named) == {field.name for field in fields(ServiceStatus)}
