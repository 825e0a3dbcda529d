"""The devices of a fleet whose data fit the run; the others are excluded and reported once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from edgefed.algorithms.interface.member import Member, Roster
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.devices.missed_deadlines import SilentDevices, least_roster, left_out
from edgefed.coordinator.exchanges.fleet import Fleet
from edgefed.coordinator.storage.compatibility import (
    NO_SAMPLES,
    DataSpec,
    Misfit,
    check_compatibility,
    misfit,
)
from edgefed.data.base.types import Dataset
from edgefed.errors import DataError, TimeLimitError
from edgefed.events.base.coordinator_states import QUARANTINED
from edgefed.process.clock import Clock
from edgefed.terminal.units import duration

NAMED = 3
"""Paused devices that a sentence names."""

Excluded = Callable[[str, str], None]
"""Takes a device and why the run does not ask it any more; an empty reason for one that it may."""


class Admission:
    """Decides which devices take part in a run.

    Args:
        fleet: all connected devices.
        recipe: the run's.
        spec: the form of the run's data.
        warn: called for each device that is left out, and again when its data change.
        clock: for timeouts.
        quarantined: given ids, returns those that are left out until an operator releases them.
        announced: given all known devices, returns those that announce too many samples, with
            reasons.
        excluded: called with each change of the reason why a device is left out, except quarantine,
            which is reported elsewhere.
        shown: returns the reason of each device that has one now; none of one that was forgotten.
    """

    def __init__(
        self,
        fleet: Fleet,
        recipe: Recipe,
        spec: DataSpec,
        warn: Callable[[str], None],
        clock: Clock,
        quarantined: Callable[[Set[str]], Set[str]] = lambda devices: frozenset(),
        announced: Callable[[Roster], Mapping[str, str]] = lambda known: {},
        excluded: Excluded = lambda device, reason: None,
        shown: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.spec = spec
        self._announced = announced
        self._excluded = excluded
        self._shown = shown
        self._reported: dict[str, str] = {}
        self._quarantined = quarantined
        self._fleet = fleet
        self._recipe = recipe
        self._warn = warn
        self._clock = clock
        self._seen: dict[str, tuple[Member, str, str]] = {}
        self._named: tuple[Roster, Roster, Set[str]] = ((), (), frozenset())
        self._fitted: Roster | None = None

    def roster(self) -> Roster:
        """Return the devices that are there and fit, sorted by id."""
        return self._fitting(self._fleet.roster())

    def roster_without(self, silent: SilentDevices, number: int) -> Roster:
        """Return the devices that are there, fit, and are not left out of round ``number``."""
        roster = self.roster()
        if not (silent or self._reported):
            return roster
        able = [member for member in roster if member.samples]
        # Those that were left out before are named too, so that their reason is taken back
        out = left_out(silent, number, able, least_roster(self._recipe))
        for member in able:
            if member.device in out or member.device in self._reported:
                self._tell(member.device, out.get(member.device, ""))
        if not out:
            return roster
        return tuple(member for member in roster if member.device not in out)

    def misfits(self) -> tuple[Misfit, ...]:
        """Return the devices that are there and do not fit."""
        reasons = self._reasons(self._fleet.roster())
        return tuple(Misfit(device, reason) for device, reason in reasons.items())

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        """Wait for enough fitting devices, the timeout or ``stop``; return the roster."""
        until = self._clock.monotonic() + timeout
        # More than wanted are waited for, as long as some of those that are there do not fit
        asked = devices
        while True:
            left = max(0.0, until - self._clock.monotonic())
            there = [m for m in self._fleet.wait_for(asked, left, stop) if m.samples]
            able = self._fitting(tuple(there))
            # With fewer than asked for, the fleet itself has given up: time is over
            if len(able) >= devices or len(there) < asked or stop():
                return able
            asked = devices + len(there) - len(able)

    def _fitting(self, roster: Roster) -> Roster:
        reasons = self._reasons(roster)
        if not reasons:
            return roster
        return tuple(member for member in roster if member.device not in reasons)

    def _reasons(self, roster: Roster) -> dict[str, str]:
        """Return why devices do not fit, of those that do not; one without samples is never asked.

        A roster that was looked at before costs nothing for each of its devices, as long as nothing
        is said of any: there may be a hundred thousand, and the same ones in each round.
        """
        known = self._fleet.known()
        quarantined = self._quarantined(self._names(roster, known))
        if quarantined:
            known = tuple(member for member in known if member.device not in quarantined)
        announced = self._announced(known)
        # The journal knows what it has shown, also after a restart or when a device was forgotten
        if self._shown is not None:
            self._reported = dict(self._shown())
        if roster is self._fitted and not (quarantined or announced or self._reported):
            return {}
        reasons = {
            member.device: QUARANTINED
            if member.device in quarantined
            else self._reason(member, announced.get(member.device, ""))
            for member in roster
        }
        shown = {device: reason for device, reason in reasons.items() if reason}
        fits = not shown and all(member.samples for member in roster)
        self._fitted = roster if fits else None
        return shown

    def _names(self, roster: Roster, known: Roster) -> Set[str]:
        """Return the ids of both; of the same two as before, the same set."""
        if not (roster is self._named[0] and known is self._named[1]):
            self._named = (roster, known, {member.device for member in (*roster, *known)})
        return self._named[2]

    def _reason(self, member: Member, announced: str) -> str:
        seen = self._seen.get(member.device)
        # The announcement decides, so nothing is checked or warned of again while it stays the same
        if seen is not None and seen[:2] == (member, announced):
            if current := seen[2] if member.samples else NO_SAMPLES:
                self._tell(member.device, current)  # again, if it was forgotten and came back
            return seen[2]
        unfit = misfit(self._recipe, self.spec, member) if member.samples else ""
        reason = unfit or announced
        self._seen[member.device] = (member, announced, reason)
        self._tell(member.device, reason if member.samples else NO_SAMPLES)
        if reason:
            self._warn(f"{member.device} is excluded: {reason}")
        return reason

    def _tell(self, device: str, reason: str) -> None:
        if self._reported.get(device, "") != reason:
            self._reported[device] = reason
            self._excluded(device, reason)


def admit(
    fleet: Fleet,
    recipe: Recipe,
    dataset: Dataset,
    wanted: int,
    *,
    because: str = "",
    recorded: DataSpec | None,
    admission_of: Callable[[DataSpec], Admission],
    clock: Clock,
    stop: Callable[[], bool],
    check: Callable[[], None],
) -> Admission:
    """Wait for enough devices whose data fit the run, and return its admission.

    Args:
        fleet: all connected devices.
        recipe: the run's.
        dataset: the coordinator's.
        wanted: number of devices that must fit.
        because: the reason for that number, as a sentence; empty where the recipe states it.
        recorded: the form of the data of a run that has begun; None for a new run, where the
            recipe, the data set and the connected devices decide.
        admission_of: returns the admission for data of this form.
        clock: for timeouts.
        stop: ends the waiting.
        check: raises when an order ended it.

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
        raise _too_few(able, wanted, timeout, because, fleet.paused())
    # A resumed run keeps the form that its weights have, whichever devices are there now
    spec = recorded or _agreed(recipe, dataset, fleet)
    admission = admission_of(spec)
    left = max(0.0, until - clock.monotonic())
    fitting = len(admission.wait_for(wanted, left, stop))
    check()
    if fitting < wanted:
        raise _misfitting(fitting, wanted, admission.misfits(), because)
    return admission


def _agreed(recipe: Recipe, dataset: Dataset, fleet: Fleet) -> DataSpec:
    compatibility = check_compatibility(recipe, dataset, fleet.roster())
    if compatibility.spec is None:
        raise compatibility.problem or DataError(
            "No device with data is online.", code="data.shape"
        )
    return compatibility.spec


def paused_in_words(paused: Mapping[str, str]) -> str:
    """Return which devices are paused, and why, in a sentence; empty if none is."""
    if not paused:
        return ""
    named = [f"{device} ({why})" if why else device for device, why in paused.items()][:NAMED]
    more = len(paused) - len(named)
    return f"Paused: {', '.join(named)}{f' and {more} more' if more else ''}."


def _too_few(
    there: int, wanted: int, seconds: float, because: str, paused: Mapping[str, str]
) -> TimeLimitError:
    pauses = paused_in_words(paused)
    who = "No device is" if there == 0 else f"Only {there} of {wanted} devices are"
    return TimeLimitError(
        " ".join(
            filter(None, (f"{who} there with data after {duration(seconds)}.", because, pauses))
        ),
        code="run.devices",
        hint="edgefed device list shows until when devices are paused"
        if paused
        else "start an agent on a device: edgefed-agent run --broker URL --fleet NAME --data …",
    )


def _misfitting(fitting: int, wanted: int, misfits: tuple[Misfit, ...], because: str) -> DataError:
    who = "No device fits" if fitting == 0 else f"Only {fitting} of {wanted} devices fit"
    reasons = "; ".join(f"{misfit.device}: {misfit.reason}" for misfit in misfits)
    return DataError(
        " ".join(filter(None, (f"{who} the run's data. {reasons}.", because))),
        code="data.misfit",
        hint="edgefed run check RECIPE",
    )
