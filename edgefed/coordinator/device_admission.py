"""The devices of a fleet whose data fit the run; the others are excluded and reported once."""

from __future__ import annotations

from collections.abc import Callable

from edgefed.algorithms.base import Member, Roster
from edgefed.clock import Clock
from edgefed.config.recipe import Recipe
from edgefed.coordinator.compatibility import DataSpec, Misfit, check_compatibility, misfit
from edgefed.coordinator.fleet import Fleet
from edgefed.data.types import Dataset
from edgefed.errors import DataError, TimeLimitError

QUARANTINED = "it is quarantined"
"""Why a device does not take part; ``edgefed device release`` ends it."""


class Admission:
    """Which devices take part in a run.

    Args:
        fleet: all devices that are there.
        recipe: the run's.
        spec: what the run's data look like.
        warn: told of each device that is left out, again when its data change.
        clock: for how long to wait.
        quarantined: whether a device is left out until an operator releases it.
    """

    def __init__(
        self,
        fleet: Fleet,
        recipe: Recipe,
        spec: DataSpec,
        warn: Callable[[str], None],
        clock: Clock,
        quarantined: Callable[[str], bool] = lambda device: False,
    ) -> None:
        self.spec = spec
        self._quarantined = quarantined
        self._fleet = fleet
        self._recipe = recipe
        self._warn = warn
        self._clock = clock
        self._seen: dict[str, tuple[Member, str]] = {}

    def roster(self) -> Roster:
        """Return the devices that are there and fit, sorted by id."""
        return self._fitting(self._fleet.roster())

    def misfits(self) -> tuple[Misfit, ...]:
        """Return the devices that are there and do not fit."""
        reasons = ((m.device, self._reason(m)) for m in self._fleet.roster())
        return tuple(Misfit(device, reason) for device, reason in reasons if reason)

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        """Wait until so many that fit are there, or time is up, or ``stop``; return who is."""
        until = self._clock.monotonic() + timeout
        asked = devices
        while True:
            left = max(0.0, until - self._clock.monotonic())
            there = [m for m in self._fleet.wait_for(asked, left, stop) if m.samples]
            able = self._fitting(tuple(there))
            if len(able) >= devices or len(there) < asked or stop():
                return able
            asked = devices + len(there) - len(able)

    def _fitting(self, roster: Roster) -> Roster:
        return tuple(member for member in roster if not self._reason(member))

    def _reason(self, member: Member) -> str:
        """Return why a device does not fit, or nothing; one without samples is never asked."""
        if self._quarantined(member.device):
            return QUARANTINED
        known = self._seen.get(member.device)
        if known is not None and known[0] == member:
            return known[1]
        reason = misfit(self._recipe, self.spec, member) if member.samples else ""
        self._seen[member.device] = (member, reason)
        if reason:
            self._warn(f"{member.device} is excluded: {reason}")
        return reason


def admit(
    fleet: Fleet,
    recipe: Recipe,
    dataset: Dataset,
    wanted: int,
    *,
    recorded: DataSpec | None,
    warn: Callable[[str], None],
    clock: Clock,
    stop: Callable[[], bool],
    check: Callable[[], None],
    quarantined: Callable[[str], bool] = lambda device: False,
) -> Admission:
    """Wait for so many devices whose data fit the run, and return who takes part.

    Args:
        fleet: all devices that are there.
        recipe: the run's.
        dataset: the coordinator's.
        wanted: devices that must fit.
        recorded: what the data look like of a run that has begun; None for one that begins, which
            the recipe, the data set and the devices that are there decide.
        warn: told of each device that is left out.
        clock: for how long to wait.
        stop: ends the waiting.
        check: raises when an order ended it.
        quarantined: whether a device is left out until an operator releases it.

    Raises:
        TimeLimitError: too few devices are there.
        DataError: too few of them fit, or their lists of classes or shapes of input differ.
    """
    timeout = recipe.rounds.join_timeout
    until = clock.monotonic() + timeout
    roster = fleet.wait_for(wanted, timeout, stop)
    check()
    able = sum(member.samples > 0 for member in roster)
    if able < wanted:
        raise _too_few(able, wanted, timeout)
    spec = recorded or _agreed(recipe, dataset, fleet)
    admission = Admission(fleet, recipe, spec, warn, clock, quarantined)
    left = max(0.0, until - clock.monotonic())
    fitting = len(admission.wait_for(wanted, left, stop))
    check()
    if fitting < wanted:
        raise _misfitting(fitting, wanted, admission.misfits())
    return admission


def _agreed(recipe: Recipe, dataset: Dataset, fleet: Fleet) -> DataSpec:
    found = check_compatibility(recipe, dataset, fleet.roster())
    if found.spec is None:
        raise found.problem or DataError("No device with data is online.", code="data.shape")
    return found.spec


def _too_few(there: int, wanted: int, seconds: float) -> TimeLimitError:
    who = "No device is" if there == 0 else f"Only {there} of {wanted} devices are"
    return TimeLimitError(
        f"{who} there with data after {seconds:.0f} s.",
        code="run.devices",
        hint="start an agent on a device: edgefed-agent run --broker URL --fleet NAME --data …",
    )


def _misfitting(fitting: int, wanted: int, misfits: tuple[Misfit, ...]) -> DataError:
    who = "No device fits" if fitting == 0 else f"Only {fitting} of {wanted} devices fit"
    told = "; ".join(f"{each.device}: {each.reason}" for each in misfits)
    return DataError(
        f"{who} the run's data. {told}.", code="data.misfit", hint="edgefed run check RECIPE"
    )
