"""A paho client that makes fewer system calls: it reads ahead, and writes waiting packets at once.

paho reads each packet in three or more calls, and writes each packet in one of its own, with
another to wake its thread. Each call lets other threads take the interpreter, for up to 5 ms when
they are busy. With thousands of small messages this costs more than their handling.
"""

from __future__ import annotations

import ssl
import threading
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import MessageType, MQTTErrorCode

READ_BYTES = 64 * 1024
"""Bytes that are read at a time, and written."""

READ_IN_A_ROW = 32
"""Packets after which those that wait to be written have their turn."""

_JOINED = (MessageType.PUBLISH, MessageType.PUBACK)
"""Packets after whose writing paho has nothing to do."""


class BufferedClient(paho.Client):
    """A client whose network thread reads and writes several packets with one system call.

    Attributes:
        revoked: whether the broker has ended a connection because our certificate is revoked.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ahead = memoryview(b"")
        self._ahead_of: object = None
        self.revoked = False

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Handle the packets that have been read from the socket, and write the answers."""
        status, count = super().loop_read(max_packets), 1
        # Bytes read ahead do not make the socket readable again, so they are handled at once
        while not status and self._ahead and self._sock is not None:
            if count % READ_IN_A_ROW == 0 and self.want_write():
                status = self.loop_write()
            status = status or super().loop_read(max_packets)
            count += 1
        if not status and self._sock is not None and self.want_write():
            return self.loop_write()
        return status

    def _sock_recv(self, bufsize: int) -> bytes:
        """Return bytes of the connection, which are read ahead."""
        if self._sock is not self._ahead_of:
            # Bytes of an earlier connection are not continued by this one
            self._ahead, self._ahead_of = memoryview(b""), self._sock
        if not self._ahead:
            try:
                self._ahead = memoryview(super()._sock_recv(max(bufsize, READ_BYTES)))
            except ssl.SSLError as error:  # paho only logs it
                self.revoked |= "CERTIFICATE_REVOKED" in (error.reason or "")
                raise
        part, self._ahead = self._ahead[:bufsize], self._ahead[bufsize:]
        return bytes(part)

    def _packet_queue(
        self,
        command: int,
        packet: bytes | bytearray,
        mid: int,
        qos: int,
        info: paho.MQTTMessageInfo | None = None,
    ) -> MQTTErrorCode:
        """Queue a packet; the network thread, which writes it, is awake when it queues one."""
        if threading.current_thread() is not self._thread:
            return super()._packet_queue(command, packet, mid, qos, info)
        self._out_packet.append(_waiting(command, bytes(packet), mid, qos, info))
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _packet_write(self) -> MQTTErrorCode:
        """Write all packets that wait, those in a row at once."""
        joined: list[bytes | bytearray] = []
        room = READ_BYTES
        while self._out_packet:
            first = self._out_packet[0]
            room -= first["to_process"]
            # A packet that is partly written has to be continued alone
            if room < 0 or first["pos"] or first["command"] & 0xF0 not in _JOINED:
                break
            joined.append(first["packet"])
            if first["info"] is not None and not first["qos"]:
                first["info"]._set_as_published()  # nobody acknowledges it
            self._out_packet.popleft()
        if joined:
            packet = b"".join(joined)
            # As a kind after whose writing paho has nothing to do
            self._out_packet.appendleft(_waiting(MessageType.PUBACK, packet, 0, 1))
        return super()._packet_write()


def _waiting(
    command: int, packet: bytes, mid: int, qos: int, info: paho.MQTTMessageInfo | None = None
) -> Any:
    """Return an entry of paho's queue."""
    return {
        "command": command,
        "mid": mid,
        "qos": qos,
        "pos": 0,
        "to_process": len(packet),
        "packet": packet,
        "info": info,
    }
