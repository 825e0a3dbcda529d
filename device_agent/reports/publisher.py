"""Publish a device's messages, each kind on its topic with the QoS of the protocol."""

from __future__ import annotations

from edgefed.transport.link import Link
from edgefed.wire.diagnostic_messages import LogTail, Pong
from edgefed.wire.enrolment_messages import RenewalRequest
from edgefed.wire.messages import Birth, Message, Need, Progress, Reply, Telemetry
from edgefed.wire.rollout_messages import ModelAnswer
from edgefed.wire.topics import Topics
from edgefed.wire.update_messages import UpdateState


class Publisher:
    """Publishes for one device.

    Attributes:
        silent: whether nothing is published.

    Progress and replies are published only while the broker is connected. Both are repeated after a
    reconnection, and an old one from a queue would then arrive too late.
    """

    def __init__(self, link: Link, topics: Topics, device: str) -> None:
        self._link = link
        self._topics = topics
        self._device = device
        self.silent = False

    def birth(self, birth: Birth) -> None:
        """Publish the device's birth, retained for later subscribers."""
        self._publish(self._topics.birth(self._device), birth, retain=True)

    def farewell(self, gone: Birth, reason: str) -> None:
        """Publish that the device leaves, and why; ``gone`` is its birth with status ``lost``.

        The reason is first, so that the coordinator has it when it takes the birth.
        """
        self.progress(Progress(session=gone.session, state="lost", reason=reason[:1000]))
        self.birth(gone)

    def refusal(self, gone: Birth, reason: str) -> None:
        """Publish why a device does not join, after a birth that nobody keeps."""
        self._publish(self._topics.birth(self._device), gone)
        self.progress(Progress(session=gone.session, state="lost", reason=reason))

    def progress(self, progress: Progress) -> None:
        """Publish the device's progress."""
        if self._link.connected:
            self._publish(self._topics.progress(self._device), progress)

    def telemetry(self, telemetry: Telemetry) -> None:
        """Publish telemetry, best effort."""
        self._publish(self._topics.telemetry(self._device), telemetry, qos=0)

    def reply(self, reply: Reply) -> None:
        """Answer a task."""
        if self._link.connected:
            self._publish(self._topics.reply(self._device), reply)

    def need(self, need: Need) -> None:
        """Request chunks."""
        self._publish(self._topics.up_need(self._device), need)

    def renewal(self, asked: RenewalRequest) -> None:
        """Request the device's next certificate."""
        self._publish(self._topics.renewal(self._device), asked)

    def pong(self, pong: Pong) -> None:
        """Answer a ping; an answer that waited for a connection would give a wrong time."""
        self._publish(self._topics.pong(self._device), pong, qos=0)

    def log_tail(self, tail: LogTail) -> None:
        """Publish lines of the log, best effort."""
        self._publish(self._topics.log_tail(self._device), tail, qos=0)

    def model_answer(self, answer: ModelAnswer) -> None:
        """Answer the offer of a model; an answer that is lost is asked for again."""
        if self._link.connected:
            self._publish(self._topics.model_answer(self._device), answer)

    def update_state(self, state: UpdateState) -> None:
        """Publish the version of the agent, and its update."""
        self._publish(self._topics.update_state(self._device), state)

    def _publish(self, topic: str, message: Message, *, qos: int = 1, retain: bool = False) -> None:
        if not self.silent:
            self._link.send(topic, message, qos=qos, retain=retain)
