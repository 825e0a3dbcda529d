"""Label bounties: devices that lack a label get mixes of others, and natural noise for the rest.

Sang, Rabbani, Huang: Balancing Label Imbalance in Federated Environments Using Only Mixup and
Artificially-Labeled Noise, ICPRAI 2024, section 4.

    label_need    a device states which labels it lacks, how many samples N of each it needs, and
                  how many of them, Q = mix_share · N, as mixes
    label_offer   other devices offer a number of mixes for each bounty (label, Q)
    label_mix     devices whose offers are taken, in equal parts, make mixes; the coordinator
                  forwards them to the requesting device, and deletes them
    label_fill    that device keeps them and states how many it has
    fit           is the algorithm's; a device trains on its real samples, the mixes, and natural
                  noise for the rest of N, drawn from a seed in its task

These exchanges precede the first round. They are repeated for devices that joined or whose data
changed, and when the operator opens bounties again; only missing mixes are requested. An answer
weighs the device's real samples only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from edgefed.algorithms.bounties.bounty_allocation import (
    merge_mixes,
    merge_needs,
    merge_offers,
    merge_received,
    token_of,
)
from edgefed.algorithms.bounties.bounty_answers import FILL, MIX, NEED, OFFER, ROLES, wrong_rows
from edgefed.algorithms.bounties.bounty_device_half import (
    kept_mixes,
    make_mixes,
    offer,
    state_needs,
    take_in,
)
from edgefed.algorithms.bounties.bounty_records import LABELS, BountyRecords, SentMixes, missing
from edgefed.algorithms.bounties.bounty_remarks import bounty_remarks
from edgefed.algorithms.bounties.completed_samples import check_size, completed
from edgefed.algorithms.bounties.received_mixes import blob_size, fingerprint
from edgefed.algorithms.interface.answer import Answer, Remark
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Result, Work
from edgefed.algorithms.interface.exchange import Exchange, Question, ReplyRole
from edgefed.algorithms.interface.exchange_part import ExchangePart
from edgefed.algorithms.interface.member import Member, Roster
from edgefed.config.recipes.recipe import LabelsSection, ModelSection
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.errors import RecipeError
from edgefed.events.base.bounty_tables import bounty_view
from edgefed.events.base.method_tables import MethodTable
from edgefed.learn.base.types import Job, Samples
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.label_counts import COUNTS, label_counts
from edgefed.natural_noise.shapes import noise_samples
from edgefed.seeds import derive
from edgefed.sharing.bounty_report import Bounty, BountyOrder

MAX_DELIVERED = 64
MAX_ROWS = 8192
"""Most blobs of mixes that one task delivers, and labels that it tells of."""

NOISE_SEED = "noise_seed"
"""The parameter of a training task that natural noise is drawn from."""


class BountyExchange(ExchangePart):
    """Supplements for missing labels, before training and while training.

    Args:
        settings: the recipe's ``[labels]`` table.
        training: its ``[training]`` table.
        columns: those without which the algorithm cannot train.

    Raises:
        RecipeError: ``label.unfit``: there are such columns, which supplements do not have.
    """

    exchanges: ClassVar[frozenset[str]] = frozenset(ROLES)
    takes_user_loss = True

    def __init__(
        self, settings: LabelsSection, training: TrainingSection, columns: tuple[str, ...] = ()
    ) -> None:
        self.settings = settings
        self.training = training
        if columns:
            raise _unfit(f"supplements have no column '{columns[0]}'")
        self._completed: WeakKeyDictionary[Samples, tuple[Any, Samples]] = WeakKeyDictionary()

    @property
    def _fills(self) -> bool:
        return self.settings.noise != "none"

    # -- the coordinator ------------------------------------------------------------------------

    def needs_simulation(self) -> str:
        """Return the requirement of a simulation: samples of all devices for every mix."""
        return "samples of all devices (labels.others)" if self.settings.others == "global" else ""

    def check_recipe(self, section: ModelSection | None) -> None:
        """Check that there are labels.

        Raises:
            RecipeError: ``label.unfit``.
        """
        if self.training.loss == "squared_error":
            raise _unfit("with squared error there are none")

    def check_model(self, model: Model) -> None:
        """Check that a device can lack a label of the model, and that its inputs may be images.

        Raises:
            RecipeError: ``label.unfit``.
            DataError: ``label.too_large``: supplements of ``count`` samples; or ``noise.shape``.
        """
        if model.vocabulary is not None:
            raise _unfit("tokens of a text cannot be mixed, nor drawn as noise")
        if len(model.shape) not in (2, 3):
            raise _unfit("its inputs are no images")
        self.check_recipe(model.section)
        if self.settings.noise != "none":
            noise_samples(0, 0, model.shape, kind=self.settings.noise)
        # All labels may be rare; not all can be missing.
        most = model.classes - (self.settings.fewer_than == 1)
        check_size(self.settings.count * most, model.shape)

    def start(self, state: State, seed: int) -> State:
        """Start with records in which no device has been asked."""
        return BountyRecords(derive(seed, LABELS)).kept_in(state)

    def plan(self, state: State, roster: Roster, training: Exchange) -> Exchange | None:
        """Return the next of the four exchanges that has something to do."""
        records = BountyRecords.of(state)
        own = self._next(records, roster, training)
        return own and replace(own, discarded=records.given_up)

    def _next(self, records: BountyRecords, roster: Roster, training: Exchange) -> Exchange | None:
        online, number = {member.device: member for member in roster}, training.round
        if records.allocations:
            return self._mix(records, online, training)
        if sent := records.deliverable(online, number):
            return self._fill(sent, online, training)
        if due := records.due(roster, number):
            return self._exchange(NEED, training, [_asked(member) for member in due])
        if batch := records.to_publish(online):
            return self._exchange(OFFER, training, [_published(member, batch) for member in roster])
        return None

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Record the devices' needs, offers, sent mixes or received mixes."""
        records = replace(BountyRecords.of(state), given_up=())  # its exchange deleted them
        known = {answer.device: answer for answer in answers}
        ordered = [known[device] for device in sorted(known)]
        merges = {
            NEED: merge_needs,
            OFFER: merge_offers,
            MIX: merge_mixes,
            FILL: merge_received,
        }
        return merges[exchange.name](records, exchange, ordered, self._fills).kept_in(state)

    def add_to_training(self, training: Exchange, state: State) -> Exchange:
        """Return the exchange with each device's seed of noise; delete blobs that were given up."""
        records = BountyRecords.of(state)
        seed, discarded = records.seed, (*training.discarded, *records.given_up)
        questions = tuple(
            replace(
                question,
                params={**question.params, NOISE_SEED: derive(seed, "noise", question.device)},
            )
            for question in training.questions
        )
        return replace(training, questions=questions, discarded=discarded)

    def max_reply_bytes(self, exchange: Exchange, model: Model) -> int:
        """Return the bytes of an answer: rows of numbers, for each label or bounty."""
        asked = max((len(q.params.get("bounties", ())) for q in exchange.questions), default=0)
        return 2**16 + 64 * max(asked, model.classes)

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return why an answer's rows do not fit the exchange, or nothing."""
        return wrong_rows(exchange, answer, model, self.settings)

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Report the devices' needs, and the state of their bounties."""
        if exchange.name not in self.exchanges:
            return ()
        return bounty_remarks(exchange.name, BountyRecords.of(before), BountyRecords.of(after))

    def view(self, state: State) -> tuple[MethodTable, ...]:
        """Return all bounties and budgets."""
        records = BountyRecords.of(state)
        return bounty_view(records.bounties, records.budgets)

    def with_bounty_orders(self, state: State, orders: Sequence[BountyOrder]) -> State:
        """Open bounties again, or cancel them."""
        records = BountyRecords.of(state)
        for order in sorted(orders, key=lambda order: order.number):
            # Each order counts once, although a restart may bring it again
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
        self, records: BountyRecords, online: Mapping[str, Member], training: Exchange
    ) -> Exchange:
        """Ask for the mixes that were allocated; a device that is gone is not asked."""
        token = token_of(records)
        questions, largest = [], 0
        for provider in sorted(
            {allocation.provider for allocation in records.allocations} & set(online)
        ):
            own = [
                allocation for allocation in records.allocations if allocation.provider == provider
            ]
            receivers = tuple(sorted({allocation.requester for allocation in own}))
            member = online[provider]
            for receiver in receivers:
                mixes = sum(
                    allocation.mixes for allocation in own if allocation.requester == receiver
                )
                largest = max(largest, blob_size(mixes, member.shape, token))
            rows = [
                [allocation.requester, allocation.label, allocation.mixes] for allocation in own
            ]
            params = {"mixes": rows, "token": token}
            questions.append(Question(provider, member.samples, params=params, receivers=receivers))
        planned = self._exchange(MIX, training, questions)
        return replace(planned, max_relay_bytes=largest)

    def _fill(
        self, sent: Sequence[SentMixes], online: Mapping[str, Member], training: Exchange
    ) -> Exchange:
        """Send mixes on to the devices that asked for them; the rest goes with the next tasks."""
        questions = []
        for receiver in sorted({mixes.relay.receiver for mixes in sent}):
            own = _of_one_task([mixes for mixes in sent if mixes.relay.receiver == receiver])
            rows = [
                [mixes.relay.sender, mixes.token, [[k, n] for k, n in mixes.counts.items()]]
                for mixes in own
            ]
            relays = tuple(mixes.relay for mixes in own)
            samples = online[receiver].samples
            questions.append(Question(receiver, samples, params={"sent": rows}, relays=relays))
        return self._exchange(FILL, training, questions)

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Answer at once: none of the exchanges trains."""
        answers = {NEED: state_needs, OFFER: offer, MIX: make_mixes, FILL: take_in}
        return answers[task.question](task, device, self.settings)

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Refuse: ``prepare`` answers every task of these exchanges, so there is no result."""
        raise AssertionError("prepare answers at once")

    def change_job(self, job: Job, task: DeviceTask, device: DeviceView) -> Job:
        """Train on the completed samples."""
        if not device.train.has_labels or NOISE_SEED not in task.params:
            return job
        samples = self._samples(device, task.params[NOISE_SEED])
        if samples is device.train:
            return job
        extra = job.extra
        if self.settings.count_supplements and COUNTS in extra:
            extra = {**extra, COUNTS: label_counts(samples, device.model.classes)}
        return replace(job, samples=samples, extra=extra)

    def change_answer(self, answer: Answer, task: DeviceTask, device: DeviceView) -> Answer:
        """Set the answer's weight to the device's real samples only."""
        return replace(answer, samples=min(answer.samples, len(device.train)))

    def _samples(self, device: DeviceView, seed: int) -> Samples:
        """Return the completed samples, the same ones for as long as nothing changed."""
        kept = kept_mixes(device, self.settings)
        key = (seed, device.model.classes, device.preparation, fingerprint(kept))
        known = self._completed.get(device.train)
        if known is not None and known[0] == key:
            return known[1]
        samples = completed(device, self.settings, kept, seed)
        if samples is not device.train:  # which would keep itself in memory
            self._completed[device.train] = (key, samples)
        return samples


# -- questions ------------------------------------------------------------------------------------


def _asked(member: Member) -> Question:
    return Question(member.device, member.samples, params={"data": member.data})


def _published(member: Member, batch: Sequence[Bounty]) -> Question:
    """Return the question that tells a device of the bounties of others."""
    rows = [[b.device, b.label, missing(b)] for b in batch if b.device != member.device]
    return Question(member.device, member.samples, params={"bounties": rows})


def _of_one_task(sent: Sequence[SentMixes]) -> Sequence[SentMixes]:
    """Return the first ones, as many as a task may deliver and a message may tell of."""
    labels = accumulate(len(mixes.counts) for mixes in sent)
    fitting = sum(number <= MAX_ROWS for number in labels)
    # One at least, since a blob with more labels than that would never be sent
    return sent[: max(1, min(MAX_DELIVERED, fitting))]


def _unfit(why: str) -> RecipeError:
    return RecipeError(
        f"The recipe asks for supplements of missing labels, and {why}.",
        code="label.unfit",
        hint="remove the [labels] table",
    )
