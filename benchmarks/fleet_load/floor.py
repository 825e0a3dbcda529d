"""The floor of a round: a subscriber counts and adds up as many bytes from the same broker.

One client publishes an update for each device, one message each; another, in a process of its own,
adds each to a sum in memory. Nothing is encoded, checked or answered.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from edgefed.config.values.address import Address
from edgefed.wire.topics import CLIENT_ID_PREFIX

TOPIC = "floor/updates"
READY = "ready"


def floor_seconds(address: Address, devices: int, size: int) -> float:
    """Return the seconds in which a subscriber receives and adds up an update of each device.

    Args:
        address: of the broker, without TLS.
        devices: the number of updates.
        size: bytes of an update, a multiple of 4.
    """
    words = [sys.executable, "-m", "benchmarks.fleet_load.floor", address.host]
    words += [str(address.port), str(devices), str(size)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as subscriber:
        assert subscriber.stdout is not None
        assert subscriber.stdout.readline().strip() == READY
        client = _client("publisher")
        client.connect(address.host, address.port)
        client.loop_start()
        update = np.zeros(size // 4, np.float32).tobytes()
        began = time.monotonic()
        for _ in range(devices):
            client.publish(TOPIC, update, 1)
        subscriber.wait()
        took = time.monotonic() - began
        client.disconnect()
        client.loop_stop()
    return took


def _client(name: str) -> paho.Client:
    own = f"{CLIENT_ID_PREFIX}floor-{name}"
    return paho.Client(CallbackAPIVersion.VERSION2, own, protocol=paho.MQTTv311)


def _subscribe(host: str, port: int, devices: int, size: int) -> None:
    """Receive and add up updates until there is one of each device."""
    total, left = np.zeros(size // 4, np.float64), devices
    client = _client("subscriber")

    def take(client: paho.Client, data: object, message: paho.MQTTMessage) -> None:
        nonlocal left
        np.add(total, np.frombuffer(message.payload, np.float32), out=total)
        left -= 1
        if not left:
            client.disconnect()

    client.on_message = take
    client.on_subscribe = lambda *_: print(READY, flush=True)
    client.connect(host, port)
    client.subscribe(TOPIC, 1)
    client.loop_forever()


if __name__ == "__main__":
    _subscribe(sys.argv[1], *map(int, sys.argv[2:]))
