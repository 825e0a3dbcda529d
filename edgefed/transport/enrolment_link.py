"""The connection of a party without a certificate to the broker's listener for enrolment.

There is no authority yet by which TLS could check the broker. The broker's certificate is therefore
checked here, with the authority's public key in the token, before anything is sent.
"""

from __future__ import annotations

import queue
import ssl
from datetime import datetime
from typing import Any

import paho.mqtt.client as paho
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from edgefed.errors import EdgeFedError, NotAllowedError, UnreachableError, WireError
from edgefed.trust.certificates import Certificate, read_certificate
from edgefed.trust.credentials import check_validity
from edgefed.trust.tokens import Token
from edgefed.wire.enrolment_messages import EnrolmentRequest, EnrolmentResponse
from edgefed.wire.envelope import decode, encode
from edgefed.wire.topics import CLIENT_ID_PREFIX, Topics

KEEPALIVE = 30
CONNECT_TIMEOUT = 10.0

_Lost = str
"""Why a connection was lost."""


class EnrolmentLink:
    """A connection that sends requests for a certificate.

    Args:
        token: names the broker and the authority.
        now: for the validity of the broker's certificate.

    Raises:
        UnreachableError: ``enrol.unreachable``: there is no answer, or none in TLS.
        NotAllowedError: ``enrol.wrong_authority``, ``trust.clock``, ``trust.expired``: the broker
            is not the token's, or this machine's clock is wrong.
    """

    def __init__(self, token: Token, now: datetime) -> None:
        self._token = token
        self._topics = Topics(token.fleet)
        self._arrivals: queue.SimpleQueue[EnrolmentResponse | _Lost] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._client = self._make_client()
        self._connect(now)

    def _make_client(self) -> paho.Client:
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=CLIENT_ID_PREFIX + self._token.id,
            protocol=paho.MQTTv311,
            reconnect_on_failure=False,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # see above: _check_broker does it
        client.tls_set_context(context)
        client.connect_timeout = CONNECT_TIMEOUT
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        return client

    def _connect(self, now: datetime) -> None:
        try:
            why = self._reach(now)
        except EdgeFedError:
            self._hang_up()
            raise
        if why:  # raised here, where no frame of a failed handshake keeps its socket open
            self._hang_up()
            raise self._unreachable(why)
        self._client.loop_start()
        try:
            why = self._ready.get(timeout=CONNECT_TIMEOUT)
        except queue.Empty:
            why = "it does not answer"
        if why:
            self.close()
            raise self._unreachable(why)

    def _reach(self, now: datetime) -> str:
        """Connect to the right broker; return why not, empty when it is."""
        try:
            self._client.connect(self._token.host, self._token.port, keepalive=KEEPALIVE)
            self._check_broker(now)
        except (OSError, ValueError) as error:
            return _reason(error)
        return ""

    def close(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()
        self._hang_up()

    def _hang_up(self) -> None:
        """Close the connection, which paho does only while its loop runs."""
        connection: Any = self._client.socket()
        if connection is not None:
            connection.close()

    def send(self, request: EnrolmentRequest) -> None:
        """Send a request.

        Raises:
            UnreachableError: ``enrol.unreachable``: the connection was lost.
        """
        topic = self._topics.enrolment_request(self._token.id)
        info = self._client.publish(topic, encode(request), qos=1)
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise self._unreachable("the connection was lost")

    def response(self, timeout: float) -> EnrolmentResponse | None:
        """Return the next response; None when there is none in time.

        Raises:
            UnreachableError: ``enrol.unreachable``: the connection was lost.
        """
        try:
            arrived = self._arrivals.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(arrived, str):
            raise self._unreachable(arrived)
        return arrived

    # -- the broker ---------------------------------------------------------------------------

    def _check_broker(self, now: datetime) -> None:
        """Check that the authority of the token made the broker's certificate."""
        connection: Any = self._client.socket()
        encoded = connection.getpeercert(binary_form=True) if connection else None
        if encoded is None:  # as the listener for devices does with who has no certificate
            raise ConnectionResetError
        try:
            certificate = read_certificate(encoded)
            key = Ed25519PublicKey.from_public_bytes(self._token.authority_key)
            key.verify(certificate.x509.signature, certificate.x509.tbs_certificate_bytes)
        except (NotAllowedError, InvalidSignature) as error:
            raise self._wrong_authority() from error
        self._check_role(certificate)
        check_validity(certificate, now)

    def _check_role(self, certificate: Certificate) -> None:
        if certificate.role != "broker":
            raise self._wrong_authority()

    def _wrong_authority(self) -> NotAllowedError:
        return NotAllowedError(
            f"{self._place} is not the broker of this token: another authority made its"
            " certificate.",
            code="enrol.wrong_authority",
            hint="ask for a token of this fleet: edgefed device invite; check the host and the port"
            " that devices reach",
        )

    def _unreachable(self, why: str) -> UnreachableError:
        return UnreachableError(
            f"The fleet's broker cannot be reached at {self._place} for enrolment: {why}.",
            code="enrol.unreachable",
            hint="check that edgefed broker up runs there, that this network reaches it, and the"
            " port; then enter the same command again",
        )

    @property
    def _place(self) -> str:
        host = self._token.host
        return f"{f'[{host}]' if ':' in host else host}:{self._token.port}"

    # -- paho's callbacks ---------------------------------------------------------------------

    def _on_connect(
        self, client: paho.Client, data: Any, flags: Any, reason: ReasonCode, properties: Any
    ) -> None:
        del data, flags, properties
        if reason.is_failure:
            self._ready.put(f"it refuses the connection, {str(reason).lower()}")
        else:
            client.subscribe(self._topics.enrolment_response(self._token.id), qos=1)

    def _on_subscribe(
        self, client: paho.Client, data: Any, mid: int, reasons: Any, properties: Any
    ) -> None:
        del client, data, mid, reasons, properties
        self._ready.put("")

    def _on_disconnect(
        self, client: paho.Client, data: Any, flags: Any, reason: ReasonCode, properties: Any
    ) -> None:
        del client, data, flags, properties
        why = f"it closed the connection ({str(reason).lower()})"
        self._ready.put(why)
        self._arrivals.put(why)

    def _on_message(self, client: paho.Client, data: Any, message: paho.MQTTMessage) -> None:
        del client, data
        try:
            self._arrivals.put(decode(bytes(message.payload), EnrolmentResponse))
        except WireError as error:
            self._arrivals.put(error.message.rstrip("."))


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):
        return "it does not speak TLS"
    if isinstance(error, ConnectionResetError):
        return "it closed the connection"
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
