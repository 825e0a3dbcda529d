"""The store's records of a run, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import ReplyRole
from edgefed.coordinator.storage.compatibility import DataSpec
from edgefed.events.base.model import RunStatus
from edgefed.files.code_versions import UNKNOWN_VERSIONS, CodeVersions
from edgefed.wire.messages import Task

SiteSumsChoice = Literal["auto", "always", "never"]
"""Whether gateways may sum the answers to an exchange: where it takes fewer bytes, or always."""


@dataclass(frozen=True)
class RunRecord:
    """One row of the runs table.

    Attributes:
        run: unique id, such as ``r-0007-4f2a``.
        recipe: the recipe as JSON text.
        round: the current round; once the run has ended, the number of finished rounds.
        exchanges: number of exchanges begun.
        preparatory_exchanges: number of those among them that have no seed index: preparatory ones
            (``Exchange.preparatory``), and in buffered rounds questions and merges.
        tested_devices, all_testers, tested_labels, all_labels: of ``accuracy`` and ``loss``; see
            ``TEST_COUNTS``.
        epsilon: privacy cost of the merged rounds; None without differential privacy.
        bytes_up, bytes_down: payload bytes from and to devices.
        seconds: working time of the run.
        shape, classes, class_names, by_position: form of its data, as in ``DataSpec``; ``classes``
            is 0 until the run has begun.
        error, hint: code of the failure, and advice.
        silent: devices that missed deadlines, as in ``silent_devices``.
        testers: devices whose tests count among the scores by which the best round is known.
        progress: of the round at work: its number, ``seconds`` and bytes (``up``, ``down``) when it
            began, and the ``stats`` of its answers so far.
        restored: time of the backup that it was restored from before it had finished; devices may
            have answered later exchanges, which the state does not know. Empty for no backup.
        first_index: the index of its first exchange; a restore raises it.
        versions: of the code with which it was created; unknown of runs of earlier releases.
    """

    run: str
    name: str
    algorithm: str
    recipe: str
    seed: int
    status: RunStatus
    created: str
    reason: str = ""
    error: str = ""
    hint: str = ""
    started: str = ""
    ended: str = ""
    round: int = 0
    rounds: int = 0
    devices: int = 0
    exchanges: int = 0
    preparatory_exchanges: int = 0
    accuracy: float | None = None
    loss: float | None = None
    tested_devices: int = 0
    all_testers: int = 0
    tested_labels: int = 0
    all_labels: int = 0
    epsilon: float | None = None
    weights_digest: str = ""
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0
    progress: dict[str, Any] = field(default_factory=dict)
    silent: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    testers: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    classes: int = 0
    class_names: tuple[str, ...] = ()
    by_position: bool = False
    restored: str = ""
    first_index: int = 0
    versions: CodeVersions = UNKNOWN_VERSIONS

    @property
    def spec(self) -> DataSpec | None:
        """The form of its data; None until it has begun."""
        if not self.classes:
            return None
        return DataSpec(self.shape, self.classes, self.class_names, self.by_position)

    @property
    def finished_rounds(self) -> int:
        """How many rounds are closed: all up to ``round`` but the one at work."""
        return self.round - 1 if self.progress.get("round") == self.round else self.round

    @property
    def next_index(self) -> int:
        """The index of the next exchange, which no exchange of the run ever had."""
        return self.first_index + self.exchanges

    @property
    def seed_index(self) -> int:
        """The next exchange's number, from which its draws derive; without those that have none."""
        return self.exchanges - self.preparatory_exchanges


@dataclass(frozen=True)
class OpenExchange:
    """An exchange as it was put to the devices; put again under the same id after a restart.

    Attributes:
        exchange: its id; unique for ever.
        index: grows with each of a run's exchanges (``RunRecord.next_index``).
        name: the algorithm's name for the question.
        round: counted from 1.
        tasks: one for each device asked.
        wanted, quorum, deadline: as in ``Exchange``.
        attempt: how often this round's question was put before and missed its quorum.
        max_reply_bytes: bytes that the blobs of any reply may take, whatever its task was.
        preparatory, reply_roles, detail: as in ``Exchange``.
        lost_grace: seconds that it waits for a lost device once it has its quorum; None for as
            long as for any other.
        bounty_orders: how many of the run's orders about label bounties it was planned after; its
            answers are merged into the state after these.
        held_out: of a test, how many samples each device had announced to hold out.
        number: of a question in buffered rounds, which asks one device: how many the device was
            asked before, in this run. None for an exchange of any other kind.
        site_sums: whether gateways may sum its answers.
    """

    exchange: str
    index: int
    name: str
    round: int
    tasks: tuple[Task, ...]
    wanted: int
    quorum: int
    deadline: float
    attempt: int = 0
    max_reply_bytes: int = 0
    preparatory: bool = False
    lost_grace: float | None = None
    reply_roles: Mapping[str, ReplyRole] = field(default_factory=dict)
    bounty_orders: int = 0
    held_out: Mapping[str, int] = field(default_factory=dict)
    detail: str = ""
    number: int | None = None
    site_sums: SiteSumsChoice = "never"

    @cached_property
    def task_of(self) -> Mapping[str, Task]:
        """The task of each device that is asked."""
        return {task.device: task for task in self.tasks}

    @property
    def version(self) -> int:
        """The number of rounds that had ended when it was planned."""
        return self.round - 1


@dataclass(frozen=True)
class Checkpoint:
    """Everything needed to go on with a run.

    Attributes:
        state: the algorithm's.
        downlink: references of the payloads last sent, by name (``DownlinkEncoder.to_json``).
        open: the open exchanges, oldest first.
    """

    state: State
    downlink: dict[str, Any] = field(default_factory=dict)
    open: tuple[OpenExchange, ...] = ()
