"""The messages about updates of the agent: the offer, and the state of a device.

An offer carries signed metadata by reference. A device verifies it from its own pinned root: the
coordinator chooses among releases, and can make none.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edgefed.wire.message_parts import BlobRef, Word
from edgefed.wire.messages import Message, Nonce, Session, Text

MetadataName = Annotated[str, Field(pattern=r"^([0-9]{1,9}\.)?[a-z]{1,16}\.json$")]
ReleaseName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]{0,63}$")]


class UpdateOffer(Message):
    """Install a release of the agent, if the device's owner allows it.

    Attributes:
        session: of the agent; an agent with another session ignores the offer.
        offer: id of the offer; one that the device has looked at is not looked at again.
        release: name of the release.
        metadata: the signed metadata of the repository, by file name.
        during_run: whether the version may change within a run.
        withdraw: whether the release is no longer to be installed, in place of all the above.
    """

    kind = "update_offer"
    since = 7
    introduces = True
    session: Session
    offer: Session
    release: ReleaseName
    metadata: Annotated[dict[MetadataName, BlobRef], Field(max_length=64)]
    during_run: bool = False
    withdraw: bool = False


class UpdateState(Message):
    """The version of a device's agent, and its update.

    Attributes:
        session: of the agent.
        release: the slot that runs; ``base`` for the version that was installed by hand.
        phase: of the updater, or ``off``.
        offer: id of the last offer that was looked at.
        reason: the outcome of the last update, or why the one at work waits.
    """

    kind = "update_state"
    since = 7
    session: Session
    release: Word
    phase: Word
    offer: Nonce = ""
    reason: Text = ""


UPDATE_MESSAGES: tuple[type[Message], ...] = (UpdateOffer, UpdateState)
