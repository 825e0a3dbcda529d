"""``edgefed status``: a summary of broker, devices and the current run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from edgefed.cli.common.cells import ago, run_status
from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.process.clock import moment_of
from edgefed.terminal.common_options import Check
from edgefed.terminal.console import columns
from edgefed.terminal.units import counted, score_of, size
from edgefed.version import VERSION

if TYPE_CHECKING:
    from edgefed.events.state.attention import AttentionItem

MOST_NAMED = 3
"""Excluded devices, and senders of too many messages, that are named."""

EPILOG = examples("edgefed status", "edgefed --fleet plant-a status --json")


def status(context: typer.Context, *, check: Check = False) -> None:
    """Show broker, devices and the current run on one screen, or check them.

    With --check: one line. Exit code 0 if nothing needs attention, 3 if broker or coordinator do
    not answer, 8 for alarms, such as a lost device that a round waits for.
    """
    from edgefed.config.fleet.broker_address import broker_address

    options = globals_of(context)
    broker = str(broker_address(options.settings().value))
    with options.connected() as coordinator:
        body = coordinator.ask("snapshot")
    snapshot, inbox = body["snapshot"], body["inbox"]
    if check:
        options.answer(*_health(snapshot, body["time"]))
        return
    options.answer(
        {"broker": broker, "inbox": inbox, **snapshot},
        columns([*_rows(broker, snapshot, body["time"]), *_dropped(inbox)]),
    )


def _health(snapshot: dict[str, Any], now: str) -> tuple[dict[str, Any], str]:
    """Return the summary of a healthy fleet as values and as a line.

    Raises:
        CheckFailedError: ``fleet.attention``: there are alarms.
    """
    from edgefed.errors import CheckFailedError
    from edgefed.events.base.snapshot import Snapshot
    from edgefed.events.state.attention import attention, by_cause

    fleet = Snapshot.model_validate(snapshot)
    items = [item for item in attention(fleet, moment_of(now)) if item.severity == "alarm"]
    if items:
        groups = by_cause(items)
        shown = "; ".join(map(_in_words, groups[:MOST_NAMED]))
        left = sum(map(len, groups[MOST_NAMED:]))
        more = f"; and {left} more" if left else ""
        raise CheckFailedError(shown + more, code="fleet.attention", hint="edgefed status")
    online = sum(view.state != "lost" for view in fleet.devices)
    run = f"{fleet.run.run} {fleet.run.status}" if fleet.run else ""
    values = {"fleet": fleet.fleet, "devices": len(fleet.devices), "online": online, "run": run}
    text = f"healthy: {online} of {len(fleet.devices)} devices online"
    return values, f"{text}, run {run}" if run else text


def _in_words(group: Sequence[AttentionItem]) -> str:
    first, others = group[0], len(group) - 1
    also = f" and {counted(others, 'other')}" if others else ""
    return f"{first.subject}{also}: {first.text}"


def _rows(broker: str, snapshot: dict[str, Any], now: str) -> list[tuple[str, ...]]:
    from edgefed.events.base.device_rounds import waiting_until
    from edgefed.events.base.snapshot import Snapshot, WaitingView
    from edgefed.events.state.awaited_devices import why_slow

    devices = snapshot["devices"]
    online = [device for device in devices if device["state"] != "lost"]
    samples = sum(device["samples"] for device in online)
    rows: list[tuple[str, ...]] = [
        ("broker", broker),
        ("fleet", snapshot["fleet"]),
        ("devices", f"{len(online)} of {len(devices)} online, {counted(samples, 'sample')}"),
    ]
    if left_out := _excluded(snapshot):
        rows.append(("take part", left_out))
    if mixed := versions(device["agent"] for device in online):
        rows.append(("versions", mixed))
    run = snapshot["run"]
    if run is None:
        return [*rows, ("run", "none; start one: edgefed run start")]
    reason = f": {run['reason']}" if run["reason"] else ""
    plan = ", ".join(filter(None, (run["algorithm"], run["model"])))  # a site knows little of it
    rows.append(("run", f"{run['run']}  {plan}".rstrip()))
    rows.append(("status", run_status(run["status"], reason)))
    rows.append(("round", f"{run['round']} of {run['rounds']}"))
    if run["waiting"] is not None:
        rows.append(("waiting for", waiting_until(WaitingView.model_validate(run["waiting"]))))
    if slow := why_slow(Snapshot.model_validate(snapshot), moment_of(now)):
        rows.append(("slow", slow))
    scores = score_of(run, shown=".4f")
    if scores:
        rows.append(tuple(scores.split(" ", 1)))
    rows += [
        (word, ago(run[f"{word}_at"], now)) for word in ("started", "ended") if run[f"{word}_at"]
    ]
    if snapshot["rounds"]:
        rows.append(("bytes", f"{size(snapshot['received'])} up, {size(snapshot['sent'])} down"))
    return [*rows, *_shared(devices), *_bounties(snapshot["tables"])]


def versions(agents: Iterable[str]) -> str:
    """Return how many devices run a version other than this program's; empty if none does."""
    others = Counter(agent for agent in agents if agent not in ("", VERSION))
    listed = ", ".join(f"{counted(n, 'device')} {name}" for name, n in others.most_common())
    return f"{listed}; this program is {VERSION}" if others else ""


def _excluded(snapshot: dict[str, Any]) -> str:
    """Return how many devices take part, and why the others do not; empty if all may."""
    from edgefed.events.base.coordinator_states import why_excluded, why_paused
    from edgefed.events.base.snapshot import Snapshot
    from edgefed.events.state.attention import devices_there

    fleet = Snapshot.model_validate(snapshot)
    online = [view for view in fleet.devices if view.state != "lost"]
    excluded = [
        f"{view.device} is excluded: {why}" for view in online if (why := why_excluded(view))
    ]
    paused = [view for view in online if view.state == "paused"]
    excluded += [f"{view.device} is paused: {why_paused(view)}" for view in paused]
    if not excluded:
        return ""
    more = len(excluded) - MOST_NAMED
    named = [
        *excluded[:MOST_NAMED],
        *([f"and {more} more: edgefed device list"] if more > 0 else []),
    ]
    return f"{devices_there(fleet)} of {len(online)}; {'; '.join(named)}"


def _dropped(inbox: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the messages that the coordinator did not take; nothing if it took all."""
    dropped, refused = inbox["dropped"], inbox["refused"]
    rows: list[tuple[str, ...]] = []
    if dropped:
        rows.append(("dropped", f"{dropped}, because messages came too fast"))
    if refused:
        rows.append(("over limits", refused_in_words(refused)))
    return rows


def _bounties(tables: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the label bounties of the run by status; nothing without any."""
    from edgefed.events.base.bounty_tables import BOUNTIES

    verdicts = (view["table"]["verdict"] for view in tables if view["table"]["name"] == BOUNTIES)
    return [("bounties", verdict) for verdict in verdicts]


def _shared(devices: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the averaged data of the run; nothing if no device shares."""
    sharers = [device for device in devices if device["shared_entries"]]
    if not sharers:
        return []
    entries = sum(device["shared_entries"] for device in sharers)
    least = min(device["shared_group"] for device in sharers)
    whose = counted(len(sharers), "device")
    means = f"{entries} from {whose}, of {counted(least, 'sample')} or more each"
    return [("means", means)]


def refused_in_words(refused: Mapping[str, int]) -> str:
    """Return how many messages were not read, and the sender of most of them.

    Args:
        refused: messages by sender, the largest number first.
    """
    named = [f"{sender} {count}" for sender, count in list(refused.items())[:MOST_NAMED]]
    more = len(refused) - len(named)
    senders = ", ".join([*named, *([f"{more} more"] if more else [])])
    return f"{sum(refused.values())} messages were not read: {senders}"
