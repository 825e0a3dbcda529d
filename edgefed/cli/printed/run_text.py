"""A run as ``edgefed run show`` prints it: settings, state, scores, sizes, models, classes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgefed.cli.common.cells import ago, run_status
from edgefed.cli.printed.class_output import class_tables
from edgefed.terminal.console import columns
from edgefed.terminal.units import counted, duration, size, tested_by


def run_text(record: dict[str, Any]) -> str:
    """Return a run as ``run show`` prints it: settings, scores, sizes, classes."""
    from edgefed.files.code_versions import read_versions  # pydantic takes long to import

    accuracy = "" if record["accuracy"] is None else f"{record['accuracy']:.4f}"
    loss = "" if record["loss"] is None else f"{record['loss']:.4f}"
    reason = f": {record['reason']}" if record["reason"] else ""
    rows = [
        ("run", record["run"]),
        ("name", record["name"]),
        ("status", run_status(record["status"], reason)),
        ("hint", record["hint"] if record["status"] in ("failed", "finished") else ""),
        ("algorithm", record["algorithm"]),
        ("model", record["recipe"]["model"]["name"]),
        ("seed", str(record["seed"])),
        ("rounds", f"{record['round']} of {record['rounds']}"),
        ("accuracy", accuracy),
        ("loss", loss),
        ("tested by", tested_by(record)),
        *_more_scores(record["history"]),
        *_own_scores(record),
        *_modes(record["history"]),
        ("privacy", _privacy(record)),
        ("aggregation", _aggregation(record["recipe"])),
        ("growth", _growth(record["history"])),
        ("bytes", f"{size(record['bytes_up'])} up, {size(record['bytes_down'])} down"),
        ("averages", _averages(record)),
        ("started", ago(record["created"])),
        ("ended", ago(record["ended"])),
        ("time", duration(record["seconds"])),
        ("classes", ", ".join(record["class_names"])),
        ("versions", str(read_versions(record.get("versions")))),
        *_models(record["models"]),
        ("digest", record["weights_digest"]),
        ("folder", record["folder"]),
    ]
    return columns([(name, value) for name, value in rows if value]) + class_tables(
        record["confusions"]
    )


def _averages(record: dict[str, Any]) -> str:
    """Return of how many devices a run holds averaged data; nothing where of none."""
    sharing = record["sharing"]
    whose = counted(sharing, "device")
    return f"of {whose}: edgefed run means {record['run']}" if sharing else ""


def _aggregation(recipe: dict[str, Any]) -> str:
    """Return that updates are masked; nothing where the coordinator sees each of them."""
    section = recipe.get("secure_aggregation", {})
    if not section.get("enabled"):
        return ""
    text, threshold = "secure: the coordinator sees only sums", section["threshold"]
    if threshold:
        devices = f"{threshold:g}" if threshold > 1 else f"{threshold:.0%} of the"
        return f"{text}; at least {devices} devices of a round"
    colluders = section["colluders"]
    devices = f"{colluders:g}" if colluders >= 1 else f"{colluders:.0%} of the"
    return f"{text}; {devices} devices of a round may collude with it"


def _privacy(record: dict[str, Any]) -> str:
    """Return the privacy cost of the rounds so far; nothing for a run without it."""
    section = record["recipe"].get("privacy", {})
    if record.get("epsilon") is None or section.get("mechanism", "none") == "none":
        return ""
    budget = f" of {section['epsilon']:.4g}" if section.get("epsilon") is not None else ""
    restored = record.get("restored")  # what was spent after the backup is unknown
    spent = f"{'at least ' if restored else ''}{record['epsilon']:.4g}"
    text = f"epsilon {spent}{budget} at delta {section['delta']:.4g}"
    since = f", restored from the backup of {restored}" if restored else ""
    return f"{text} ({section['mechanism']}, replace-one device{since})"


def _growth(history: list[dict[str, Any]]) -> str:
    """Return how large matching made the model; nothing for a run without matching."""
    factors = [row["growth"] for row in history if row.get("growth") is not None]
    return f"{factors[-1]:.2f} times the parameters of a device" if factors else ""


def _more_scores(history: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the last round's scores over classes, and how accuracy spreads over devices."""
    last = _last_tested(history)
    top = [name for name in last if re.fullmatch(r"top\d+_accuracy", name)]
    rows = [
        (name.replace("_", " "), f"{last[name]:.4f}")
        for name in ("balanced_accuracy", "macro_precision", "macro_f1", *top)
        if last.get(name) is not None
    ]
    levels = ("worst", "p10", "median")
    spread = [(level, last.get(f"device_accuracy_{level}")) for level in levels]
    accuracies = [f"{level} {accuracy:.4f}" for level, accuracy in spread if accuracy is not None]
    return [*rows, ("devices", f"accuracy {', '.join(accuracies)}" if accuracies else "")]


def _own_scores(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the last scores before fine-tuning, and those of the users' own metrics."""
    from edgefed.config.recipes.user_functions import metric_name

    own = [metric_name(name) for name in record["recipe"]["evaluation"].get("metrics", ())]
    names = ("accuracy_before", "loss_before", *own)
    tested: dict[str, Any] = next(
        (row for row in reversed(record["history"]) if row.get("loss") is not None), {}
    )
    return [(name, f"{tested[name]:.4f}") for name in names if tested.get(name) is not None]


def _last_tested(history: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the last round that was evaluated."""
    return next((row for row in reversed(history) if row.get("accuracy") is not None), {})


def _modes(history: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the last accuracy of devices of each mode, such as those that have trained."""
    last = _last_tested(history)
    modes = (key.removeprefix("devices_") for key in last if key.startswith("devices_"))
    tested = [(mode, last.get(f"accuracy_{mode}"), int(last[f"devices_{mode}"])) for mode in modes]
    return [
        (mode, f"accuracy {accuracy:.4f} on {counted(devices, 'device')}")
        for mode, accuracy, devices in tested
        if accuracy is not None
    ]


def _models(models: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each row: the last model, the best one, the checkpoints."""
    checkpoints = [model for model in models if "/" in model["file"]]
    for model in models:
        if "/" in model["file"]:
            continue
        text = f"{model['file']}, after round {model['round']}"
        if model["file"].startswith("best"):
            score = f", {model['metric']} {model['score']:.4f}" if "score" in model else ""
            yield "best", text + score
        else:
            yield "last", text
    if checkpoints:
        count = counted(len(checkpoints), "model")
        last = checkpoints[-1]["file"]
        yield "checkpoints", f"{count}, the last is {last}"
