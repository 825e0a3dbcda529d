"""What a coordinator asks gateways for where it takes sums, and which it refuses on arrival."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.process.service import Service
from edgefed.coordinator.storage.stored_runs import OpenExchange, SiteSumsChoice
from edgefed.wire.message_parts import BlobRef
from edgefed.wire.messages import Cancel, Receipt, Task
from edgefed.wire.site_messages import SummedAnswer, SumReply, SumRequest
from edgefed.wire.tensors import digest
from tests.coordinator.dispatch.test_dispatcher import exchange, reply, task
from tests.coordinator.dispatch.test_gateway_messages import (
    TWO,
    FakeGateway,
    birth,
    gateway,
    service,
    there,
    warned,
)
from tests.transport.listening import wait_until

pytestmark = pytest.mark.mosquitto

__all__ = ["service"]

BLOB = b"a sum, as far as the coordinator's receiver knows"


def opened(*devices: str, site_sums: SiteSumsChoice = "always") -> OpenExchange:
    tasks = tuple(task(device) for device in devices)
    wanted = len(devices)
    return replace(exchange(), tasks=tasks, wanted=wanted, quorum=wanted, site_sums=site_sums)


def made_sum(*devices: str, blob: bytes = BLOB, **changes: Any) -> SumReply:
    answers = tuple(SummedAnswer(device=d, samples=5, metrics={}, nonce="") for d in devices)
    return SumReply.model_validate(
        {
            "run": "r-1",
            "exchange": "r-1-0",
            "index": 0,
            "device": devices[0],
            "session": "1" * 16,
            "bases": {},
            "status": "ok",
            "samples": 5 * len(devices),
            "blobs": {"sum": BlobRef(digest=digest(blob), size=len(blob))},
            "inline": {digest(blob): blob},
            "answers": answers,
            **changes,
        }
    )


@dataclass
class Scene:
    """Site gw-a with cam-1, cam-2 and cam-3, and gw-b with cam-8."""

    service: Service
    a: FakeGateway
    b: FakeGateway

    def replies(self, asked: OpenExchange, count: int) -> list[Delivered]:
        found: list[Delivered] = []
        for delivered in self.service.fleet.replies(asked, lambda: len(found) == count):
            found.append(delivered)
            if len(found) == count:
                break
        return found

    def outcomes(self) -> dict[str, str]:
        """Return the last verdict that reached each device."""
        receipts = (*self.a.of(Receipt), *self.b.of(Receipt))
        return {device: receipt.outcome for device, receipt in receipts}


@contextmanager
def made(broker: MosquittoBroker, service: Service) -> Iterator[Scene]:
    with gateway(broker, "gw-a") as one, gateway(broker, "gw-b") as other:
        one.say(*((f"cam-{number}", birth()) for number in (1, 2, 3)))
        other.say(("cam-8", birth()))
        wait_until(lambda: len(there(service)) == 4, "the devices")
        yield Scene(service, one, other)


@pytest.fixture
def scene(mosquitto: MosquittoBroker, service: Service) -> Iterator[Scene]:
    with made(mosquitto, service) as built:
        yield built


def test_gateways_are_asked_before_their_devices_and_again_when_one_has_come(scene: Scene) -> None:
    asked = opened("cam-1", "cam-2", "cam-8", "cam-9")
    scene.service.fleet.put(asked)
    wait_until(lambda: len(scene.a.of(Task)) == 2, "the tasks")
    kinds = [type(message) for _, message in scene.a.heard]
    assert kinds[0] is SumRequest
    ((to, request),) = scene.a.of(SumRequest)
    assert to == "gw-a"
    assert (request.exchange, request.total, request.always) == ("r-1-0", 20, True)
    assert request.devices == ("cam-1", "cam-2", "cam-9"), "cam-9 may appear here"
    scene.b.say(("cam-9", birth()))
    wait_until(lambda: scene.a.of(SumRequest)[-1][1].devices == ("cam-1", "cam-2"), "the news")
    wait_until(lambda: scene.b.of(SumRequest)[-1][1].devices == ("cam-8", "cam-9"), "the news")
    scene.service.fleet.drop(asked)
    scene.service.fleet.put(opened("cam-1", site_sums="never"))
    wait_until(lambda: len(scene.a.of(Task)) == 3, "the next task")
    assert len(scene.a.of(SumRequest)) == 2


def test_a_sum_answers_for_its_devices_and_the_others_are_given_up(scene: Scene) -> None:
    asked = opened("cam-1", "cam-2", "cam-3", "cam-8")
    scene.service.fleet.put(asked)
    scene.a.say(("cam-1", made_sum("cam-1", "cam-2", without=("cam-3", "cam-8"))))
    (delivered,) = scene.replies(asked, 1)
    assert [part.reply.device for part in delivered.parts] == ["cam-1", "cam-2"]
    assert delivered.problem == ""
    assert delivered.read(digest(BLOB)) == BLOB
    wait_until(lambda: [to for to, _ in scene.a.of(Cancel)] == ["cam-3"], "cam-3 to be given up")
    for part in delivered.parts:
        scene.service.fleet.verdict(part.reply, "accepted", "")
    wait_until(lambda: len(scene.outcomes()) == 2, "both receipts")
    scene.a.say(("cam-1", made_sum("cam-1", "cam-2")))  # as when its receipts were lost
    wait_until(lambda: len(scene.a.of(Receipt)) == 4, "both receipts again")
    assert scene.outcomes() == {"cam-1": "accepted", "cam-2": "accepted"}
    pending = scene.service.dispatcher.exchanges.get("r-1-0")
    assert pending is not None
    assert pending.wanted() == ["cam-8"], "of another site, it is waited for"


def test_a_device_whose_own_reply_is_on_its_way_is_not_given_up(scene: Scene) -> None:
    asked = opened("cam-1", "cam-2")
    scene.service.fleet.put(asked)
    coming = reply("cam-2", 5, "1" * 64)
    scene.a.say(("cam-2", coming), ("cam-1", made_sum("cam-1", without=("cam-2",))))
    scene.replies(asked, 1)
    pending = scene.service.dispatcher.exchanges.get("r-1-0")
    assert pending is not None
    assert pending.wanted() == ["cam-2"]


def test_a_second_different_sum_is_refused(scene: Scene) -> None:
    asked = opened("cam-1", "cam-2", "cam-3")
    scene.service.fleet.put(asked)
    scene.a.say(("cam-1", made_sum("cam-1", "cam-2")))
    (delivered,) = scene.replies(asked, 1)
    scene.service.fleet.verdict(delivered.parts[0].reply, "accepted", "")
    scene.a.say(("cam-3", made_sum("cam-3", blob=b"another")))
    wait_until(lambda: warned(scene.service, "gw-a: a sum for r-1-0 was refused"), "an event")
    wait_until(lambda: scene.outcomes().get("cam-3") == "rejected", "the verdict")
    scene.a.say(("cam-1", made_sum("cam-1", "cam-2", blob=b"a third")))
    wait_until(lambda: scene.outcomes().get("cam-2") == "rejected", "the verdict")
    assert scene.outcomes()["cam-1"] == "accepted", "its verdict stands"


@pytest.mark.parametrize("named", [("cam-1", "cam-8"), ("cam-1", "cam-3"), ("cam-1", "cam-1")])
def test_a_sum_that_names_a_device_not_asked_there_is_refused(
    scene: Scene, named: tuple[str, ...]
) -> None:
    asked = opened("cam-1", "cam-2", "cam-8")
    scene.service.fleet.put(asked)
    scene.a.say(("cam-1", made_sum(*named, without=("cam-8",))))
    (delivered,) = scene.replies(asked, 1)
    assert f"names {named[1]}" in delivered.problem
    assert [part.reply.device for part in delivered.parts] == ["cam-1"]
    pending = scene.service.dispatcher.exchanges.get("r-1-0")
    assert pending is not None
    assert pending.wanted() == ["cam-2", "cam-8"]


def test_a_sum_after_its_exchange_is_late_and_one_not_asked_for_refused(scene: Scene) -> None:
    scene.service.fleet.put(opened("cam-1", "cam-2", site_sums="never"))
    scene.a.say(("cam-1", made_sum("cam-1", "cam-2")))
    wait_until(lambda: warned(scene.service, "takes no sums of sites"), "an event")
    wait_until(lambda: len(scene.outcomes()) == 2, "both receipts")
    assert {*scene.outcomes().values()} == {"rejected"}
    later = replace(exchange(1), tasks=(task("cam-3", 1),))
    scene.service.fleet.drop(opened("cam-1", "cam-2"), put_again=True)
    scene.service.fleet.put(later)
    scene.a.say(("cam-1", made_sum("cam-1", "cam-2")))
    wait_until(lambda: {*scene.outcomes().values()} == {"late"}, "both receipts")


def test_a_gateway_that_comes_back_is_asked_again(mosquitto: MosquittoBroker, scene: Scene) -> None:
    scene.service.fleet.put(opened("cam-1", "cam-2"))
    with gateway(mosquitto, "gw-a", TWO) as again:
        again.say(("cam-1", birth(TWO)), ("cam-2", birth(TWO)), session=TWO)
        wait_until(
            lambda: [given.session for _, given in again.of(Task)].count(TWO) == 2, "the tasks"
        )
        assert again.of(SumRequest)[-1][1].devices == ("cam-1", "cam-2")
