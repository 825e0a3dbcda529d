"""A simple reference of the fold of events: a new snapshot for each event."""

from __future__ import annotations

from typing import Any

from edgefed.events.base.alert_events import AlertView
from edgefed.events.base.best_rounds import MAX_ROUNDS
from edgefed.events.base.bounty_tables import bounties_of
from edgefed.events.base.device_rounds import without
from edgefed.events.base.evaluation_views import ConfusionView, DeviceTestView
from edgefed.events.base.method_tables import (
    MethodTable,
    MethodTables,
    Point,
    Row,
    TableView,
    table_named,
)
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import (
    DeviceRoundView,
    DeviceSnapshot,
    LineView,
    PreviousRunView,
    RoundView,
    RunView,
    Snapshot,
    WaitingView,
)
from edgefed.events.methods.expert_tables import MIXTURES, mixture_of
from edgefed.events.methods.old_tables import changes_of
from edgefed.events.state.fold import MAX_LINES
from edgefed.events.state.lines import describe

COUNTERS = {"accepted": "accepted", "rejected": "rejected", "refused": "rejected", "late": "late"}


def _lines_within_limit(lines: list[LineView]) -> tuple[LineView, ...]:
    if len(lines) > MAX_LINES:
        replies = [each for each in lines if each.routine]
        others = [each for each in lines if not each.routine]
        gone = (replies if len(replies) > len(others) else others)[-1]
        position = len(lines) - 1
        while lines[position] is not gone:
            position -= 1
        del lines[position]
    return tuple(lines)


def plain_fold(snapshot: Snapshot, event: Event) -> Snapshot:
    """Return the snapshot after ``event``."""
    state = {name: getattr(snapshot, name) for name in Snapshot.model_fields}
    fields, time = event.fields, event.time
    match event.kind:
        case "run":
            _run(state, fields, time)
        case "round":
            begun = {"round": fields["round"], "phase": "select", "accepted": 0}
            begun |= {"slowest": "", "slowest_seconds": 0.0, "refused": 0, "round_at": time}
            _of_run(state, **begun, waiting=None, detail="")
        case "exchange":
            _exchange(state, fields, time)
        case "reply":
            _reply(state, fields, time)
        case "scored":
            _scored(state, fields)
        case "device":
            _device(state, fields, time)
        case "roster":
            _roster(state, fields, time)
        case "labels" | "experts" | "matching" | "table" | "confusion" if (
            state["run"] and state["run"].run == fields["run"]
        ):
            of_run = {"confusion": _confusion, "table": _table}
            of_run.get(event.kind, _old_table)(state, {**fields, "kind": event.kind})
    state["alerts"] = _alerts(state["alerts"], event)
    line = describe(event)
    if line is not None:
        state["lines"] = _lines_within_limit([line, *state["lines"]])
    state["devices"] = tuple(_with_run(view, state) for view in state["devices"])
    return Snapshot(**{**state, "time": time})


def _alerts(alerts: tuple[AlertView, ...], event: Event) -> tuple[AlertView, ...]:
    if event.kind != "alert":
        return alerts
    others = [each for each in alerts if each.alert != event.fields["alert"]]
    new = [] if event.fields["over"] else [AlertView(**{**event.fields, "since": event.time})]
    return (*others, *new)


def _run(state: dict[str, Any], fields: dict[str, Any], time: str) -> None:
    known = _known(RunView, fields)
    if state["run"] is None or state["run"].run != fields["run"]:
        if state["run"] is not None and state["rounds"]:
            over = PreviousRunView(run=state["run"].run, rounds=state["rounds"])
            state["previous"] = over
        state |= {"run": RunView(**{"started_at": time, **known}), "rounds": (), "lines": ()}
        unshared: dict[str, Any] = {"shared_entries": 0, "shared_group": 0, "shared_bytes": 0}
        unshared |= {"rounds": (), "refused_at": "", "refused_reason": ""}
        devices = [view.model_copy(update=unshared) for view in state["devices"]]
        state |= {"sent": 0, "received": 0, "devices": tuple(devices)}
        state |= {"tables": (), "confusions": (), "tests": ()}
        return
    if state["run"].status in ("waiting", "paused") and fields.get("status") == "running":
        known["round_at"] = time
    if fields.get("status") in ("finished", "aborted", "failed"):
        known |= {"ended_at": time, "phase": "done", "waiting": None}
    _of_run(state, **known)


def _exchange(state: dict[str, Any], fields: dict[str, Any], time: str) -> None:
    known = _known(RunView, fields)
    before = state["run"].exchange if state["run"] else ""
    if fields.get("exchange", before) != before:
        known |= {"accepted": 0, "opened_at": time}
    if fields.get("phase") not in (None, "collect"):
        known["waiting"] = None
    if fields.get("waiting") is not None:
        known["waiting"] = WaitingView(**fields["waiting"])
    _of_run(state, **known)


def _reply(state: dict[str, Any], fields: dict[str, Any], time: str) -> None:
    before = _view(state, fields["device"])
    number, seconds, outcome = fields["round"], fields["seconds"], fields["outcome"]
    update: dict[str, Any] = {"seen_at": time, "replied": fields["exchange"]}
    update["rounds"] = _device_rounds(before, number, outcome, seconds)
    if outcome == "accepted":
        update |= {"refused_at": "", "refused_reason": ""}
    elif outcome != "late":
        update |= {"refused_at": time, "refused_reason": fields["reason"]}
    run = state["run"]
    if run is not None and outcome == "accepted" and seconds > run.slowest_seconds:
        _of_run(state, slowest=before.device, slowest_seconds=seconds)
    if run is not None and outcome not in ("accepted", "late"):
        _of_run(state, refused=run.refused + 1)
    counter = COUNTERS.get(fields["outcome"])
    if counter:
        update[counter] = getattr(before, counter) + 1
    if fields.get("loss") is not None:
        update["loss"] = fields["loss"]
    shared = fields.get("shared")
    if shared and fields["outcome"] == "accepted":
        update |= {"shared_entries": shared["entries"], "shared_group": shared["group"]}
        update["shared_bytes"] = fields.get("bytes", 0)
    _put(state, before.model_copy(update=update))
    if fields.get("accuracy") is not None:
        tests = {row.device: row for row in state["tests"]}
        last = tests.get(before.device)
        if last is None or number >= last.round:
            tests[before.device] = DeviceTestView(
                device=before.device, round=number, accuracy=fields["accuracy"]
            )
        state["tests"] = tuple(tests[name] for name in sorted(tests))
    waiting = without(state["run"].waiting, fields["device"]) if state["run"] else None
    _of_run(state, accepted=fields["accepted"], waiting=waiting)


def _scored(state: dict[str, Any], fields: dict[str, Any]) -> None:
    run = state["run"]
    known = _known(RoundView, fields)
    if run is not None:
        known = {"slowest": run.slowest, "slowest_seconds": run.slowest_seconds, **known}
    point = RoundView(**known)
    others = [row for row in state["rounds"] if row.round < point.round]
    state["rounds"] = (*others, point)[-MAX_ROUNDS:]
    state["sent"] += point.sent
    state["received"] += point.received
    _of_run(state, waiting=None)
    scores = {"accuracy": point.accuracy, "loss": point.loss}
    _of_run(state, **{name: value for name, value in scores.items() if value is not None})


def _device(state: dict[str, Any], fields: dict[str, Any], time: str) -> None:
    if "forgotten" in fields:
        others = (view for view in state["devices"] if view.device != fields["device"])
        state["devices"] = tuple(others)
        return
    before, update = _view(state, fields["device"]), _known(DeviceSnapshot, fields)
    shown = fields.get("state", before.state)
    if fields.get("state") not in ("lost", "silent", "asked"):
        update["seen_at"] = time
    elif "lost" == shown != before.state and state["run"] is not None:
        run = state["run"]
        open_now = run.phase in ("broadcast", "collect") and run.exchange
        if open_now and before.exchange == run.exchange != before.replied:
            update["rounds"] = _device_rounds(before, run.round, "lost", 0.0)
    if before.state_since == "" or shown != before.state:
        update["state_since"] = fields.get("state_since", time)
    if shown not in ("lost", "silent"):
        update["before_lost"] = ""
    elif before.state != shown:
        update["reason"] = fields.get("reason") or ""
        share = before.fraction
        done = f" {share * 100:.0f} %" if share not in (0, 1) else ""
        update["before_lost"] = before.before_lost or before.state + done
    _put(state, before.model_copy(update=update))


def _device_rounds(
    before: DeviceSnapshot, number: int, outcome: str, seconds: float
) -> tuple[DeviceRoundView, ...]:
    order = ["accepted", "late", "lost", "refused", "rejected", "failed"]
    same = [each for each in before.rounds if each.round == number]
    worst = max([outcome, *(each.outcome for each in same)], key=order.index)
    total = seconds + sum(each.seconds for each in same)
    made = DeviceRoundView.model_validate({"round": number, "outcome": worst, "seconds": total})
    others = [each for each in before.rounds if each.round != number]
    return tuple(sorted([*others, made], key=lambda each: each.round)[-60:])


def _roster(state: dict[str, Any], fields: dict[str, Any], time: str) -> None:
    columns = {name: fields[name] for name in fields if name not in ("devices", "joined")}
    for index, device in enumerate(fields["devices"]):
        row = {name: column[index] for name, column in columns.items()}
        _device(state, {"device": device, **row}, time)


def _confusion(state: dict[str, Any], fields: dict[str, Any]) -> None:
    view = ConfusionView(**fields)
    others = tuple(each for each in state["confusions"] if each.place != view.place)
    state["confusions"] = tuple(sorted((*others, view), key=lambda each: each.place))


def _old_table(state: dict[str, Any], fields: dict[str, Any]) -> None:
    tables = MethodTables(state["tables"])
    for change in changes_of(fields["kind"], fields, tables):
        tables.apply(change)
    state["tables"] = tables.views()


def _table(state: dict[str, Any], fields: dict[str, Any]) -> None:
    views = {view.table.name: view for view in state["tables"]}
    if fields.get("gone"):
        views.pop(fields["name"], None)
    else:
        before = views.get(fields["name"])
        kept = before.table.rows if before and not fields["anew"] else ()
        rows = {row.key: row for row in kept if row.key not in fields["removed"]}
        rows |= {key: Row(key=key, cells=tuple(cells)) for key, *cells in fields["rows"]}
        ordered = list(rows.values())
        if fields.get("key") == "device":
            ordered.sort(key=lambda row: (row.key.split("/")[0], len(row.key), row.key))
        table = MethodTable(**{**fields, "rows": tuple(ordered), "round": None})
        history = list(before.history) if before else []
        if table.series:
            history = [each for each in history if each.round != fields["round"]]
            history.append(Point(round=fields["round"], values=table.series))
        views[table.name] = TableView(
            table=table,
            round=fields["round"],
            left_out=fields["left_out"],
            history=tuple(history),
        )
    state["tables"] = tuple(views.values())


def _with_run(view: DeviceSnapshot, state: dict[str, Any]) -> DeviceSnapshot:
    own = [each for each in bounties_of(state["tables"]) if each.device == view.device]
    told: dict[str, Any] = {
        "open_bounties": len([bounty for bounty in own if bounty.status == "open"]),
        "received_mixes": sum(bounty.received for bounty in own),
        "noise_samples": sum(bounty.noise for bounty in own),
    }
    mixtures = table_named(state["tables"], MIXTURES)
    rows = mixtures.table.rows if mixtures is not None else ()
    mixed = [mixture_of(row) for row in rows if row.key == view.device]
    told["mixture"] = tuple(mixed[0]["shares"]) if mixed else ()
    told["kept_experts"] = tuple(mixed[0]["kept"]) if mixed else ()
    tested = [test for test in state["tests"] if test.device == view.device]
    told["accuracy"] = tested[0].accuracy if tested else None
    told["accuracy_round"] = tested[0].round if tested else 0
    return view.model_copy(update=told)


def _known(
    view: type[RunView | RoundView | DeviceSnapshot], fields: dict[str, Any]
) -> dict[str, Any]:
    known = {name: fields[name] for name in fields if name in view.model_fields}
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in known.items()
    }


def _of_run(state: dict[str, Any], **update: Any) -> None:
    if state["run"] is not None:
        state["run"] = state["run"].model_copy(update=update)


def _view(state: dict[str, Any], device: str) -> DeviceSnapshot:
    found = [view for view in state["devices"] if view.device == device]
    return found[0] if found else DeviceSnapshot(device=device)


def _put(state: dict[str, Any], view: DeviceSnapshot) -> None:
    others = [other for other in state["devices"] if other.device != view.device]
    state["devices"] = tuple(sorted([*others, view], key=lambda each: each.device))
