"""Do the faults of a schedule to a fleet while it trains, several at a time."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.chaos.chaos_fleet import ChaosFleet
from benchmarks.chaos.schedule import Fault, Kind

AT_ONCE = 3


class Injector:
    """Works through a schedule on a thread of its own; a part has one fault at a time.

    Args:
        fleet: suffers the faults.
        faults: the schedule.
        tell: told of each fault when it begins.
    """

    def __init__(
        self, fleet: ChaosFleet, faults: Iterable[Fault], tell: Callable[[Fault], None]
    ) -> None:
        self._fleet = fleet
        self._faults = faults
        self._tell = tell
        self._allowed = self._stopped = False
        self._quiet = threading.Condition()
        self._busy: set[str] = set()
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._errors: list[BaseException] = []
        self.done: list[Fault] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def finished(self) -> bool:
        """Whether all faults are over."""
        return not self._thread.is_alive()

    def go_on(self) -> None:
        """Begin, or begin again after ``pause``."""
        with self._quiet:
            self._allowed = True
            self._quiet.notify_all()

    def pause(self) -> None:
        """Begin no more faults, and wait until those at work are over."""
        with self._quiet:
            self._allowed = False
            self._quiet.wait_for(lambda: not self._busy)
        self.check()

    def check(self) -> None:
        """Raise what went wrong with a fault itself."""
        if self._errors:
            raise self._errors[0]

    def revive(self) -> list[str]:
        """Start the parts that ended by themselves, as a service manager does; return them."""
        with self._quiet:
            ended = [each for each in self._fleet.ended() if each not in self._busy]
            for part in ended:
                self._fleet.start(part)
        return ended

    def stop(self) -> None:
        """Begin no more faults for good."""
        with self._quiet:
            self._stopped = True
            self._quiet.notify_all()
        self._thread.join()

    def _run(self) -> None:
        for fault in self._faults:
            time.sleep(fault.gap)
            if not self._reserved(fault.part):
                break
            self._pool.submit(self._suffer, fault)
        self._pool.shutdown()

    def _reserved(self, part: str) -> bool:
        """Wait until a fault may begin at a part; False when none may any more."""

        def free() -> bool:
            room = part not in self._busy and len(self._busy) < AT_ONCE
            return self._stopped or (self._allowed and room)

        with self._quiet:
            self._quiet.wait_for(free)
            if not self._stopped:
                self._busy.add(part)
            return not self._stopped

    def _suffer(self, fault: Fault) -> None:
        try:
            self._tell(fault)
            begin, end = _ACTIONS[fault.kind]
            begin(self._fleet, fault)
            time.sleep(fault.seconds)
            end(self._fleet, fault)
            self.done.append(fault)
        except BaseException as error:
            self._errors.append(error)
        finally:
            with self._quiet:
                self._busy.remove(fault.part)
                self._quiet.notify_all()


def _start(fleet: ChaosFleet, fault: Fault) -> None:
    fleet.start(fault.part)


def _restore(fleet: ChaosFleet, fault: Fault) -> None:
    fleet.links[fault.part].restore()


_Act = Callable[[ChaosFleet, Fault], None]
_ACTIONS: dict[Kind, tuple[_Act, _Act]] = {
    "kill": (lambda fleet, fault: fleet.kill(fault.part), _start),
    "freeze": (
        lambda fleet, fault: fleet.signal(fault.part, signal.SIGSTOP),
        lambda fleet, fault: fleet.signal(fault.part, signal.SIGCONT),
    ),
    "restart": (lambda fleet, fault: fleet.restart_broker(), _start),
    "disk": (
        lambda fleet, fault: fleet.fill(fault.part),
        lambda fleet, fault: fleet.release(fault.part),
    ),
    "clock": (
        lambda fleet, fault: fleet.jump(fault.part, int(fault.amount)),
        lambda fleet, fault: fleet.jump(fault.part, 0),
    ),
    "cut": (lambda fleet, fault: fleet.links[fault.part].cut(), _restore),
    "slow": (lambda fleet, fault: fleet.links[fault.part].slow(fault.amount), _restore),
    "truncate": (lambda fleet, fault: fleet.links[fault.part].truncate(), _restore),
    "repeat": (lambda fleet, fault: fleet.links[fault.part].repeat(fault.amount), _restore),
    "reorder": (lambda fleet, fault: fleet.links[fault.part].reorder(fault.amount), _restore),
}
