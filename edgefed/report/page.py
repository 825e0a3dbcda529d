"""A run as one self-contained HTML page: no scripts, fonts or network access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from edgefed.charts.lines import LineChart, Series, line_chart
from edgefed.charts.svg import stylesheet
from edgefed.config.loading.write import tables_toml
from edgefed.config.recipes.recipe import EvaluationSection
from edgefed.events.history.early_stopping import history_of
from edgefed.files.code_versions import read_versions
from edgefed.report import sections
from edgefed.report.html import render
from edgefed.report.run_data import RunData
from edgefed.report.tables import table_sections
from edgefed.terminal.units import duration, size, tested_by

BEFORE = "accuracy_before"
"""The devices' accuracy before they fine-tuned the model."""

MOODS = {"finished": "good", "failed": "bad", "aborted": "bad"}
"""Classes of the style for a run's status."""

LEVELS = {"worst": "worst device", "p10": "10th percentile of devices", "median": "median device"}
"""How the accuracy spreads over devices, as curves are called."""


def report(run_data: RunData) -> str:
    """Return the report of a run."""
    record, summary = run_data.record, run_data.summary
    status = str(record.get("status", ""))
    reason = f": {record['reason']}" if record.get("reason") else ""
    what = " · ".join(str(record[key]) for key in ("name", "algorithm") if record.get(key))
    return render(
        "report.html",
        chart_style=stylesheet(),
        record=record,
        heading=what or record["run"],
        mood=MOODS.get(status, "quiet"),
        outcome=status + reason,
        numbers=list(_numbers(record)),
        accuracy=line_chart(_accuracy(run_data)),
        loss=line_chart(_loss(run_data)),
        classes=list(sections.classes(run_data)),
        traffic=sections.traffic(run_data.rounds),
        labels=sections.labels(summary),
        method=list(table_sections(run_data)),
        answers=sections.answers(summary),
        devices=sections.devices(summary),
        averages=sections.averages(summary),
        events=sections.events(summary),
        details=list(_details(run_data)),
        rounds=sections.rounds(run_data),
        recipe=tables_toml(run_data.recipe) if run_data.recipe else "",
    )


def _numbers(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "accuracy", _number(record.get("accuracy"))
    yield "loss", _number(record.get("loss"))
    if counts := tested_by(record):
        yield "tested by", counts
    if record.get("epsilon") is not None:
        least = "at least " if record.get("restored") else ""
        yield "epsilon", f"{least}{record['epsilon']:.4g}"
    yield "rounds", f"{record.get('round', 0)} / {record.get('rounds', 0)}"
    yield "devices", str(record.get("devices", ""))
    yield "bytes down", size(record.get("bytes_down", 0))
    yield "bytes up", size(record.get("bytes_up", 0))
    yield "time", duration(record.get("seconds", 0.0))


def _details(run_data: RunData) -> Iterator[tuple[str, str]]:
    recipe = run_data.recipe
    yield "model", str(recipe.get("model", {}).get("name", ""))
    yield "data", str(recipe.get("data", {}).get("name", ""))
    yield "seed", str(recipe.get("seed", ""))
    yield "best round", _best(run_data)
    for key, name in (
        ("created", "created"),
        ("started", "started"),
        ("ended", "ended"),
        ("weights_digest", "weights"),
        ("folder", "folder"),
        ("error", "error"),
        ("hint", "hint"),
    ):
        yield name, str(run_data.record.get(key) or "")
    yield "versions", str(read_versions(run_data.record.get("versions")))


def _best(run_data: RunData) -> str:
    """Return the best round and its score; nothing before the first evaluation."""
    try:
        section = EvaluationSection.model_validate(run_data.recipe.get("evaluation", {}))
    except ValidationError:  # the recipe of another version
        return ""
    best = history_of(section, run_data.rounds).best
    return f"{best.round}: {best.metric} {best.score:.4f}" if best is not None else ""


def _accuracy(run_data: RunData) -> LineChart:
    modes = dict.fromkeys(
        key
        for row in run_data.rounds
        for key in row
        if key.startswith("accuracy_") and not key.startswith(BEFORE)
    )
    series = [
        *(_curve(run_data, f"device_accuracy_{key}", name) for key, name in LEVELS.items()),
        *(_curve(run_data, key, f"{key.removeprefix('accuracy_')} devices") for key in modes),
        _curve(run_data, BEFORE, "devices, before fine-tuning"),
        _curve(run_data, "accuracy", "held-out data of the coordinator"),
        _curve(run_data, "device_accuracy", "held-out data of the devices"),
    ]
    shown = _distinct(series)
    return LineChart("accuracy by round", shown, bounds=(0.0, 1.0))


def _loss(run_data: RunData) -> LineChart:
    series = [
        _curve(run_data, "loss", "tested"),
        _curve(run_data, "device_loss", "tested on devices"),
        _curve(run_data, "train_loss", "in training"),
    ]
    return LineChart("loss by round", _distinct(series))


def _distinct(series: list[Series]) -> list[Series]:
    """Return the curves that have points, each once: where devices alone test, two are the same."""
    kept: list[Series] = []
    for curve in reversed(series):
        if curve.points and all(curve.points != other.points for other in kept):
            kept.append(curve)
    return kept[::-1]


def _curve(run_data: RunData, key: str, name: str) -> Series:
    points = [(row["round"], row[key]) for row in run_data.rounds if row.get(key) is not None]
    hollow = {row["round"] for row in run_data.rounds if row.get("compared") is False}
    return Series(name, points, hollow=() if key == "train_loss" else hollow)


def _number(value: float | None) -> str:
    """Return a score, short enough for a tile however large it is."""
    if value is None:
        return ""
    return f"{value:.4f}" if abs(value) < 1e5 else f"{value:.3g}"
