"""The messages by which a party gets its certificate, the next one, or gives it up.

The first two travel before there is a certificate, and prove themselves with the token's secret.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgefed.trust.certificates import KEY_ID_BYTES, ROLES, Role
from edgefed.trust.tokens import proof
from edgefed.wire.message_parts import Word
from edgefed.wire.messages import Message, Session, Text

MAX_CERTIFICATE_BYTES = 2048

OptionalName = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9-]{0,63})?$")]
KeyId = Annotated[bytes, Field(min_length=KEY_ID_BYTES, max_length=KEY_ID_BYTES)]
Der = Annotated[bytes, Field(max_length=MAX_CERTIFICATE_BYTES)]
"""A certificate or a certificate signing request."""


class EnrolmentRequest(Message):
    """The holder of a token asks the authority for a certificate; proven by the token's secret.

    Attributes:
        name: the name that the device chooses; empty where the token names it.
        request: a certificate signing request (DER) with its two public keys.
        roles: the roles that the requesting program can use; a token for another role is not
            used up.
        proof: HMAC-SHA256 over the other fields.
    """

    kind = "enrolment_request"
    name: OptionalName = ""
    request: Der
    roles: Annotated[tuple[Role, ...], Field(max_length=len(ROLES))]
    proof: Annotated[bytes, Field(min_length=32, max_length=32)]

    def proven(self) -> tuple[bytes, ...]:
        """Return the fields that the proof covers, preceded by its purpose."""
        roles = ",".join(self.roles).encode()
        return self.kind.encode(), self.name.encode(), self.request, roles


class EnrolmentResponse(Message):
    """The authority's answer.

    Attributes:
        status: ``enrolled``; ``pending`` until an operator approves; ``refused``.
        code, reason, hint: why it is refused, as an EdgeFed error.
        name, role: of the enrolled party.
        broker: the broker's address for enrolled parties.
        certificate, authority: the certificates (DER) of the party and of the authority.
        proof: HMAC-SHA256 over the other fields; empty when refused without a known token.
    """

    kind = "enrolment_response"
    status: Literal["enrolled", "pending", "refused"]
    code: Word = ""
    reason: Text = ""
    hint: Text = ""
    name: Word = ""
    role: Word = ""
    broker: Text = ""
    certificate: Der = b""
    authority: Der = b""
    proof: Annotated[bytes, Field(max_length=32)] = b""

    def proven(self) -> tuple[bytes, ...]:
        """Return the fields that the proof covers, preceded by its purpose."""
        texts = (self.status, self.code, self.reason, self.hint, self.name, self.role, self.broker)
        return (
            self.kind.encode(),
            *(text.encode() for text in texts),
            self.certificate,
            self.authority,
        )


class RenewalRequest(Message):
    """A device asks for its next certificate, in good time, or once it may have missed the answer.

    Attributes:
        request: a certificate signing request (DER) with two new public keys.
    """

    kind = "renewal_request"
    introduces = True
    request: Der


class RenewalOrder(Message):
    """The coordinator asks a device to replace its keys now, on an operator's order.

    Attributes:
        key: id of the certificate that is to be replaced; a device with another one does nothing.
    """

    kind = "renewal_order"
    introduces = True
    key: KeyId


class IssuedCertificate(Message):
    """A device's next certificate; the one before it is revoked once this one is used.

    Attributes:
        certificate: DER.
    """

    kind = "issued_certificate"
    introduces = True
    certificate: Der


class Leave(Message):
    """A device leaves the fleet permanently, its departure is confirmed, or it is removed.

    Attributes:
        session: identifies a device's message and its answer; the agent's session where it is
            removed.
    """

    kind = "leave"
    introduces = True
    session: Session


def signed_request(
    name: str, request: bytes, key: bytes, roles: tuple[Role, ...]
) -> EnrolmentRequest:
    """Return a request with its proof."""
    made = EnrolmentRequest(name=name, request=request, roles=roles, proof=bytes(32))
    return made.model_copy(update={"proof": proof(key, *made.proven())})


def sealed(response: EnrolmentResponse, key: bytes) -> EnrolmentResponse:
    """Return a response with its proof."""
    return response.model_copy(update={"proof": proof(key, *response.proven())})


ENROLMENT_MESSAGES: tuple[type[Message], ...] = (
    EnrolmentRequest,
    EnrolmentResponse,
    RenewalRequest,
    RenewalOrder,
    IssuedCertificate,
    Leave,
)
