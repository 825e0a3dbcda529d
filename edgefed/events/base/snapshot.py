"""The state of a fleet as one frozen value, for screens, ``status`` and ``device list``."""

from __future__ import annotations

from typing import Literal

from edgefed.events.base.alert_events import AlertView
from edgefed.events.base.bounty_tables import BountyView, BudgetView, bounties_of, budgets_of
from edgefed.events.base.evaluation_views import ConfusionView, DeviceTestView
from edgefed.events.base.method_tables import TableView
from edgefed.events.base.model import Phase, RunStatus
from edgefed.events.base.view import View
from edgefed.wire.messages import DeviceState

ShownState = Literal[DeviceState, "excluded", "asked", "silent", "quarantined"]
"""The activity of a device, or a state that the coordinator gives it: ``asked`` until the device
says that it has the task, ``silent`` if it does not answer a ping, or that the run does not ask it.
"""


class WaitingView(View):
    """The devices that the open exchange waits for, once it has its quorum or one is lost.

    Attributes:
        lost: devices that are not connected.
        online: devices that are connected.
        more: number of further devices.
        until: UTC time at which the exchange closes without them.
    """

    lost: tuple[str, ...] = ()
    online: tuple[str, ...] = ()
    more: int = 0
    until: str = ""


TEST_COUNTS = ("tested_devices", "all_testers", "tested_labels", "all_labels")
"""Names of the numbers that go with a score: devices that tested and those that could have; labels
that the tested samples have, and all."""


class RunView(View):
    """The current run, or the last one.

    Attributes:
        round_at: UTC time at which the open round began, or the last pause in it ended.
        question, detail: name of the open exchange, and the algorithm's further description.
        min_devices: devices with which the run begins; 0 if unknown.
        wanted, quorum: answers that the open exchange asks for, and how many suffice.
        accepted: answers merged so far in it.
        deadline: seconds that the exchange may take, from ``opened_at``.
        class_names: its classes in order; empty when labels are plain integers.
        waiting: the devices that it waits for; None before its quorum while no device is lost.
        slowest, slowest_seconds: of the current round, as in ``RoundView``.
        refused: replies of that round that were rejected or refused, or whose device failed.
        tested_devices, all_testers, tested_labels, all_labels: of ``accuracy`` and ``loss``, as in
            ``RoundView``.
        restored: time of the backup from which it resumed; its epsilon is then a lower bound.
    """

    run: str
    name: str = ""
    algorithm: str = ""
    model: str = ""
    status: RunStatus = "waiting"
    reason: str = ""
    round: int = 0
    round_at: str = ""
    rounds: int = 0
    min_devices: int = 0
    exchange: str = ""
    question: str = ""
    detail: str = ""
    phase: Phase = "select"
    asked: int = 0
    wanted: int = 0
    quorum: int = 0
    accepted: int = 0
    deadline: float = 0.0
    opened_at: str = ""
    waiting: WaitingView | None = None
    slowest: str = ""
    slowest_seconds: float = 0.0
    refused: int = 0
    started_at: str = ""
    ended_at: str = ""
    accuracy: float | None = None
    loss: float | None = None
    tested_devices: int = 0
    all_testers: int = 0
    tested_labels: int = 0
    all_labels: int = 0
    weights_digest: str = ""
    class_names: tuple[str, ...] = ()
    restored: str = ""

    @property
    def question_in_words(self) -> str:
        """The open exchange's question with its detail, such as ``layer conv2, 2 of 4``."""
        return f"{self.question} {self.detail}".strip()


class RoundView(View):
    """One finished round: a point of the curves.

    Attributes:
        tested_devices, all_testers: numbers of devices that tested, and of those that could have;
            0 without tests on devices.
        tested_labels, all_labels: numbers of labels that the tested samples have, and of all; 0
            where this is unknown.
        compared: whether enough devices tested for a comparison with other rounds.
        is_best: whether the round is better than all before it, by comparable tests on devices;
            None for other tests.
        late: replies that were late, rejected or refused, or whose device failed.
        slowest, slowest_seconds: the device whose accepted reply took longest, and how long.
        joules: energy that devices took for its merged answers; None if none measured it.
    """

    round: int
    accuracy: float | None = None
    loss: float | None = None
    train_loss: float | None = None
    tested_devices: int = 0
    all_testers: int = 0
    tested_labels: int = 0
    all_labels: int = 0
    compared: bool = True
    is_best: bool | None = None
    epsilon: float | None = None
    replies: int = 0
    late: int = 0
    seconds: float = 0.0
    slowest: str = ""
    slowest_seconds: float = 0.0
    sent: int = 0
    received: int = 0
    joules: float | None = None


class PreviousRunView(View):
    """The run before the current one, to compare with.

    Attributes:
        rounds: its last rounds, oldest first.
    """

    run: str
    rounds: tuple[RoundView, ...] = ()


DeviceOutcome = Literal["accepted", "late", "lost", "refused", "rejected", "failed"]
"""The outcome of a device that was asked in a round."""


class DeviceRoundView(View):
    """A device in one round of the current run.

    Attributes:
        seconds: from the task to its reply; of all its replies in a round of several exchanges.
    """

    round: int
    outcome: DeviceOutcome
    seconds: float = 0.0


Standing = Literal["trusted", "suspect", "quarantined"]
"""The consequence of a device's trust score."""


class DeviceSnapshot(View):
    """One device.

    Attributes:
        seen_at: UTC time of its last message.
        reason: why it is in its state; of a lost device ``connection broke``, ``stopped cleanly``,
            ``silent``, ``refused its data`` with the error, or the reason that its gateway gives.
        state_since: UTC time since when it is in its state; of a silent one, of its last message.
        before_lost: last activity of a lost or silent device, such as ``train 83 %``; empty for any
            other.
        exchange, replied: exchange that it works on, and the last one with a reply.
        refused_at, refused_reason: when and why its last reply in the current run was refused;
            empty once another one was accepted.
        rounds: the last rounds of the current run in which it was asked, oldest first.
        held_out: samples on which it tests the model.
        labels: training samples by label; empty if the device does not share them.
        shape: of one input.
        channels: mean and standard deviation of each channel of its inputs; empty if it does not
            share them.
        refuses: the data that its owner does not let leave it.
        ignored: files of its data that it cannot use.
        class_names: names of those labels; empty when they have none.
        sent, received: payload bytes, from the device's side.
        temperature: °C. power: W. gpu, cpu, battery: percent.
        memory, memory_total: bytes in use, and all; an agent of an older version reports the former
            only.
        shared_entries: averages of its samples that the current run holds; 0 for none.
        shared_group: fewest samples in one of them.
        shared_bytes: of the reply with them.
        open_bounties: labels for which the current run asks other devices for mixes.
        received_mixes: mixes that it holds for the current run, of all labels.
        noise_samples: samples that natural noise fills in the current run, of all labels.
        mixture: its share of each expert in the current run; empty without experts.
        kept_experts: numbers of the experts that it uses.
        accuracy: of its last accepted test in the current run; None without one.
        accuracy_round: the round whose model it tested.
        trust: score from 0 to 1, which refused replies lower.
        standing: its consequence; a device that is ``quarantined`` is not asked.
        trust_reason: why its last reply was refused, or that an operator quarantined it.
        quarantined_by: the operator that ordered its quarantine, or the setting of the check, such
            as ``checks.norm_factor``; empty without one.
        trust_since: UTC time since when it has this standing.
        site: the gateway that speaks for it; empty for a device without one.
        paused_by, pause_reason: the operator that paused it, and why; empty if none has.
        resumes_at: UTC time at which its owner's limits let it train again at the earliest; empty
            if they do now, or this is not known.
        joules: energy that it took for its replies in the current run; None if not measured.
        excluded: why the current run, or the last one, does not ask it; empty if it does.
        board_model: its answer to the last model that was rolled out to it; empty for none.
    """

    device: str
    state: ShownState = "idle"
    fraction: float = 0.0
    reason: str = ""
    state_since: str = ""
    before_lost: str = ""
    seen_at: str = ""
    exchange: str = ""
    replied: str = ""
    samples: int = 0
    held_out: int = 0
    ignored: int = 0
    labels: tuple[int, ...] = ()
    class_names: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    channels: tuple[tuple[float, float], ...] = ()
    refuses: tuple[str, ...] = ()
    hardware: str = ""
    site: str = ""
    accelerator: str = ""
    agent: str = ""
    torch: str = ""
    sent: int = 0
    received: int = 0
    cpu: float | None = None
    gpu: float | None = None
    memory: int | None = None
    memory_total: int | None = None
    temperature: float | None = None
    power: float | None = None
    battery: float | None = None
    accepted: int = 0
    rejected: int = 0
    late: int = 0
    loss: float | None = None
    refused_at: str = ""
    refused_reason: str = ""
    rounds: tuple[DeviceRoundView, ...] = ()
    shared_entries: int = 0
    shared_group: int = 0
    shared_bytes: int = 0
    open_bounties: int = 0
    received_mixes: int = 0
    noise_samples: int = 0
    mixture: tuple[float, ...] = ()
    kept_experts: tuple[int, ...] = ()
    accuracy: float | None = None
    accuracy_round: int = 0
    trust: float = 1.0
    standing: Standing = "trusted"
    trust_reason: str = ""
    trust_since: str = ""
    quarantined_by: str = ""
    paused_by: str = ""
    pause_reason: str = ""
    resumes_at: str = ""
    joules: float | None = None
    excluded: str = ""
    board_model: str = ""


class LineView(View):
    """One line of the event pane.

    Attributes:
        mark: symbol of the outcome, such as ✓ ■ ✗ ·
        routine: whether it is an accepted reply, of which every round has many.
    """

    time: str
    mark: str
    text: str
    routine: bool = False


class Snapshot(View):
    """The complete state for watchers.

    Attributes:
        devices: sorted by id.
        rounds: the last rounds of the current run, oldest first.
        early_best: the best rounds before these, by accuracy and by loss.
        previous: the run before it; None for the first one.
        tables: that the method of the current run shows.
        confusions: of the current run's last evaluation, of each place at most one.
        tests: the last accepted test of each device in the current run, sorted by device.
        alerts: those that are not over, oldest first.
        lines: the last events, newest first.
        sent, received: payload bytes of this run, from the coordinator's side.
    """

    fleet: str = ""
    time: str = ""
    run: RunView | None = None
    devices: tuple[DeviceSnapshot, ...] = ()
    rounds: tuple[RoundView, ...] = ()
    early_best: tuple[RoundView, ...] = ()
    previous: PreviousRunView | None = None
    tables: tuple[TableView, ...] = ()
    confusions: tuple[ConfusionView, ...] = ()
    tests: tuple[DeviceTestView, ...] = ()
    alerts: tuple[AlertView, ...] = ()
    lines: tuple[LineView, ...] = ()
    sent: int = 0
    received: int = 0

    @property
    def finished_rounds(self) -> int:
        """Number of the last round that has ended in the current run."""
        return self.rounds[-1].round if self.rounds else 0

    @property
    def bounties(self) -> tuple[BountyView, ...]:
        """The label bounties of the current run, sorted by device and label."""
        return bounties_of(self.tables)

    @property
    def budgets(self) -> tuple[BudgetView, ...]:
        """Of the devices that offered mixes in the current run, sorted by device."""
        return budgets_of(self.tables)
