"""Many boards that train and tell their progress, played by one MQTT client."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from edgefed.config.values.address import Address
from edgefed.wire.envelope import encode
from edgefed.wire.messages import Birth, Message, Progress, Telemetry
from edgefed.wire.topics import Topics

SESSION = "0123456789abcdef"
LABELS = 10
HARDWARE = "Jetson Orin Nano 8GB"
TELEMETRY_EVERY = 10.0
"""Seconds between two reports of a board's health, as an agent's."""


class Boards:
    """Boards of a fleet without certificates.

    Args:
        client: a connected client.
        topics: of the fleet.
        count: how many.
        seed: of their numbers.
    """

    def __init__(self, client: paho.Client, topics: Topics, count: int, seed: int) -> None:
        self.names = [f"jetson-{number:03d}" for number in range(count)]
        self._client = client
        self._topics = topics
        self._random = random.Random(seed)
        self._fractions = dict.fromkeys(self.names, 0.0)
        self._health = dict.fromkeys(self.names, 0.0)

    def appear(self) -> None:
        """Publish every board's birth, and that it lives."""
        for name in self.names:
            labels = tuple(self._random.randrange(60) for _ in range(LABELS))
            birth = Birth(
                session=SESSION,
                status="online",
                hardware=HARDWARE,
                samples=sum(labels),
                labels=labels,
                classes=LABELS,
                shape=(64,),
            )
            self._send(self._topics.birth(name), birth, sure=True)
            idle = Progress(session=SESSION, state="idle")  # a birth alone makes no device known
            self._send(self._topics.progress(name), idle, sure=True)

    def report(self, name: str, now: float) -> None:
        """Tell a board's progress, and its health when that is due."""
        done = (self._fractions[name] + self._random.uniform(0.01, 0.05)) % 1.0
        self._fractions[name] = done
        progress = Progress(session=SESSION, state="train", fraction=done, exchange="e-1")
        self._send(self._topics.progress(name), progress)
        self.rest(name, now)

    def rest(self, name: str, now: float) -> None:
        """Tell a board's health when that is due, and nothing else."""
        if now >= self._health[name]:
            self._health[name] = now + TELEMETRY_EVERY * self._random.uniform(0.9, 1.1)
            self._send(self._topics.telemetry(name), self._telemetry())

    def complain(self, name: str, reason: str) -> None:
        """Let a board pause for a reason."""
        progress = Progress(session=SESSION, state="paused", reason=reason)
        self._send(self._topics.progress(name), progress)

    def _telemetry(self) -> Telemetry:
        draw = self._random.uniform
        return Telemetry(
            session=SESSION,
            cpu=draw(5, 99),
            gpu=draw(5, 99),
            memory=int(draw(2e9, 7e9)),
            temperature=draw(40, 60),
            power=draw(4, 15),
        )

    def _send(self, topic: str, message: Message, *, sure: bool = False) -> None:
        """Publish a message; a sure one is retained and repeated until it is acknowledged."""
        self._client.publish(topic, encode(message), qos=1 if sure else 0, retain=sure)


@contextmanager
def boards(address: Address, fleet: str, count: int, seed: int = 1) -> Iterator[Boards]:
    """Connect boards that have appeared and say nothing yet."""
    name = f"boards-{secrets.token_hex(4)}"
    client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv311)
    client.max_queued_messages_set(0)
    client.max_inflight_messages_set(2 * count)  # a birth must not wait behind what follows it
    client.connect(address.host, address.port)
    client.loop_start()
    try:
        fleet_of_boards = Boards(client, Topics(fleet), count, seed)
        fleet_of_boards.appear()
        yield fleet_of_boards
    finally:
        client.disconnect()
        client.loop_stop()


class Working:
    """Lets boards report at a rate, spread evenly over time, until it is stopped.

    Args:
        boards: those that report; the first one is left out.
        per_second: reports of each board in a second; 0 for idle boards, which tell their health.
    """

    def __init__(self, boards: Boards, per_second: float) -> None:
        self._report = boards.report if per_second else boards.rest
        self._names = boards.names[1:]
        self._rate = (per_second or 1.0) * len(self._names)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let them fall silent."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._stopped.wait(0.01):
            now = time.monotonic()
            while sent < (now - began) * self._rate:
                self._report(self._names[sent % len(self._names)], now)
                sent += 1
