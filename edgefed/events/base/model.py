"""Events of runs and devices, as in ``events.jsonl`` and on MQTT.

| kind | fields |
|---|---|
| ``run`` | run, name, algorithm, model, rounds, status, reason, accuracy, weights_digest; |
| | min_devices when it waits for the devices that it begins with |
| ``round`` | run, round: a round begins |
| ``exchange`` | round, exchange, question, detail, phase, asked, wanted, quorum, deadline, |
| | waiting |
| ``reply`` | round, exchange, device, outcome, reason, samples, loss, bytes, seconds, accepted |
| ``scored`` | run, round, accuracy, loss, replies, late, slowest, slowest_seconds, seconds, sent, |
| | received: a round ends |
| ``device`` | device and its changes: state, fraction, reason, samples, labels, telemetry, bytes |
| | ``joined`` with a birth, ``returned`` beside it when the device was known; ``forgotten``; |
| | ``renewed`` with samples, labels, class_names and ignored when it has read its data again; |
| | ``data_refused`` when it cannot use its data, for the reason in ``reason``; |
| | ``data_changed`` when they have changed and are read after the run; |
| | trust, standing, trust_reason, trust_since, and ``moved`` when the standing changed; |
| | quarantined_by, empty where it is not quarantined; ``heard`` when a silent one is heard again; |
| | state_since with the state ``silent``, the time of its last message; |
| | paused_by and pause_reason, empty where no operator has paused it; |
| | resumes_at, when its owner's limits let it train again at the earliest, with its ``state``; |
| | excluded, why the run does not ask it, empty if it does; |
| | board_model, its answer to a model that was rolled out |
| ``roster`` | devices; joined; and fields of ``device`` as columns with a value for each device |
| ``table`` | run, round, anew, rows, removed, left_out, and the fields of ``MethodTable`` |
| ``confusion`` | run, and the fields of ``ConfusionView``: counts of an evaluation by label |
| ``order`` | action, by, about, outcome, reason: a user gave an order |
| ``alert`` | alert, about, text, over: an alert begins or is over |
| ``note`` | level, text; since, the time at which an outage began that is over |

A ``reply`` also has its ``question``, and ``shared``: null, or the number of ``entries`` of its
averaged data and the smallest number of samples behind an entry, ``group``.

``waiting`` of an ``exchange`` names the devices that it waits for, as in ``WaitingView``, or is
null. It is sent when it changes: the quorum is met, or a device that was asked is lost or returns.

A ``reply`` to the question ``evaluate`` that was accepted has the device's ``accuracy``. One to a
question that trains has, where they were measured, ``training_seconds`` for ``trained_samples``,
each counted once an epoch, ``upload_seconds``, ``download_seconds`` and ``download_bytes``.
``joules`` is the energy that the device measured for the task; a ``scored`` has the sum of its
merged answers, if any has it, and ``summed``, how many of them came in sums of sites, if any did.

``confusion`` precedes the ``scored`` of a round that was evaluated, once for the coordinator's test
and once for the devices'.

``roster`` describes many devices at once: those that are connected when a log begins, those that
an exchange asks (``state`` is ``asked``), and the reports of a quarter of a second of devices that
report often.

``order`` follows each order, carried out or not: ``action`` as requests name it, such as
``run.order pause``; ``by`` the user, as certificates name it, or the client's name in a fleet
without; ``about`` the run or device; ``outcome`` ``taken`` or ``refused``, with the ``reason``.

``alert`` names in ``alert`` its subject, as in ``AlertView``, and in ``about`` the run, empty for
the fleet. ``over`` is true in the event that ends it.

``table`` follows each merge of an algorithm with a ``view``, and a restart. ``rows`` has key and
cells of the rows that changed, and ``removed`` the keys of those that are gone; with ``anew``, all
rows before the event are. Of a table that the run no longer has, the event has its name and
``gone``. Earlier versions wrote ``labels``, ``experts`` and ``matching`` instead, which
``old_tables`` reads.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

EventKind = Literal[
    "run",
    "round",
    "exchange",
    "reply",
    "scored",
    "device",
    "roster",
    "labels",
    "experts",
    "matching",
    "table",
    "confusion",
    "order",
    "alert",
    "note",
]

RunStatus = Literal[
    "waiting", "running", "pausing", "paused", "finishing", "finished", "aborted", "failed"
]
"""``waiting`` is for devices; ``pausing`` and ``finishing`` wait for the exchange or the round."""

UNFINISHED: tuple[RunStatus, ...] = ("waiting", "running", "pausing", "paused", "finishing")
"""The states of a run that the coordinator works on, now or when it is started again."""

Phase = Literal["select", "broadcast", "collect", "merge", "evaluate", "done"]
"""The activities of the coordinator within a round, in this order."""


_to_json = json.JSONEncoder(allow_nan=False).encode


class Event(BaseModel):
    """One event.

    Attributes:
        time: UTC, ISO 8601; for reading only.
        kind: of the event.
        fields: the values that the kind's row in this module's table names.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    time: str
    kind: EventKind
    fields: dict[str, Any]

    def line(self) -> str:
        """Return the event as one line of ``events.jsonl``."""
        return _to_json({"time": self.time, "kind": self.kind, **self.fields})

    @classmethod
    def from_flat(cls, flat: dict[str, Any]) -> Event:
        """Return the event that ``line`` wrote, from its parsed JSON."""
        rest = {key: value for key, value in flat.items() if key not in ("time", "kind")}
        return cls(time=flat["time"], kind=flat["kind"], fields=rest)
