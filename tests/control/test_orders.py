"""A failed order is never executed later, whatever the broker did with it."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from broker.address import LOOPBACK, free_port
from broker.mosquitto import MosquittoBroker
from edgefed.config.values.address import Address
from edgefed.control import coordinator_client
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.coordinator.process.service import Service
from edgefed.coordinator.process.service_settings import ServiceSettings
from edgefed.errors import EdgeFedError, UnreachableError
from edgefed.process.clock import SystemClock
from edgefed.trust.certificates import Certificate
from edgefed.wire.envelope import encode
from edgefed.wire.limits import CHALLENGE_SECONDS
from edgefed.wire.messages import Request, Response
from tests.coordinator.storage.test_service_orders import plan, running_service
from tests.transport.listening import wait_until

pytestmark = pytest.mark.mosquitto

FLEET = "review"
SHORT = 1.0
"""Seconds after which the clients of these tests give up."""


class Shifted(SystemClock):
    """The system's clock, which a test sets forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@dataclass
class Scene:
    """A broker, a coordinator with a paused run, and a client.

    Attributes:
        heard: actions of the requests that the coordinator took, with whether it did them.
    """

    address: Address
    folder: Path
    broker: MosquittoBroker
    clock: Shifted
    service: Service
    client: CoordinatorClient
    run: str = ""
    heard: list[tuple[str, bool]] = field(default_factory=list)

    def listen(self) -> None:
        answer = self.service._requests._handler.answer

        def recorded(
            request: Request, signer: Certificate | None = None, by: str = ""
        ) -> list[Response]:
            answers = answer(request, signer, by)
            self.heard.append((request.action, answers[0].ok))
            return answers

        self.service._requests._handler.answer = recorded  # type: ignore[method-assign]

    def stop_broker(self) -> None:
        os.kill(self.broker.pid, signal.SIGSTOP)

    def continue_broker(self) -> None:
        os.kill(self.broker.pid, signal.SIGCONT)

    def kill_broker(self) -> None:
        os.kill(self.broker.pid, signal.SIGKILL)
        wait_until(lambda: not self.client.connected, "the client to notice")
        self.broker.stop()

    def wake_broker(self) -> None:
        if self.broker.is_running():
            self.continue_broker()

    def restart_broker(self) -> None:
        self.broker = MosquittoBroker(self.address, self.folder / "again")

    def status(self) -> str:
        """Return the run's status; the coordinator has taken everything before this question."""

        def told() -> str:
            try:
                return str(self.client.ask("run.show", run=self.run)["status"])
            except UnreachableError:
                return ""

        wait_until(lambda: bool(told()), "the coordinator")
        return told()

    def orders(self) -> list[bool]:
        """Return for each order that reached the coordinator whether it was carried out."""
        return [done for action, done in self.heard if action == "run.order"]

    def send(self, **fields: Any) -> None:
        """Publish an order as it stands."""
        arguments = {"run": self.run, "action": "resume"}
        request = Request(action="run.order", arguments=arguments, **fields)
        self.client._link.publish(self.client._topics.request("local/15"), encode(request))


@contextmanager
def at_work(folder: Path) -> Iterator[Scene]:
    address, clock = Address(LOOPBACK, free_port()), Shifted()
    with ExitStack() as stack:
        broker = MosquittoBroker(address, folder / "mosquitto")
        # Last, as clients leave a broker that answers at once; a test may have put another there
        stack.callback(lambda: made.broker.stop())  # noqa: PLW0108
        service = Service(ServiceSettings(address, FLEET, folder / "state"), clock)
        stack.enter_context(running_service(service))
        client = stack.enter_context(closing(CoordinatorClient(address, FLEET)))
        client.connect()
        made = Scene(address, folder, broker, clock, service, client)
        stack.callback(made.wake_broker)
        made.listen()
        body = plan().model_dump(mode="json")
        made.run = str(client.order("run.start", recipe=body, paused=True)["run"])
        wait_until(lambda: service._store.run(made.run).status == "paused", "the pause")
        yield made


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with at_work(tmp_path) as made:
        yield made


@pytest.fixture
def impatient(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon, once the scene is there."""
    assert scene.run
    monkeypatch.setattr(coordinator_client, "ANSWER_TIMEOUT", SHORT)


def failure(call: Callable[[], Any]) -> EdgeFedError:
    with pytest.raises(EdgeFedError) as caught:
        call()
    assert caught.value.hint
    return caught.value


def resume(scene: Scene) -> Any:
    return scene.client.order("run.order", run=scene.run, action="resume")


@pytest.mark.usefixtures("impatient")
def test_an_order_to_a_stopped_broker_is_never_carried_out(scene: Scene) -> None:
    scene.stop_broker()
    assert failure(lambda: resume(scene)).code == "coordinator.silent"
    scene.continue_broker()
    assert scene.status() == "paused"
    assert scene.orders() == []


@pytest.mark.usefixtures("impatient")
def test_an_order_that_a_stopped_broker_held_too_long_is_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = scene.client._call

    def interrupted(request: Request, timeout: float | None = None) -> Any:
        if request.action == "run.order":
            scene.stop_broker()
        return call(request, timeout)

    monkeypatch.setattr(scene.client, "_call", interrupted)
    error = failure(lambda: resume(scene))
    assert error.code == "coordinator.silent"
    assert "will not be any more" in error.hint
    scene.clock.ahead += CHALLENGE_SECONDS  # as long as a client without a test's hurry waits
    scene.continue_broker()
    assert scene.status() == "paused"
    assert scene.orders() == [False], "it came, and was refused"


def test_without_a_broker_an_order_is_refused_at_once_and_nothing_is_queued(
    scene: Scene,
) -> None:
    scene.kill_broker()
    error = failure(lambda: resume(scene))
    assert (error.code, error.exit_code) == ("broker.unreachable", 3)
    assert len(scene.client._link._client._out_messages) == 0
    scene.restart_broker()
    assert scene.status() == "paused"
    assert scene.orders() == []


def test_a_replayed_order_is_refused(scene: Scene) -> None:
    challenge = scene.client.ask("challenge")["challenge"]
    nonce = secrets.token_hex(8)
    scene.send(nonce=nonce, challenge=challenge)
    scene.send(nonce=nonce, challenge=challenge)
    scene.send(nonce=secrets.token_hex(8), challenge=challenge)
    wait_until(lambda: scene.status() in ("running", "finished"), "the order to take effect")
    assert scene.orders() == [True, False], "the doubled one is not even answered"


def test_an_order_without_a_challenge_is_refused(scene: Scene) -> None:
    error = failure(lambda: scene.client.ask("run.order", run=scene.run, action="resume"))
    assert (error.code, error.exit_code) == ("challenge.missing", 4)
    recipe = plan().model_dump(mode="json")
    assert failure(lambda: scene.client.ask("run.start", recipe=recipe)).code == "challenge.missing"
    of_labels = {"run": scene.run, "action": "cancel"}
    assert failure(lambda: scene.client.ask("label.order", **of_labels)).code == "challenge.missing"
    assert failure(lambda: scene.client.order("label.order", **of_labels)).code == "label.off"
    scene.send(nonce=secrets.token_hex(8), challenge="f" * 16)
    assert scene.status() == "paused"
    assert scene.orders() == [False, False]


def evaluated(scene: Scene) -> dict[str, Any]:
    """Have the run's model tested and return the result."""
    started = scene.client.order("run.evaluate", run=scene.run)["evaluation"]
    found: list[dict[str, Any]] = []

    def done() -> bool:
        found[:] = filter(None, [scene.client.ask("run.evaluation", evaluation=started)["result"]])
        return bool(found)

    wait_until(done, "the evaluation")
    return found[0]


def test_a_paused_run_is_evaluated_and_one_at_work_is_not(scene: Scene) -> None:
    wrong = failure(lambda: evaluated(scene))  # its devices hold nothing out
    assert wrong.code == "evaluate.samples"
    assert scene.status() == "paused"
    scene.client.order("run.order", run=scene.run, action="resume")
    store = scene.service._store
    wait_until(lambda: store.run(scene.run).status == "finished", "the end")
    wait_until(lambda: not scene.service._jobs, "the end of the job")
    assert failure(lambda: evaluated(scene)).code == "evaluate.samples"
    unknown = failure(lambda: scene.client.ask("run.evaluation", evaluation="e-1"))
    assert (unknown.code, unknown.exit_code) == ("evaluate.unknown", 5)
    first, record = scene.run, store.run(scene.run)
    body = plan().model_dump(mode="json")
    scene.run = str(scene.client.order("run.start", recipe=body, paused=True)["run"])
    wait_until(lambda: store.run(scene.run).status == "paused", "the pause")
    second, scene.run = scene.run, first
    assert failure(lambda: evaluated(scene)).code == "run.busy"
    scene.run = second
    scene.client.order("run.order", run=second, action="resume")
    wait_until(lambda: store.run(second).status == "finished", "the end")
    assert store.run(second).weights_digest == record.weights_digest
