"""The messages of a model rollout: an offer of the coordinator, and the answer of a device.

The coordinator repeats an offer until the device has answered. The file travels as a blob.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgefed.wire import limits
from edgefed.wire.message_parts import Digest, Word
from edgefed.wire.messages import Message, Session, Text

RolloutId = Annotated[str, Field(pattern=r"^m-[0-9a-f]{8,32}$")]
"""Names a rollout, and on devices the folder of its model."""

ModelOutcome = Literal["installed", "refused", "failed", "declined", "rolled_back"]
"""``refused``: the device's test was worse than before; ``failed``: no test or no file could be
made; ``declined``: the device's owner takes no models; ``rolled_back``: the model before it is used
again."""


class ModelOffer(Message):
    """Take a model for the inference program of the device, or go back to the one before it.

    Attributes:
        session: of the agent; an agent with another session ignores the offer.
        rollout: its id.
        action: ``withdraw`` orders the device to go back if it uses the model of this rollout.
        digest, size: of the model file, a blob.
    """

    kind = "model_offer"
    since = 7
    session: Session
    rollout: RolloutId
    action: Literal["install", "withdraw"]
    digest: Digest
    size: Annotated[int, Field(gt=0, le=limits.MAX_BLOB_BYTES)]


class ModelAnswer(Message):
    """The outcome of an offer on one device.

    Attributes:
        session: of the agent.
        rollout: the offer's.
        metric: measure of the test on the device's held-out samples; empty without a test.
        score: of the offered model.
        before: of the model that the device used; None for none.
        reason: why, unless it was installed.
    """

    kind = "model_answer"
    since = 7
    session: Session
    rollout: RolloutId
    outcome: ModelOutcome
    metric: Word = ""
    score: Annotated[float, Field(allow_inf_nan=False)] | None = None
    before: Annotated[float, Field(allow_inf_nan=False)] | None = None
    reason: Text = ""


ROLLOUT_MESSAGES: tuple[type[Message], ...] = (ModelOffer, ModelAnswer)
