"""The commands that go on from a run, the same on the screen, in notices and at a command's end."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class NextStep:
    """A command line that works as it is, and its purpose."""

    purpose: str
    command: str


@dataclass(frozen=True)
class RunCommands:
    """Command lines about runs, for a shell on this machine.

    Attributes:
        program: ``edgefed`` with the options that the command lines need.
        inputs: file to predict.
        of_demo: whether the coordinator ends with the screen, so that its run cannot be resumed.
        new_run_key: label of the key that starts a run; empty where the screen starts none.
    """

    program: str = "edgefed"
    inputs: str = "photo.jpg"
    of_demo: bool = False
    new_run_key: str = ""

    @property
    def no_run(self) -> str:
        """A sentence for a screen without a run."""
        key = f"{self.new_run_key}, or " if self.new_run_key else ""
        return f"No run yet. Start one: {key}{self.program} run start"

    @property
    def no_start(self) -> str:
        """The reason why the screen starts no run, and commands that do."""
        if not self.of_demo:
            return f"This dashboard starts no runs. Use: {self.program} run start"
        return (
            "A demo trains one run, and its fleet ends with it.\n"
            f"another demo: {self.program} demo --algorithm fedprox\n"
            f"a fleet for runs of your own: {self.program} up\n"
            f"a simulation: {self.program} sim run"
        )

    def predict(self, run: str) -> str:
        """Return the command that predicts with a run's model."""
        return f"{self.program} predict {run} {shlex.quote(self.inputs)}"

    def replay(self, run: str) -> str:
        """Return the command that replays a run."""
        return f"{self.program} run replay {run}"

    def next_steps(self, run: str, status: str, rounds: int) -> tuple[NextStep, ...]:
        """Return the commands that go on from a run that has ended, the most likely one first.

        Args:
            run: its id.
            status: ``finished``, ``aborted`` or ``failed``.
            rounds: number of its finished rounds.
        """
        steps = []
        if status != "finished" and not self.of_demo:
            steps.append(NextStep("go on", f"{self.program} run resume {run}"))
        if rounds:
            steps.append(NextStep("predict", self.predict(run)))
        steps.append(NextStep("replay", self.replay(run)))
        start = "demo --algorithm fedprox" if self.of_demo else "run start"
        return (*steps, NextStep("start another", f"{self.program} {start}"))


_GOES_ON = " \\"
"""How a line ends whose command goes on in the next one."""


def command_lines(command: str, width: int) -> list[str]:
    """Return a command line on several lines that a shell takes as one, between its words.

    A word that is wider than ``width`` stays whole.
    """
    if len(command) <= width:
        return [command]
    lines: list[str] = []
    for word in map(shlex.quote, shlex.split(command)):
        if lines and len(lines[-1]) + 1 + len(word) + len(_GOES_ON) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [*(line + _GOES_ON for line in lines[:-1]), *lines[-1:]]


OWN_COMMANDS = RunCommands()
"""Those of a user without options."""


def steps_text(steps: tuple[NextStep, ...], indent: str = "") -> str:
    """Return steps as lines, with the commands below each other."""
    width = max((len(step.purpose) for step in steps), default=0)
    return "\n".join(f"{indent}{step.purpose:<{width}}  {step.command}" for step in steps)
