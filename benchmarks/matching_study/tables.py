"""The study's tables: final accuracy, and accuracy by rounds, by bytes and by epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.matching_study.methods import METHODS, Setup
from benchmarks.matching_study.study import Row
from edgefed.simulator.sweep.table import Spread, spread

Table = list[tuple[str, ...]]
Titled = list[tuple[str, Table]]
Local = Mapping[str, Mapping[str, tuple[float, ...]]]

SLACK = 1.02
"""Bytes of equal rounds differ a little, as blobs are compressed."""

REACH = 1.1
"""A run that spent a little less than a milestone is told there; beyond, its cell is empty."""


def of(setup: Setup, part: str, rows: Sequence[Row], local: Local) -> Titled:
    """Return the tables of a part, each with its title."""
    found = [("after the last round", final(setup, rows)), ("chosen", tuned(rows))]
    if local:
        found.append(("networks of single devices", alone(local)))
    if part == "rounds":
        for epochs in sorted({row.case.epochs for row in rows}):
            alike = [row for row in rows if row.case.epochs == epochs]
            for title, table in curves(setup, alike).items():
                found.append((f"E = {epochs}, {title}", table))
    grown = widths(rows)
    return [*found, ("widths", grown)] if len(grown) > 1 else found


def final(setup: Setup, rows: Sequence[Row]) -> Table:
    """Return accuracy, cost and growth of each case."""
    base = {row.case.epochs: row.final for row in rows if row.case.method == "FedAvg"}
    found: Table = [
        ("E", "METHOD", "ROUNDS", "EPOCHS", "MB", "ACCURACY", "AGAINST FEDAVG", "GROWTH", "CPU S")
    ]
    for row in rows:
        rounds, case = row.case.rounds(setup), row.case
        against = ""
        if case.method != "FedAvg" and len(base.get(case.epochs, ())) == len(row.final):
            pairs = zip(row.final, base[case.epochs], strict=True)
            against = spoken(spread([one - other for one, other in pairs]), "{:+.3f}")
        grown = [each for run in row.runs if (each := growth(run)) is not None]
        found.append(
            (
                str(case.epochs),
                case.method,
                str(rounds),
                str(rounds * epochs_of(setup, row)),
                spoken(spread([traffic(run)[-1] / 1e6 for run in row.runs]), "{:.1f}"),
                spoken(spread(row.final)),
                against,
                spoken(spread(grown), "{:.2f}"),
                spoken(spread([run["seconds"] for run in row.runs]), "{:.0f}"),
            )
        )
    return found


def tuned(rows: Sequence[Row]) -> Table:
    """Return the accuracy of every setting on the samples kept apart; the chosen one is first."""
    found: Table = [("E", "METHOD", "CHOSEN", "ACCURACY OF EACH")]
    for row in rows:
        each = "; ".join(f"{words}: {score:.3f}" for words, score in row.tuning.items())
        found.append((str(row.case.epochs), row.case.method, row.chosen, each))
    return found


def settings(scores: Mapping[str, float]) -> Table:
    """Return the accuracy of other settings of FedMA."""
    return [("SETTING", "ACCURACY"), *((words, f"{each:.3f}") for words, each in scores.items())]


def alone(local: Local) -> Table:
    """Return what networks of single devices are worth."""
    found: Table = [("INITIAL WEIGHTS", "ALONE", "ENSEMBLE", "AVERAGE")]
    for words, scores in local.items():
        cells = [spoken(spread(scores[name])) for name in ("alone", "ensemble", "average")]
        found.append((words, *cells))
    return found


def curves(setup: Setup, rows: Sequence[Row]) -> dict[str, Table]:
    """Return accuracy by rounds, by bytes and by epochs, of cases with the same epochs."""
    base = next((row for row in rows if row.case.method == "FedAvg"), None)
    found = {"by rounds": _curve(rows, setup.milestones, lambda row, run: _numbers(run))}
    if base is not None:
        one = fmean(traffic(run)[-1] / len(run["rounds"]) for run in base.runs)
        own = base.case.epochs
        found["by bytes, in rounds of FedAvg"] = _curve(
            rows, setup.milestones, lambda row, run: [each / one / SLACK for each in traffic(run)]
        )
        found["by epochs, in rounds of FedAvg"] = _curve(
            rows,
            setup.milestones,
            lambda row, run: [each * epochs_of(setup, row) / own for each in _numbers(run)],
        )
    return found


def _curve(
    rows: Sequence[Row],
    milestones: Sequence[int],
    spent: Callable[[Row, Mapping[str, Any]], Sequence[float]],
) -> Table:
    """Return the accuracy after the last round that has spent no more than each milestone."""
    found: Table = [("METHOD", *map(str, milestones))]
    for row in rows:
        cells = []
        for milestone in milestones:
            scores = [_within(run, spent(row, run), milestone) for run in row.runs]
            known = [each for each in scores if each is not None]
            cells.append(spoken(spread(known)) if len(known) == len(scores) else "")
        found.append((row.case.method, *cells))
    return found


def _within(run: Mapping[str, Any], spent: Sequence[float], most: float) -> float | None:
    """Return the accuracy of the last round within a budget; None outside of what was run."""
    inside = [
        row["accuracy"] for row, each in zip(run["rounds"], spent, strict=True) if each <= most
    ]
    return inside[-1] if inside and spent[-1] * REACH >= most else None


def widths(rows: Sequence[Row]) -> Table:
    """Return each layer's width on devices and after matching, in the first and last round."""
    found: Table = [("E", "METHOD", "LAYER", "LOCAL", "FIRST", "LAST", "HOLDERS")]
    for row in rows:
        reports = [_reports(run) for run in row.runs]
        if not all(reports):
            continue
        for number, layer in enumerate(reports[0][0]["layers"]):
            ends = [(own[0]["layers"][number], own[-1]["layers"][number]) for own in reports]
            found.append(
                (
                    str(row.case.epochs),
                    row.case.method,
                    layer["layer"],
                    str(layer["local"]),
                    spoken(spread([first["atoms"] for first, _ in ends]), "{:.1f}"),
                    spoken(spread([last["atoms"] for _, last in ends]), "{:.1f}"),
                    spoken(spread([last["holders"] for _, last in ends]), "{:.1f}"),
                )
            )
    return found


def epochs_of(setup: Setup, row: Row) -> int:
    """Return the epochs of local training in one round."""
    return row.case.epochs * (setup.layers if METHODS[row.case.method].passes else 1)


def traffic(run: Mapping[str, Any]) -> list[int]:
    """Return the bytes that all devices were sent and sent, until the end of each round."""
    found, total = [], 0
    for row in run["rounds"]:
        total += row["sent"] + row["received"]
        found.append(total)
    return found


def growth(run: Mapping[str, Any]) -> float | None:
    """Return parameters of the last global model divided by a device's; None without matching."""
    reports = _reports(run)
    return reports[-1]["growth"] if reports else None


def _reports(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [row["report"] for row in run["rounds"] if "report" in row]


def _numbers(run: Mapping[str, Any]) -> list[int]:
    return [row["round"] for row in run["rounds"]]


def as_json(rows: Sequence[Row], local: Local) -> dict[str, Any]:
    """Return the rows as ``--json`` has them."""
    return {
        "cases": [
            {
                "method": row.case.method,
                "epochs": row.case.epochs,
                "chosen": row.chosen,
                "tuning": dict(row.tuning),
                "accuracy": spread(row.final).__dict__,
                "curves": [[each["accuracy"] for each in run["rounds"]] for run in row.runs],
                "bytes": [traffic(run) for run in row.runs],
                "growth": [growth(run) for run in row.runs],
            }
            for row in rows
        ],
        "local": {
            words: {name: list(each) for name, each in scores.items()}
            for words, scores in local.items()
        },
    }


def spoken(value: Spread, form: str = "{:.3f}") -> str:
    """Return mean and deviation in words; nothing for no values."""
    if value.mean is None:
        return ""
    if value.deviation is None:
        return form.format(value.mean)
    return f"{form.format(value.mean)} ± {form.format(value.deviation).lstrip('+')}"
