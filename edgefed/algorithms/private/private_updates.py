"""Differential privacy for devices' updates: clipped updates, with Gaussian noise on them.

    central   DP-FedAvg (McMahan, Ramage, Talwar, Zhang: Learning Differentially Private Recurrent
              Language Models, ICLR 2018): devices clip, the coordinator clips again, because it
              trusts none, and adds noise to the sum; all devices have the same weight
    local     each device clips and adds noise before it sends, and records it in its ledger

and, with ``adaptive``, the norm C follows the quantile γ of the updates' norms (Andrew, Thakkar,
McMahan, Ramaswamy: Differentially Private Learning with Adaptive Clipping, NeurIPS 2021):

    C <- C exp(-η (b - γ))        b the noisy fraction of updates that were not longer than C

The inner algorithm trains as usual. With ``central`` its merge sees one answer, the noisy mean, so
further processing, such as a server optimiser's step, costs no more privacy. Noise never derives
from the run's seed. A merge that was interrupted before its commit released nothing; the one that
is committed draws new noise, and only that is ever sent or saved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Result, Work
from edgefed.algorithms.interface.exchange import Exchange, Finished, staleness_factor
from edgefed.algorithms.interface.first_exchange import first_exchange
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.algorithms.interface.wrapped_algorithm import WrappedAlgorithm
from edgefed.algorithms.private.privacy_plan import (
    PrivacyPlan,
    count_deviation,
    multiplier_of,
    privacy_plan,
    sum_multiplier,
)
from edgefed.config.recipes.privacy_section import PrivacySection
from edgefed.errors import RecipeError
from edgefed.events.base.method_tables import MethodTable
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model import Model
from edgefed.sharing.policy import Withheld
from edgefed.sharing.private_sum import PrivateSum, clipped, grid_of, noisy, noisy_count, norm_of
from edgefed.sharing.random_words import RandomWords, operating_system_words
from edgefed.sharing.releases import update_release, update_releases
from edgefed.sharing.update_accounting import Releases, epsilon_of

PRIVACY = "privacy"
"""The state's parameter with the releases so far, the clipping norm and epsilon; on a device, the
group of its private state that counts its releases of this run."""

DELTA = "delta"
CLIP, POPULATION = "clip", "population"
"""Params of a task: the norm to clip to, and of how many devices the cohort was drawn."""

WITHIN, RELEASES = "within", "releases"
"""Metrics of an answer: whether its update was not longer than the norm, and how many noisy updates
the device has released in this run."""

LEAST_CLIP, MOST_CLIP = 1e-6, 1e6

CoordinatorRandomness = Callable[[int, str], RandomWords]
"""Returns the random words of a round, for ``noise``, ``count`` or ``cohort``."""


def from_operating_system(number: int, purpose: str) -> RandomWords:
    """Return words that the operating system draws, independent of the round."""
    del number, purpose
    return operating_system_words


class PrivateUpdates(WrappedAlgorithm):
    """An algorithm that averages updates, made differentially private.

    Args:
        inner: the algorithm, with its parts and personal weights.
        section: the recipe's ``[privacy]`` table; on a device, with its noise multiplier.
        shared_names: returns the names of a model's arrays that devices send.
        randomness: of the coordinator's noise and secret cohorts.
    """

    def __init__(
        self,
        inner: CompleteAlgorithm[Any],
        section: PrivacySection,
        shared_names: Callable[[Model], Iterable[str]],
        randomness: CoordinatorRandomness = from_operating_system,
    ) -> None:
        super().__init__(inner)
        check_combination(inner, section)
        self._section = section
        self._shared_names = shared_names
        self._randomness = randomness

    # -- the coordinator ------------------------------------------------------------------------

    def check_model(self, model: Model) -> None:
        """Check that devices send only arrays that can be clipped and noised.

        Raises:
            RecipeError: ``privacy.statistics``: running statistics are shared; or
                ``privacy.algorithm``: answers hold more than the update.
        """
        super().check_model(model)
        buffers = [name for name in self._shared_names(model) if name in model.buffer_names]
        if buffers:
            raise RecipeError(
                f"Devices would send statistics that are not trained, such as {buffers[0]}, which"
                " noise makes useless.",
                code="privacy.statistics",
                hint="choose a model without batch normalisation, or keep it on the devices:"
                ' personal.preset = "fedbn"',
            )
        planned = first_exchange(self.inner, model)
        _check_only_updates(self.name, () if planned is None else planned.reply_roles)

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Start the algorithm, with nothing released yet."""
        begun = {CLIP: self._section.clip, RELEASES: [], "epsilon": 0.0}
        return _with_privacy(self.inner.start(weights, roster, seed), begun)

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Plan the algorithm's exchange, with the norm in every task, while the budget lasts.

        Raises:
            RecipeError: ``privacy.budget``: another round would exceed it.
        """
        amplified = self._section.population > 0
        if amplified:
            # Seeds have 63 bits
            seed = int(self._randomness(state.round + 1, "cohort")(1)[0] >> np.uint64(1))
        planned = self.inner.plan(state, roster, seed)
        if isinstance(planned, Finished):
            return planned
        _check_only_updates(self.name, planned.reply_roles)
        able = sum(member.samples > 0 for member in roster) if amplified else 0
        self._check_budget(state, planned, able)
        params = {CLIP: float(state.params[PRIVACY][CLIP]), POPULATION: able}
        questions = tuple(
            replace(question, params={**question.params, **params})
            for question in planned.questions
        )
        return replace(planned, questions=questions)

    def view(self, state: State) -> tuple[MethodTable, ...]:
        """Return the algorithm's tables; where cohorts are secret, none that names devices."""
        tables = self.inner.view(state)
        if not self._section.population:
            return tables
        return tuple(table for table in tables if not table.names_devices)

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Merge the noisy mean, or the noisy answers, and record the releases."""
        if self._section.mechanism == "central":
            return self._merged_centrally(state, exchange, answers)
        before = state.params[PRIVACY]
        so_far = max((count for count, _, _ in before[RELEASES]), default=0)
        counted = _CountedAnswers(answers, so_far)
        merged = self.inner.merge(state, exchange, counted)
        most = max(counted.most, so_far)
        # A device may say any number, but was asked no more often than that.
        limit = max(exchange.index + 1, exchange.round)
        return self._noted(merged, before[CLIP], [[min(most, limit), 1, 1]] if most else [])

    def _merged_centrally(
        self, state: State, exchange: Exchange, answers: Iterable[Answer]
    ) -> State:
        section, before = self._plan().section, state.params[PRIVACY]
        grid = grid_of(before[CLIP], sum_multiplier(section, self.rounds))
        total: PrivateSum | None = None
        within = 0
        factors = {
            question.device: staleness_factor(question.staleness) for question in exchange.questions
        }
        for answer in answers:
            delta = scaled(answer.groups[DELTA].arrays, factors[answer.device])
            total = total or PrivateSum(delta, grid)
            total.add(delta)
            # Whatever number a device sends, it counts as one or as none
            within += answer.metrics.get(WITHIN, 0.0) >= 0.5
        if total is None:
            return _with_privacy(self.inner.merge(state, exchange, ()), before)
        number = exchange.round
        mean = total.noisy_mean(self._randomness(number, "noise"))
        answer = Answer(exchange.questions[0].device, 1, {DELTA: Group(mean)})
        # The updates are scaled by their staleness already
        in_time = tuple(replace(question, staleness=0) for question in exchange.questions)
        merged = self.inner.merge(state, replace(exchange, questions=in_time), (answer,))
        clip = before[CLIP]
        if section.adaptive:
            deviation = count_deviation(section, self.rounds)
            count = noisy_count(within, deviation, self._randomness(number, "count"))
            clip = _next_clip(clip, count / total.count, section)
        return self._noted(merged, clip, _with_release(before[RELEASES], exchange))

    def _noted(self, merged: State, clip: float, releases: list[list[int]]) -> State:
        """Return a state with its releases and their total cost."""
        noted = {CLIP: clip, RELEASES: releases, "epsilon": self._epsilon(releases)}
        return _with_privacy(merged, noted)

    def _epsilon(self, releases: list[list[int]]) -> float:
        kinds = [
            Releases(count, self._plan().multiplier, sampled, population)
            for count, sampled, population in releases
        ]
        return epsilon_of(kinds, self._section.delta)

    def _check_budget(self, state: State, planned: Exchange, able: int) -> None:
        """Check that the budget allows one more round."""
        budget = self._section.epsilon
        if budget is None:
            return
        so_far = state.params[PRIVACY][RELEASES]
        cost = self._epsilon(_added(so_far, len(planned.questions) if able else 1, able or 1))
        if cost > budget:
            raise RecipeError(
                f"Round {planned.round} would cost epsilon {cost:.4g} in all; the recipe's budget"
                f" is {budget:.4g}, of which {state.params[PRIVACY]['epsilon']:.4g} is spent.",
                code="privacy.budget",
                hint="the model of the last round is kept; plan for repeated rounds and for the"
                " devices that are there (privacy.population)",
            )

    def _plan(self) -> PrivacyPlan:
        return privacy_plan(self._section, self.rounds)

    def round_metrics(self, state: State) -> Mapping[str, float]:
        """Return the algorithm's metrics, epsilon so far, and an adaptive norm."""
        privacy = state.params[PRIVACY]
        own = {"epsilon": float(privacy["epsilon"])}
        if self._section.adaptive:
            own["clip"] = float(privacy[CLIP])
        return {**self.inner.round_metrics(state), **own}

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Prepare as the algorithm does, if the owner allows the release.

        Raises:
            Withheld: it would cost more than the owner allows.
        """
        if self._section.mechanism == "local":
            _check_allowed(device, multiplier_of(self._section))
        return self.inner.prepare(task, device)

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Answer with a clipped update, and with ``local`` a noisy one.

        Losses and other measures of the training are not sent: no noise covers them.
        """
        answer = self.inner.answer(task, device, result)
        _check_only_updates(self.name, answer.groups)
        if self._section.mechanism == "local":
            return self._noisy_answer(answer, task, device)
        delta, clip = answer.groups[DELTA], float(task.params[CLIP])
        arrays = clipped(delta.arrays, clip)
        groups = {**answer.groups, DELTA: Group(arrays, delta.codec)}
        within = {WITHIN: float(norm_of(delta.arrays) <= clip)} if self._section.adaptive else {}
        return replace(answer, groups=groups, metrics=within)

    def _noisy_answer(self, answer: Answer, task: DeviceTask, device: DeviceView) -> Answer:
        section, delta = self._section, answer.groups[DELTA]
        multiplier = multiplier_of(section)
        arrays = noisy(delta.arrays, grid_of(section.clip, multiplier), device.words())
        earlier = device.private.get(PRIVACY, {}).get(RELEASES, np.zeros(1, np.int64))
        count = int(earlier[0]) + 1
        entry = update_release(task.round, answer.samples, section.clip, multiplier, section.delta)
        return replace(
            answer,
            groups={**answer.groups, DELTA: Group(arrays, delta.codec)},
            metrics={RELEASES: float(count)},
            private={**answer.private, PRIVACY: {RELEASES: np.array([count], np.int64)}},
            ledger=(*answer.ledger, entry),
        )


class _CountedAnswers:
    """Answers of which the largest number of releases of a device is noted.

    Args:
        answers: each with its number, or without: a masked sum counts as one more of each device.
        so_far: the largest number before.
    """

    def __init__(self, answers: Iterable[Answer], so_far: int) -> None:
        self._answers = answers
        self._so_far = so_far
        self.most = 0

    def __iter__(self) -> Iterator[Answer]:
        for answer in self._answers:
            releases = int(answer.metrics.get(RELEASES, self._so_far + 1))
            self.most = max(self.most, releases, 1)
            yield answer


def check_combination(algorithm: CompleteAlgorithm[Any], section: PrivacySection) -> None:
    """Check that devices disclose nothing with an algorithm but the noised update.

    Raises:
        RecipeError: ``privacy.algorithm``.
    """
    reason = ""
    if not algorithm.private_updates:
        reason = "does not average one update of each device"
    elif algorithm.parts():
        reason = "also makes devices release data, such as averages or mixes of samples"
    elif section.mechanism == "central" and getattr(algorithm.settings, "divergence", False):
        reason = "measures the divergence of updates without noise (algorithm.divergence)"
    if reason:
        raise RecipeError(
            f"The [privacy] table does not cover this recipe: {algorithm.name} {reason}.",
            code="privacy.algorithm",
            hint="choose fedavg, fedprox, fedopt, fedlc, fedrs or localmix without [labels] and"
            " divergence, or remove the [privacy] table",
        )


def _check_only_updates(name: str, roles: Iterable[str]) -> None:
    """Check that an answer holds the update and nothing else, as an algorithm declared.

    Raises:
        RecipeError: ``privacy.algorithm``.
    """
    others = sorted(set(roles) - {DELTA})
    if others:
        raise RecipeError(
            f"The [privacy] table does not cover this recipe: answers of {name} also hold"
            f" {others[0]}.",
            code="privacy.algorithm",
            hint="its author sets private_updates = False",
        )


def scaled(arrays: Tensors, factor: float) -> Tensors:
    """Return arrays multiplied by a factor of at most 1, which lengthens no update."""
    if factor == 1.0:
        return arrays
    return {name: (array * factor).astype(array.dtype) for name, array in arrays.items()}


def _check_allowed(device: DeviceView, multiplier: float) -> None:
    """Check that one more noisy update stays within the owner's limit.

    Raises:
        Withheld: it does not.
    """
    limit = device.policy.update_epsilon
    if limit is None:
        return
    kinds = [*update_releases(device.ledger), Releases(1, multiplier)]
    cost = epsilon_of(kinds, device.policy.update_delta)
    if cost > limit:
        raise Withheld(
            f"its owner allows updates epsilon {limit:.4g} over all runs (update_epsilon), and this"
            f" one would make it {cost:.4g}"
        )


def _next_clip(clip: float, fraction: float, section: PrivacySection) -> float:
    # Bounded, so that exp does not overflow
    exponent = max(-50.0, min(50.0, -section.clip_rate * (fraction - section.quantile)))
    return max(LEAST_CLIP, min(MOST_CLIP, clip * math.exp(exponent)))


def _with_release(releases: list[list[int]], exchange: Exchange) -> list[list[int]]:
    """Return the releases with that of an exchange, as its tasks say how it was drawn."""
    population = int(exchange.questions[0].params.get(POPULATION, 0))
    return _added(releases, len(exchange.questions) if population else 1, population or 1)


def _added(releases: list[list[int]], sampled: int, population: int) -> list[list[int]]:
    """Return releases, each a count with the sizes of cohort and population, with one more."""
    counts = {(sampled, population): 1}
    for count, *sizes in releases:
        key = (sizes[0], sizes[1])
        counts[key] = counts.get(key, 0) + count
    return [[count, *key] for key, count in sorted(counts.items())]


def _with_privacy(state: State, noted: Mapping[str, Any]) -> State:
    return replace(state, params={**state.params, PRIVACY: dict(noted)})
