"""Split a stream of bytes into MQTT packets, and copy messages among them."""

from __future__ import annotations

_PUBLISH = 3


class PacketSplitter:
    """Collects the bytes of one direction of a connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def take(self, data: bytes) -> list[bytes]:
        """Add bytes and return the packets that are complete now."""
        self._buffer += data
        packets = []
        while (size := _packet_size(self._buffer)) is not None and len(self._buffer) >= size:
            packets.append(bytes(self._buffer[:size]))
            del self._buffer[:size]
        return packets


def is_message(packet: bytes) -> bool:
    """Whether a packet publishes a message."""
    return packet[0] >> 4 == _PUBLISH


def unacknowledged_copy(packet: bytes) -> bytes:
    """Return a message as QoS 0, so that its copies leave acknowledgements alone."""
    header, body = packet[0], packet[_body_start(packet) :]
    topic_end = 2 + int.from_bytes(body[:2], "big")
    has_id = header & 0b0110
    rest = body[topic_end + 2 :] if has_id else body[topic_end:]
    return _packet(header & 0b1111_0001, body[:topic_end] + rest)


def _packet_size(buffer: bytes | bytearray) -> int | None:
    """Return the size of the packet at the buffer's start; None while its header is cut off."""
    length, shift = 0, 0
    for place in range(1, min(len(buffer), 5)):
        length |= (buffer[place] & 0x7F) << shift
        shift += 7
        if not buffer[place] & 0x80:
            return place + 1 + length
    return None


def _body_start(packet: bytes) -> int:
    place = 1
    while packet[place] & 0x80:
        place += 1
    return place + 1


def _packet(header: int, body: bytes) -> bytes:
    length, coded = len(body), bytearray()
    while True:
        length, digit = divmod(length, 128)
        coded.append(digit | (0x80 if length else 0))
        if not length:
            return bytes([header]) + bytes(coded) + body
