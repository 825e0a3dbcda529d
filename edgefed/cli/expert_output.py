"""The experts of a run as text and as JSON values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from edgefed.cli.run_part import RunPart
from edgefed.console import columns
from edgefed.events.expert_events import problem_in_words
from edgefed.events.expert_history import ExpertHistory
from edgefed.report.experts import class_names_of, expert_names, experts_picture, row_names
from edgefed.report.run_data import RunData

MOST_COLUMNS = 10
"""Experts that have a column each; of more, a row names the largest shares."""

MOST_NAMED = 4
"""Shares that such a row names."""


def experts_part(run_data: RunData) -> RunPart:
    """Return the experts of a run as a command prints them."""
    record, history = run_data.record, run_data.summary.experts
    missing = f"Run {record['run']} has no experts: its algorithm is {record.get('algorithm', '')}."
    return RunPart(
        missing="" if history is not None else missing,
        code="experts.none",
        values=lambda: experts_json(run_data),
        text=lambda: experts_text(run_data, history) if history is not None else "",
        picture=lambda: experts_picture(run_data, history) if history is not None else "",
    )


def experts_json(run_data: RunData) -> dict[str, Any]:
    """Return the experts of a run; of a run without any, ``experts`` is 0."""
    history = run_data.summary.experts
    if history is None:
        return {"run": run_data.record["run"], "experts": 0}
    now = history.now
    names = row_names(history, class_names_of(run_data))
    rows = zip(names, now.table, strict=True)
    return {
        "run": run_data.record["run"],
        **now.model_dump(mode="json", exclude={"table", "labels", "rounds"}),
        "devices": _users(history),
        "table": [{"value": name, "shares": list(shares)} for name, shares in rows],
        "table_rows": now.labels,
        "mixtures": [mixture.model_dump(mode="json") for mixture in history.mixtures],
        "more_mixtures": history.more_mixtures,
        "history": [row.model_dump(mode="json") for row in history.loads],
    }


def experts_text(run_data: RunData, history: ExpertHistory) -> str:
    """Return experts, table and mixtures as tables below each other."""
    now = history.now
    parts = [_headline(run_data, history), columns(list(_expert_rows(history)))]
    if now.table:
        names = row_names(history, class_names_of(run_data))
        head = (now.condition.upper(), *_heads(history))
        rows = [(name, *_cells(shares)) for name, shares in zip(names, now.table, strict=True)]
        parts.append(columns([head, *rows]))
    if now.labels > len(now.table):
        parts.append(f"The first {len(now.table)} of {now.labels} rows are shown.")
    if history.mixtures:
        parts.append(columns(list(_mixture_rows(history))))
    if history.more_mixtures:
        parts.append(f"{history.more_mixtures} more devices are not shown.")
    return "\n\n".join(parts)


def _headline(run_data: RunData, history: ExpertHistory) -> str:
    now = history.now
    told = [f"{run_data.record['run']}, round {now.round}", f"{now.experts} experts"]
    if now.entropy is not None:
        told.append(f"entropy of the load {now.entropy:.2f} of {math.log(now.experts):.2f}")
    problem = problem_in_words(now)
    return ", ".join(told) + (f"\n! {problem}" if problem else "")


def _expert_rows(history: ExpertHistory) -> Iterator[tuple[str, ...]]:
    now = history.now
    yield ("EXPERT", "LOAD", "DEVICES", *(("DIVERGENCE",) if now.divergence else ()), "STATE")
    users = _users(history)
    for expert, name in enumerate(expert_names(history)):
        found = now.divergence[expert] if expert < len(now.divergence) else None
        measured = ("" if found is None else f"{found:.4g}",) if now.divergence else ()
        load = f"{now.load[expert]:.1%}" if expert < len(now.load) else ""
        yield (name, load, str(users[expert]), *measured, "dead" if expert in now.dead else "")


def _users(history: ExpertHistory) -> list[int]:
    """Return for each expert how many devices have their largest share in it."""
    users = [0] * history.now.experts
    for mixture in history.mixtures:
        if mixture.shares:
            users[mixture.shares.index(max(mixture.shares))] += 1
    return users


def _mixture_rows(history: ExpertHistory) -> Iterator[tuple[str, ...]]:
    yield ("DEVICE", "SAMPLES", "ROUND", *_heads(history), "KEPT")
    for mixture in history.mixtures:
        kept = " ".join(f"e{expert}" for expert in mixture.kept)
        numbers = (str(mixture.samples), str(mixture.round))
        everything = len(mixture.kept) == history.now.experts
        yield (mixture.device, *numbers, *_cells(mixture.shares), "all" if everything else kept)


def _heads(history: ExpertHistory) -> list[str]:
    """Return the headings of shares: a column an expert, or one for all."""
    names = expert_names(history)
    return names if len(names) <= MOST_COLUMNS else ["SHARES"]


def _cells(shares: Sequence[float]) -> list[str]:
    if len(shares) <= MOST_COLUMNS:
        return [f"{share:.2f}" for share in shares]
    order = sorted(range(len(shares)), key=lambda expert: (-shares[expert], expert))
    return [" ".join(f"e{expert} {shares[expert]:.2f}" for expert in order[:MOST_NAMED])]
