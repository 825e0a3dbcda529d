"""Label bounties: devices that lack a label get mixes of others, and natural noise for the rest.

Sang, Rabbani, Huang: Balancing Label Imbalance in Federated Environments Using Only Mixup and
Artificially-Labeled Noise, ICPRAI 2024, section 4.

    label_need    a device states which labels it lacks, how many samples N of each it wants, and
                  how many of them, Q = mix_share · N, as mixes
    label_offer   other devices say how many mixes they would give for each bounty (label, Q)
    label_mix     those whose offers are taken, in equal parts, make mixes; the coordinator
                  forwards them to the device that asked, and deletes them
    label_fill    that device keeps them and says how many it has
    fit           is the algorithm's; a device trains on its real samples, the mixes, and natural
                  noise in place of what is missing of N, drawn from a seed in its task

These exchanges precede the first round. They are repeated for devices that joined or whose data
changed, and when the operator opens bounties again; only what is missing is asked for. An answer
weighs the device's real samples only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from edgefed.algorithms.base import (
    Answer,
    DeviceTask,
    DeviceView,
    Exchange,
    Member,
    Question,
    Remark,
    ReplyRole,
    Result,
    Roster,
    State,
    Work,
)
from edgefed.algorithms.completed_samples import completed
from edgefed.algorithms.exchange_part import ExchangePart
from edgefed.algorithms.label_answers import FILL, MIX, NEED, OFFER, ROLES, wrong_rows
from edgefed.algorithms.label_device import (
    kept_mixes,
    make_mixes,
    mix_settings,
    offer,
    state_needs,
    take_in,
)
from edgefed.algorithms.label_merging import (
    merge_mixes,
    merge_needs,
    merge_offers,
    merge_received,
    token_of,
)
from edgefed.algorithms.label_records import LABELS, LabelRecords, SentMixes, missing
from edgefed.algorithms.label_remarks import label_remarks
from edgefed.algorithms.received_mixes import blob_size
from edgefed.config.recipe import LabelsSection, TrainingSection
from edgefed.errors import RecipeError
from edgefed.learn.models import Model
from edgefed.learn.objectives.label_counts import COUNTS, label_counts
from edgefed.learn.types import Job, Samples
from edgefed.seeds import derive
from edgefed.sharing.label_report import Bounty, LabelOrder, LabelReport

NOISE_SEED = "noise_seed"
"""The parameter of a training task that natural noise is drawn from."""


class LabelExchange(ExchangePart):
    """Supplements for missing labels, before training and while training.

    Args:
        settings: the recipe's ``[labels]`` table.
        training: its ``[training]`` table.

    Raises:
        UsageError: ``mix.settings``: the settings contradict each other.
    """

    exchanges: ClassVar[frozenset[str]] = frozenset(ROLES)

    def __init__(self, settings: LabelsSection, training: TrainingSection) -> None:
        mix_settings(settings)
        self.settings = settings
        self.training = training
        self._completed: WeakKeyDictionary[Samples, tuple[Any, Samples]] = WeakKeyDictionary()

    @property
    def _fills(self) -> bool:
        return self.settings.noise != "none"

    # -- the coordinator ------------------------------------------------------------------------

    def needs_simulation(self) -> str:
        """Return what only a simulation has: samples of all devices for every mix."""
        return "samples of all devices (labels.others)" if self.settings.others == "global" else ""

    def check_model(self, model: Model) -> None:
        """Check that a device can lack a label of the model, and that its inputs may be images.

        Raises:
            RecipeError: ``label.unfit``.
        """
        if model.vocabulary is not None:
            raise _unfit("tokens of a text cannot be mixed, nor drawn as noise")
        if len(model.shape) not in (2, 3):
            raise _unfit("its inputs are no images")
        if self.training.loss == "squared_error":
            raise _unfit("with squared error there are none")

    def start(self, state: State, seed: int) -> State:
        """Nobody has been asked."""
        return LabelRecords(derive(seed, LABELS)).kept_in(state)

    def plan(self, state: State, roster: Roster, training: Exchange) -> Exchange | None:
        """Return the next of the four exchanges that has something to do."""
        records, number = LabelRecords.of(state), training.round
        online = {member.device: member for member in roster}
        if records.allocations:
            return self._mix(records, online, training)
        if sent := records.deliverable(online, number):
            return self._fill(sent, online, training)
        if due := records.due(roster, number):
            return self._exchange(NEED, training, [_asked(member) for member in due])
        if batch := records.to_publish(online):
            return self._exchange(OFFER, training, [_published(each, batch) for each in roster])
        return None

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Write down what devices need, offer, made or received."""
        records, known = LabelRecords.of(state), {each.device: each for each in answers}
        ordered = [known[device] for device in sorted(known)]
        merges = {
            NEED: merge_needs,
            OFFER: merge_offers,
            MIX: merge_mixes,
            FILL: merge_received,
        }
        return merges[exchange.name](records, exchange, ordered, self._fills).kept_in(state)

    def add_to_training(self, training: Exchange, state: State) -> Exchange:
        """Return the exchange with each device's seed of natural noise."""
        seed = LabelRecords.of(state).seed
        questions = tuple(
            replace(each, params={**each.params, NOISE_SEED: derive(seed, "noise", each.device)})
            for each in training.questions
        )
        return replace(training, questions=questions)

    def max_reply_bytes(self, exchange: Exchange, model: Model) -> int:
        """Return the bytes of an answer: rows of numbers, for each label or bounty."""
        asked = max((len(q.params.get("bounties", ())) for q in exchange.questions), default=0)
        return 2**16 + 64 * max(asked, model.classes)

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return why an answer's rows are not what was asked for, or nothing."""
        return wrong_rows(exchange, answer, model)

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Say what devices need, and what became of their bounties."""
        if exchange.name not in self.exchanges:
            return ()
        return label_remarks(exchange.name, LabelRecords.of(before), LabelRecords.of(after))

    def label_report(self, state: State) -> LabelReport:
        """Return all bounties and budgets."""
        records = LabelRecords.of(state)
        return LabelReport(records.bounties, records.budgets)

    def with_label_orders(self, state: State, orders: Sequence[LabelOrder]) -> State:
        """Open bounties again, or cancel them."""
        records = LabelRecords.of(state)
        for order in sorted(orders, key=lambda each: each.number):
            if order.number > records.orders:
                records = replace(records.after(order, self._fills), orders=order.number)
        return records.kept_in(state)

    # -- its exchanges --------------------------------------------------------------------------

    def _exchange(self, name: str, training: Exchange, questions: Sequence[Question]) -> Exchange:
        return Exchange(
            name=name,
            round=training.round,
            questions=tuple(questions),
            payloads={},
            wanted=len(questions),
            quorum=0,
            deadline=self.settings.wait,
            preparatory=True,
            reply_roles={role: ReplyRole(None, 0.0) for role in ROLES[name]},
            model=training.model,
        )

    def _mix(
        self, records: LabelRecords, online: Mapping[str, Member], training: Exchange
    ) -> Exchange:
        """Ask for the mixes that were allocated; a device that is gone is not asked."""
        token = token_of(records)
        questions, largest = [], 0
        for provider in sorted({each.provider for each in records.allocations} & set(online)):
            own = [each for each in records.allocations if each.provider == provider]
            receivers = tuple(sorted({each.requester for each in own}))
            member = online[provider]
            for receiver in receivers:
                mixes = sum(each.mixes for each in own if each.requester == receiver)
                largest = max(largest, blob_size(mixes, member.shape, token))
            rows = [[each.requester, each.label, each.mixes] for each in own]
            params = {"mixes": rows, "token": token}
            questions.append(Question(provider, member.samples, params=params, receivers=receivers))
        planned = self._exchange(MIX, training, questions)
        return replace(planned, max_relay_bytes=largest)

    def _fill(
        self, sent: Sequence[SentMixes], online: Mapping[str, Member], training: Exchange
    ) -> Exchange:
        """Send mixes on to the devices that asked for them."""
        questions = []
        for receiver in sorted({each.relay.receiver for each in sent}):
            own = [each for each in sent if each.relay.receiver == receiver]
            rows = [
                [each.relay.sender, each.token, [[k, n] for k, n in each.counts.items()]]
                for each in own
            ]
            relays = tuple(each.relay for each in own)
            samples = online[receiver].samples
            questions.append(Question(receiver, samples, params={"sent": rows}, relays=relays))
        return self._exchange(FILL, training, questions)

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Answer at once: none of the exchanges trains."""
        answers = {NEED: state_needs, OFFER: offer, MIX: make_mixes, FILL: take_in}
        return answers[task.question](task, device, self.settings)

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Never called: ``prepare`` answers."""
        raise NotImplementedError

    def change_job(self, job: Job, task: DeviceTask, device: DeviceView) -> Job:
        """Train on the completed samples."""
        if not device.train.has_labels or NOISE_SEED not in task.params:
            return job
        samples = self._samples(device, task.params[NOISE_SEED])
        if len(samples) == len(device.train):
            return job
        extra = job.extra
        if self.settings.count_supplements and COUNTS in extra:
            extra = {**extra, COUNTS: label_counts(samples, device.model.classes)}
        return replace(job, samples=samples, extra=extra)

    def change_answer(self, answer: Answer, task: DeviceTask, device: DeviceView) -> Answer:
        """Let the answer weigh the device's real samples only."""
        return replace(answer, samples=min(answer.samples, len(device.train)))

    def _samples(self, device: DeviceView, seed: int) -> Samples:
        """Return the completed samples, the same ones for as long as nothing changed."""
        kept = kept_mixes(device, self.settings)
        key = (seed, device.preparation, {name: len(each) for name, each in kept.items()})
        known = self._completed.get(device.train)
        if known is None or known[0] != key:
            known = (key, completed(device, self.settings, kept, seed))
            self._completed[device.train] = known
        return known[1]


# -- questions ------------------------------------------------------------------------------------


def _asked(member: Member) -> Question:
    return Question(member.device, member.samples, params={"data": member.data})


def _published(member: Member, batch: Sequence[Bounty]) -> Question:
    """Return the question that tells a device of the bounties of others."""
    rows = [[b.device, b.label, missing(b)] for b in batch if b.device != member.device]
    return Question(member.device, member.samples, params={"bounties": rows})


def _unfit(why: str) -> RecipeError:
    return RecipeError(
        f"The recipe asks for supplements of missing labels, and {why}.",
        code="label.unfit",
        hint="remove the [labels] table",
    )
