"""Handle requests of dashboards and the command line: queries, and orders that change something."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Protocol

import zstandard
from pydantic import ValidationError

from edgefed.config.recipes.recipe import EvaluationPlace, Recipe
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.process.challenges import MAX_USERS, Challenges
from edgefed.coordinator.process.request_actions import Arguments, Nothing, RequestAction
from edgefed.coordinator.process.run_views import run_row, whole_run
from edgefed.coordinator.reports.bounty_orders import order_labels
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.errors import EdgeFedError, NotAllowedError, UsageError
from edgefed.events.base.log import Log
from edgefed.events.history.summary import summarise
from edgefed.sharing.bounty_report import BountyAction
from edgefed.transport.inbox import InboxCounts
from edgefed.trust.certificates import Certificate
from edgefed.wire.limits import MAX_MESSAGE_BYTES
from edgefed.wire.messages import Request, Response

log = logging.getLogger(__name__)

SLOW = ("run.check", "device.ping", "device.log")
"""Actions that read data or wait for devices, which the link's thread must not do."""

NONCES = 256
"""Requests of a user that are remembered, since a broker may hand one over twice."""

PART_BYTES = MAX_MESSAGE_BYTES - 4096

MAX_LOG_BYTES = 16 * 1024 * 1024
"""Of a run's event log that is read for an answer; the link is not served meanwhile."""


class RunService(Protocol):
    """The operations on runs that a request may start."""

    def start(self, recipe: Recipe, *, paused: bool) -> RunRecord:
        """Begin a run."""
        ...

    def order(self, run: str, action: str) -> str:
        """Give an order to a run and return its effect, in words."""
        ...

    def delete(self, run: str) -> None:
        """Delete an ended run."""
        ...

    def check(self, recipe: Recipe) -> dict[str, Any]:
        """Return which devices' data fit a recipe."""
        ...

    def evaluate(self, run: str, on: EvaluationPlace | None, mode: str, *, best: bool) -> str:
        """Begin to test the model of a run and return the test's id."""
        ...


class _OneRun(Arguments):
    run: str


class _Start(Arguments):
    recipe: Recipe
    paused: bool = False


class _Check(Arguments):
    recipe: Recipe


class _OperatorOrder(Arguments):
    run: str
    action: str


class _Evaluate(Arguments):
    run: str
    on: EvaluationPlace | None = None
    """None for where the recipe says."""
    mode: str = ""
    best: bool = False
    """Whether to test the best round's model, and not the last one's."""


class _Evaluation(Arguments):
    evaluation: str


class _LabelOrder(Arguments):
    run: str
    action: BountyAction
    device: str = ""
    """Empty for all devices."""
    label: int | str | None = None
    """A number or the name of a class; None for all labels."""


class RequestHandler:
    """Turns a request into answers; every error becomes one too.

    Args:
        session: the session of this coordinator process.
        store: runs on disk.
        journal: the current state of the fleet.
        runs: starts runs and gives orders to them.
        challenges: admit orders.
        inbox_counts: returns the counts of messages that the inbox dropped and replaced.
        evaluation_result: returns the result of a test by its id, or None while it goes on.
        more: further actions, by name.
    """

    def __init__(
        self,
        session: str,
        store: Store,
        journal: EventJournal,
        runs: RunService,
        challenges: Challenges,
        inbox_counts: Callable[[], InboxCounts],
        evaluation_result: Callable[[str], dict[str, Any] | None],
        more: Mapping[str, RequestAction] = MappingProxyType({}),
    ) -> None:
        self._session = session
        self._store = store
        self._journal = journal
        self._runs = runs
        self._challenges = challenges
        self._inbox_counts = inbox_counts
        self._evaluation_result = evaluation_result
        self._nonces: OrderedDict[str, deque[str]] = OrderedDict()
        self._actions: Mapping[str, RequestAction] = {
            "challenge": RequestAction(Nothing, self._challenge, by_user=True),
            "snapshot": RequestAction(Nothing, self._snapshot),
            "run.list": RequestAction(Nothing, self._list),
            "run.show": RequestAction(_OneRun, self._show),
            "run.summary": RequestAction(_OneRun, self._summarise),
            "run.check": RequestAction(_Check, self._check, costly=True),
            "run.start": RequestAction(_Start, self._start, order=True),
            "run.delete": RequestAction(_OneRun, self._delete, order=True),
            "run.order": RequestAction(_OperatorOrder, self._order, order=True),
            "run.evaluate": RequestAction(_Evaluate, self._evaluate, order=True),
            "run.evaluation": RequestAction(_Evaluation, self._evaluation),
            "label.order": RequestAction(_LabelOrder, self._order_labels, order=True),
            **more,
        }

    def is_repeated(self, request: Request, by: str) -> bool:
        """Whether a user's request came before; asked once for each, by the link's thread."""
        nonces = self._nonces.setdefault(by, deque(maxlen=NONCES))
        self._nonces.move_to_end(by)
        if len(self._nonces) > MAX_USERS:
            self._nonces.popitem(last=False)
        if request.nonce in nonces:
            return True
        nonces.append(request.nonce)
        return False

    def answer(
        self, request: Request, signer: Certificate | None = None, by: str = ""
    ) -> list[Response]:
        """Return the answer, in as many parts as it takes; an order is also noted as an event.

        Args:
            request: the query or order.
            signer: the sender, in a signed fleet; a viewer may send queries, but no orders.
            by: the requesting user, for the event.
        """
        problem: EdgeFedError | None = None
        body: Any = None
        try:
            body = self._carry_out(request, signer, by)
        except ValidationError as error:
            problem = UsageError(_first(error), code="request.arguments")
        except EdgeFedError as error:
            problem = error
        except Exception as error:  # who asked must hear of it, or waits in vain
            log.exception("the request %s failed", request.action)
            problem = EdgeFedError(f"{type(error).__name__}: {error}", code="internal")
        if request.action in self._actions and self._actions[request.action].order:
            note_order(self._journal, request, by, body, problem)
        if problem is not None:
            return self.decline(request, problem)
        return list(_answers(request.nonce, True, body))

    def decline(self, request: Request, error: EdgeFedError) -> list[Response]:
        """Return the answer that a request is not carried out."""
        return list(_answers(request.nonce, False, _failure(error)))

    def _carry_out(self, request: Request, signer: Certificate | None, by: str = "") -> Any:
        action = self._actions.get(request.action)
        if action is None:
            raise UsageError(f"The coordinator has no action '{request.action}'.", code="request")
        restricted = action.order or action.costly
        if restricted and signer is not None and signer.role != "operator":
            raise NotAllowedError(
                f"{signer.user} has read-only access and may not use {request.action}.",
                code="request.role",
                hint="use the credentials of an operator",
            )
        if action.order:
            self._challenges.redeem(request.challenge, by)
        arguments = action.arguments.model_validate(request.arguments)
        return action.act(arguments, by) if action.by_user else action.act(arguments)

    def _challenge(self, arguments: Nothing, by: str) -> dict[str, Any]:
        del arguments
        return {"challenge": self._challenges.issue(by)}

    def _snapshot(self, arguments: Nothing) -> dict[str, Any]:
        del arguments
        snapshot, number = self._journal.current()
        return {
            "session": self._session,
            "number": number,
            "time": self._journal.now(),
            "snapshot": snapshot.model_dump(mode="json"),
            "inbox": self._inbox(),
        }

    def _inbox(self) -> dict[str, Any]:
        counts = self._inbox_counts()
        return {**asdict(counts), "dropped": counts.dropped}

    def _list(self, arguments: Nothing) -> list[dict[str, Any]]:
        del arguments
        return [run_row(record) for record in self._store.runs()]

    def _show(self, arguments: _OneRun) -> dict[str, Any]:
        return whole_run(self._store, arguments.run)

    def _summarise(self, arguments: _OneRun) -> dict[str, Any]:
        """Return the summary of the run's events without its rounds, which ``run.show`` has."""
        run = self._store.run(arguments.run).run
        log_file = Log(self._store.run_folder(run) / "events.jsonl", MAX_LOG_BYTES)
        summary = summarise(log_file.events(), log_file.left_out())
        return summary.model_dump(mode="json", exclude={"rounds"})

    def _start(self, arguments: _Start) -> dict[str, Any]:
        return run_row(self._runs.start(arguments.recipe, paused=arguments.paused))

    def _check(self, arguments: _Check) -> dict[str, Any]:
        return self._runs.check(arguments.recipe)

    def _order(self, arguments: _OperatorOrder) -> dict[str, Any]:
        record = self._store.run(arguments.run)
        return {"run": record.run, "told": self._runs.order(record.run, arguments.action)}

    def _delete(self, arguments: _OneRun) -> dict[str, Any]:
        run = self._store.run(arguments.run).run
        self._runs.delete(run)
        return {"run": run}

    def _evaluate(self, arguments: _Evaluate) -> dict[str, Any]:
        run = self._store.run(arguments.run).run
        started = self._runs.evaluate(run, arguments.on, arguments.mode, best=arguments.best)
        return {"run": run, "evaluation": started}

    def _evaluation(self, arguments: _Evaluation) -> dict[str, Any]:
        return {"result": self._evaluation_result(arguments.evaluation)}

    def _order_labels(self, arguments: _LabelOrder) -> dict[str, Any]:
        record, snapshot = self._store.run(arguments.run), self._journal.snapshot
        asked = arguments.action, arguments.device, arguments.label
        return order_labels(self._store, snapshot, record, *asked)


def _failure(error: EdgeFedError) -> dict[str, Any]:
    return {**error.to_json(), "exit_code": error.exit_code}


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


def _answers(nonce: str, ok: bool, body: Any) -> Iterator[Response]:
    packed = zstandard.ZstdCompressor(level=3).compress(json.dumps(body).encode())
    pieces = [packed[k : k + PART_BYTES] for k in range(0, len(packed), PART_BYTES)]
    for part, piece in enumerate(pieces):
        yield Response(nonce=nonce, ok=ok, body=piece, part=part, parts=len(pieces))


MAX_ABOUT = 80
"""Most characters of ``about``, which the sender of an order chooses."""

UNKNOWN_USER = "somebody"

_ABOUT = ("run", "device", "user", "users", "name")
"""Arguments, and fields of an answer, that name the object of an order; the first one counts."""


def note_order(
    journal: EventJournal, request: Request, by: str, body: Any, problem: EdgeFedError | None
) -> None:
    """Emit the event of an order.

    Args:
        journal: takes the event.
        request: the order.
        by: the user that gave it.
        body: the body of the answer.
        problem: the error of an order that was refused; None if it was taken.
    """
    arguments = request.arguments
    action = arguments.get("action")  # of a run.order: pause, resume and so on
    command = _command(request.action, arguments.get("role"))
    journal.emit(
        "order",
        action=f"{command} {action}" if isinstance(action, str) else command,
        by=by or UNKNOWN_USER,
        about=_about(arguments) or _about(body),
        outcome="taken" if problem is None else "refused",
        reason="" if problem is None else problem.message,
    )


def _command(action: str, role: Any) -> str:
    """Return an action as its command is called: those of members have their roles' names."""
    group, _, verb = action.partition(".")
    if group != "member" or verb == "rotate":
        return action
    roles = {"gateway": "gateway", "operator": "operator", "viewer": "operator"}
    return f"{roles.get(str(role), 'device')}.{verb}"


def _about(fields: Any) -> str:
    if not isinstance(fields, dict):
        return ""
    value = next((fields[name] for name in _ABOUT if fields.get(name)), "")
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return str(value)[:MAX_ABOUT] if isinstance(value, (str, int)) else ""
