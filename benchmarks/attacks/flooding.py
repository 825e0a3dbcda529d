"""Floods of messages that anybody could publish on a broker without an access list."""

from __future__ import annotations

import random
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from edgefed.config.values.address import Address
from edgefed.wire.envelope import encode
from edgefed.wire.messages import Birth, Cancel, Need, Progress, Request, Task
from edgefed.wire.topics import Topics

Message = tuple[str, bytes]
"""Topic and payload."""

Flood = Callable[[Topics, Sequence[str], int], Iterator[Message]]
"""Makes so many messages, given the fleet's topics and its devices."""


def needs(topics: Topics, devices: Sequence[str], count: int) -> Iterator[Message]:
    """Yield requests for blobs, each from a name that nobody has."""
    del devices
    for number in range(count):
        digest = f"{random.Random(number).getrandbits(256):064x}"
        yield topics.up_need(f"nobody-{number}"), encode(Need(digest=digest, first=True))


def births(topics: Topics, devices: Sequence[str], count: int) -> Iterator[Message]:
    """Yield births of names that nobody has, with samples."""
    del devices
    for number in range(count):
        birth = Birth(session=f"{number:016x}", status="online", samples=1000)
        yield topics.birth(f"born-{number}"), encode(birth)


def tasks(topics: Topics, devices: Sequence[str], count: int) -> Iterator[Message]:
    """Yield tasks of exchanges that nobody opened, for the first device."""
    device = devices[0]
    for number in range(count):
        yield topics.task(device), encode(_task(device, number))


def states(topics: Topics, devices: Sequence[str], count: int) -> Iterator[Message]:
    """Yield states of names that nobody has, by which a birth that was lost is found."""
    del devices
    for number in range(count):
        progress = Progress(session=f"{number:016x}", state="train")
        yield topics.progress(f"nobody-{number}"), encode(progress)


def requests(topics: Topics, devices: Sequence[str], count: int) -> Iterator[Message]:
    """Yield questions, each from another client."""
    del devices
    for number in range(count):
        request = Request(nonce=f"{number:016x}", action="snapshot")
        yield topics.request(f"operator.c-{number}/0"), encode(request)


def cancels(topics: Topics, devices: Sequence[str], count: int) -> Iterator[Message]:
    """Yield cancellations of exchanges that nobody opened, for the first device."""
    for number in range(count):
        yield topics.cancel(devices[0]), encode(Cancel(exchange=f"r-none-{number}"))


WINDOW = 1000
"""Messages that the broker has still to acknowledge."""

FLOODS: dict[str, Flood] = {
    flood.__name__: flood for flood in (needs, births, tasks, states, requests, cancels)
}


def publish(address: Address, messages: Iterator[Message]) -> int:
    """Publish messages with QoS 1 as fast as the broker acknowledges them; return how many."""
    client = paho.Client(
        CallbackAPIVersion.VERSION2, f"flood-{secrets.token_hex(4)}", protocol=paho.MQTTv311
    )
    client.max_inflight_messages_set(WINDOW)
    client.max_queued_messages_set(0)
    client.connect(address.host, address.port)
    client.loop_start()
    count, waiting = 0, deque[paho.MQTTMessageInfo]()
    for topic, payload in messages:
        waiting.append(client.publish(topic, payload, qos=1))
        count += 1
        if len(waiting) > WINDOW:
            waiting.popleft().wait_for_publish()
    while waiting:
        waiting.popleft().wait_for_publish()
    client.disconnect()
    client.loop_stop()
    return count


def _task(device: str, number: int) -> Task:
    return Task(
        run="r-none",
        exchange=f"r-none-{number}",
        index=number,
        round=1,
        question="fit",
        device=device,
        deadline=60.0,
        seed=1,
        algorithm="fedavg",
        settings={},
        model={},
        training={},
        codec="fp32",
        samples=5,
        blobs={},
        params={},
    )
