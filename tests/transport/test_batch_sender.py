"""Messages that come within moments are published together, in their order."""

from __future__ import annotations

from edgefed.transport.batch_sender import BatchSender, without_old_states
from edgefed.wire.messages import Birth, Message, Progress, Telemetry
from edgefed.wire.site_messages import FROM_DEVICES, SumRequest, unpack_batch
from tests.transport.listening import wait_until

SESSION = "a" * 16
BIRTH = Birth(session=SESSION, status="online")


def progress(fraction: float) -> Progress:
    return Progress(session=SESSION, state="train", fraction=fraction)


def request(*devices: str) -> SumRequest:
    return SumRequest(
        run="r-1",
        exchange="r-1-0",
        index=0,
        total=9,
        always=True,
        lost_grace=None,
        seconds=9.0,
        devices=devices,
    )


def test_of_a_state_the_last_one_counts_and_nothing_else_is_left_out() -> None:
    telemetry = Telemetry(session=SESSION)
    messages: list[tuple[str, Message]] = [
        ("a", BIRTH),
        ("a", progress(0.1)),
        ("b", progress(0.2)),
        ("a", telemetry),
        ("a", BIRTH),
        ("a", progress(0.3)),
        ("gw", request("a", "b")),
        ("gw", request("b")),
    ]
    assert without_old_states(messages) == [messages[index] for index in (0, 2, 3, 4, 5, 7)]


def test_each_gateway_gets_its_messages_and_the_last_ones_at_the_end() -> None:
    published: list[tuple[str, list[str]]] = []

    def publish(gateway: str, batch: bytes) -> None:
        published.append((gateway, [device for device, *_ in unpack_batch(batch, *FROM_DEVICES)]))

    sender = BatchSender(publish)
    sender.put("gw-a", "cam-1", BIRTH)
    sender.put("gw-b", "cam-2", BIRTH)
    wait_until(lambda: len(published) >= 2, "the first batches")
    sender.put("gw-a", "cam-3", BIRTH)
    sender.flush()
    assert published[-1] == ("gw-a", ["cam-3"])
    sender.put("gw-a", "cam-4", BIRTH)
    sender.stop()
    devices = {"gw-a": list[str](), "gw-b": list[str]()}
    for gateway, names in published:
        devices[gateway] += names
    assert devices == {"gw-a": ["cam-1", "cam-3", "cam-4"], "gw-b": ["cam-2"]}
