"""Secure aggregation: the coordinator sees the sum of a round's updates, and none of them.

Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth: Practical Secure
Aggregation for Privacy-Preserving Machine Learning, CCS 2017. Device u adds to its weighted update
x_u, in whole numbers modulo 2^64, its own mask and one for each other device v of the cohort:

    y_u = x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)

The masks s_uv, which u and v agree on, cancel in the sum. b_u and the key of the s_uv are shared
among the cohort (Shamir), so that t devices together uncover b_u of the devices whose y_u arrived,
and the key of those that were lost; never both of one device.

    secure_keys     devices advertise public keys
    secure_shares   devices send each other encrypted shares
    fit             is the algorithm's; its answers are y_u
    secure_lists    devices sign the list of summed y_u, where they have certificates
    secure_unmask   devices send the shares that uncover the sum

A loss of devices below the threshold aborts the round, which restarts with new keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgefed.algorithms.interface.answer import Answer, Remark
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import (
    DeviceTask,
    DeviceView,
    LowestLossJob,
    Result,
    Work,
    WorkSequence,
)
from edgefed.algorithms.interface.exchange import Exchange, Finished, Payload, Question, ReplyRole
from edgefed.algorithms.interface.first_exchange import first_exchange
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.algorithms.interface.wrapped_algorithm import WrappedAlgorithm
from edgefed.algorithms.secure.secure_answers import wrong_answer
from edgefed.algorithms.secure.secure_compatibility import check_roles
from edgefed.algorithms.secure.secure_device_half import (
    advertise,
    check_masking,
    grid_of,
    mask,
    share,
    sign_list,
    uncover,
    wire_bytes,
    with_own_params,
)
from edgefed.algorithms.secure.secure_merging import (
    equivalent_answers,
    equivalent_exchange,
    merge_keys,
    merge_lists,
    merge_masked,
    merge_shares,
    open_session,
    uncovered,
    weights_of,
)
from edgefed.algorithms.secure.secure_phases import (
    ADVERTISED,
    COMMITMENTS,
    FIT,
    FORM,
    KEYS,
    LISTS,
    MASKED,
    RELAY_BYTES,
    SHARES,
    SIGNED,
    UNCOVERED,
    UNMASK,
    colluders_of,
    threshold_of,
)
from edgefed.algorithms.secure.secure_questions import (
    awaited_roster,
    check_sizes,
    commitments_for,
    masking_params,
    phase_detail,
    sent_to,
    session_params,
)
from edgefed.algorithms.secure.secure_records import (
    KEYS_GROUP,
    LISTS_GROUP,
    SecureRecords,
    Session,
    without_groups,
)
from edgefed.config.recipes.secure_aggregation_section import SecureAggregationSection
from edgefed.learn.aggregation.exact_mean import grid_bits
from edgefed.learn.aggregation.summed_grid import SummedGrid
from edgefed.learn.base.types import Job
from edgefed.learn.modeling.model import Model
from edgefed.sharing.policy import Withheld
from edgefed.wire.tensors import TensorSpec

OWN = frozenset({KEYS, SHARES, LISTS, UNMASK})
"""The exchanges that the wrapped algorithm does not know of."""

MAX_REPLY_BYTES = 2**20
"""Most bytes of an answer to one of them."""


class SecureAggregation(WrappedAlgorithm):
    """An algorithm that averages updates, of which the coordinator sees only the sum.

    Args:
        inner: trains and averages.
        section: the recipe's ``[secure_aggregation]`` table.
    """

    def __init__(self, inner: CompleteAlgorithm[Any], section: SecureAggregationSection) -> None:
        super().__init__(inner)
        self._section = section

    @property
    def _uniform(self) -> bool:
        """Whether every device weighs the same."""
        return bool(self.settings.weighting == "uniform")

    # -- the coordinator ------------------------------------------------------------------------

    def check_model(self, model: Model) -> None:
        """Check that answers to the training hold the update alone, since nothing else is summed.

        Raises:
            RecipeError: ``secure.unfit``.
        """
        super().check_model(model)
        planned = first_exchange(self.inner, model)
        if planned is not None and planned.name == FIT:
            check_roles(self.name, planned.reply_roles)

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Plan the algorithm's exchange, and those of keys and shares around its training."""
        records = SecureRecords.of(state)
        session = records.session
        here = roster if session is None else awaited_roster(roster, session, session.awaited)
        planned = self.inner.plan(state, here, seed)
        if isinstance(planned, Finished) or planned.name != FIT:
            return planned
        if session is None or session.round != planned.round:
            return self._keys(planned, records)
        following = {
            "shares": self._shares,
            "fit": self._fit,
            "lists": self._lists,
            "unmask": self._unmask,
        }
        return following[session.next](planned, state, records, session)

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Merge exchanges of secure aggregation; the algorithm merges the uncovered sum.

        Raises:
            UnmergeableError: the sum cannot be uncovered.
        """
        if exchange.name == KEYS:
            return merge_keys(state, exchange, answers)
        if exchange.name == SHARES:
            return merge_shares(state, answers)
        if exchange.name == FIT:
            return merge_masked(state, exchange, self._grid(state), answers)
        if exchange.name == LISTS:
            return merge_lists(state, answers)
        if exchange.name == UNMASK:
            return self._merge_sum(state, exchange, answers)
        return self.inner.merge(state, exchange, answers)

    def _merge_sum(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        records, session = open_session(state)
        grid = self._grid(state)
        contents = uncovered(state, grid, answers, self._uniform)
        weights = weights_of(contents, self._uniform)
        asked = equivalent_exchange(exchange, weights, session.total)
        parts = equivalent_answers(contents, grid, weights)
        merged = self.inner.merge(without_groups(state), asked, parts)
        summary = (
            f"secure aggregation: summed the updates of {len(session.masked)} of"
            f" {len(session.limits)} devices, the threshold is {session.threshold}"
        )
        done = replace(
            records, attempt=0, without=(), session=None, loss=contents.loss, summary=summary
        )
        return done.kept_in(merged)

    def begin_anew(self, state: State, exchange: Exchange, causes: Collection[str] = ()) -> State:
        """Return the state without the session: its keys are not used again."""
        state = self.inner.begin_anew(state, exchange, causes)
        if exchange.name not in OWN | {FIT}:
            return state
        records = SecureRecords.of(state)
        if exchange.name == KEYS:  # which asked for the keys of the next one
            records = replace(records, number=records.number + 1)
        # The last attempt ends the run; if it is resumed, it has all of them again.
        attempt = records.attempt + 1 if records.attempt < self.rounds.retries else 0
        return records.begun_anew(tuple(causes), attempt).kept_in(without_groups(state))

    def restored(self, state: State, number: int) -> State:
        """Return the state without the session: devices make keys for later sessions only."""
        records = replace(SecureRecords.of(state), number=number, without=())
        begun = records.begun_anew((), 0).kept_in(without_groups(state))
        return self.inner.restored(begun, number)

    def max_reply_bytes(self, exchange: Exchange, model: Model) -> int:
        """Return the bytes that an answer may take."""
        if exchange.name in OWN:
            return MAX_REPLY_BYTES
        return self.inner.max_reply_bytes(exchange, model)

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return why an answer does not fit its question, or nothing."""
        if exchange.name in OWN | {FIT}:
            return wrong_answer(exchange, answer)
        return self.inner.reject_reason(exchange, answer, model)

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Report how many updates were summed."""
        remarks = self.inner.remarks(before, exchange, after)
        if exchange.name != UNMASK:
            return remarks
        return (*remarks, Remark(SecureRecords.of(after).summary))

    def round_metrics(self, state: State) -> Mapping[str, float]:
        """Return the algorithm's metrics, and the mean loss of all devices' training."""
        loss = SecureRecords.of(state).loss
        own = {} if loss is None else {"train_loss": loss}
        return {**self.inner.round_metrics(state), **own}

    # -- its exchanges --------------------------------------------------------------------------

    def _keys(self, planned: Exchange, records: SecureRecords) -> Exchange:
        """Ask the devices that were drawn for the round for their keys."""
        drawn = [
            question for question in planned.questions if question.device not in records.without
        ]
        threshold = threshold_of(self._section, len(drawn))
        check_sizes(len(drawn), threshold, colluders_of(self._section, len(drawn)), planned)
        params = {"form": FORM, "number": records.number + 1, "threshold": threshold}
        questions = [
            Question(question.device, question.samples, params=params) for question in drawn
        ]
        exchange = self._exchange(KEYS, ADVERTISED, planned, records, questions)
        return replace(exchange, quorum=max(threshold, planned.quorum), discarded=records.relays)

    def _shares(
        self, planned: Exchange, state: State, records: SecureRecords, session: Session
    ) -> Exchange:
        """Ask those that advertised keys to share their secrets."""
        params = session_params(session, devices=list(session.keyed))
        questions = [
            Question(
                question.device,
                question.samples,
                {"keys": KEYS_GROUP},
                params,
                tuple(name for name in session.keyed if name != question.device),
            )
            for question in planned.questions
        ]
        exchange = self._exchange(SHARES, COMMITMENTS, planned, records, questions)
        payloads = {KEYS_GROUP: Payload(dict(state.groups[KEYS_GROUP]), "fp32")}
        return replace(
            exchange,
            payloads=payloads,
            quorum=session.quorum,
            max_relay_bytes=RELAY_BYTES,
        )

    def _fit(
        self, planned: Exchange, state: State, records: SecureRecords, session: Session
    ) -> Exchange:
        """Ask for masked updates, and deliver the shares."""
        grid = self._grid(state)
        params = masking_params(planned.questions, session, grid.bits)
        questions = tuple(
            replace(
                question,
                params=params,
                relays=(*question.relays, *sent_to(question.device, records)),
            )
            for question in planned.questions
        )
        role = ReplyRole({MASKED: TensorSpec("uint8", (wire_bytes(grid),))}, 0.0)
        return replace(
            planned,
            questions=questions,
            quorum=session.quorum,
            reply_roles={MASKED: role},
            detail=phase_detail(FIT, session.signed),
            attempt=records.attempt,
        )

    def _lists(
        self, planned: Exchange, state: State, records: SecureRecords, session: Session
    ) -> Exchange:
        """Ask those whose update came to sign whose updates are summed."""
        del state
        params = session_params(session, devices=list(session.masked))
        questions = [
            Question(question.device, question.samples, params=params)
            for question in planned.questions
        ]
        exchange = self._exchange(LISTS, SIGNED, planned, records, questions)
        # Training is over, so nobody needs the shares on their way any more
        return replace(exchange, quorum=session.threshold, discarded=records.relays)

    def _unmask(
        self, planned: Exchange, state: State, records: SecureRecords, session: Session
    ) -> Exchange:
        """Ask those whose update came to uncover the sum."""
        params = session_params(session, survivors=list(session.masked), lost=list(session.lost))
        blobs: dict[str, str] = {}
        payloads: dict[str, Payload] = {}
        if session.signed:
            params["signers"] = list(session.listed)
            blobs["lists"] = LISTS_GROUP
            payloads[LISTS_GROUP] = Payload(dict(state.groups[LISTS_GROUP]), "fp32")
        questions = [
            Question(
                question.device,
                question.samples,
                blobs,
                {**params, "commitments": commitments_for(state, session, question.device)},
            )
            for question in planned.questions
        ]
        exchange = self._exchange(UNMASK, UNCOVERED, planned, records, questions)
        discarded = records.relays
        return replace(exchange, payloads=payloads, quorum=session.threshold, discarded=discarded)

    def _exchange(
        self,
        name: str,
        role: str,
        planned: Exchange,
        records: SecureRecords,
        questions: Sequence[Question],
    ) -> Exchange:
        """Return an exchange that all its devices have to answer, within ``wait``."""
        is_signed = records.session is not None and records.session.signed
        return Exchange(
            name=name,
            round=planned.round,
            questions=tuple(questions),
            payloads={},
            wanted=len(questions),
            quorum=1,
            deadline=self._section.wait,
            preparatory=True,
            reply_roles={role: ReplyRole(None, 0.0)},
            model=planned.model,
            detail=phase_detail(name, is_signed),
            attempt=records.attempt,
        )

    def _grid(self, state: State) -> SummedGrid:
        """Return the grid of the round's sum: that of the plain merge, unless it is coarser."""
        _, session = open_session(state)
        bits = grid_bits(session.total)
        wanted = min(self._section.grid_bits or bits, bits)
        return grid_of(state.groups["weights"], session.total, wanted)

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Answer about keys and shares at once; train if there is a session."""
        steps = {KEYS: advertise, SHARES: share, LISTS: sign_list, UNMASK: uncover}
        if task.question in steps:
            return steps[task.question](task, device)
        if task.question == FIT:
            check_masking(task, device)
            return self.inner.prepare(with_own_params(task), device)
        work = self.inner.prepare(task, device)
        if isinstance(work, (Job, LowestLossJob, WorkSequence)):
            raise Withheld(f"it trains for {FIT} tasks only, whose updates it masks")
        return work

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Answer with the update masked, and nothing else that depends on the samples."""
        if task.question != FIT:
            return self.inner.answer(task, device, result)
        answer = self.inner.answer(with_own_params(task), device, result)
        return mask(task, device, answer, self._uniform)


# -- questions ------------------------------------------------------------------------------------
