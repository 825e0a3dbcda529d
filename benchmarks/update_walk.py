"""The source files that an update passes on its way from a device's training into the merge.

``edgefed demo`` runs one device for some rounds with separate processes over MQTT; a trace
function in the agent and in the coordinator notes every call of a product function with its time.
The walk of a round are the files of which a function is called, in either process and any thread,
between the call of ``FedAvg.answer`` on the device and the next call of ``ExactMean.add`` on the
coordinator. Files of every round count; those of a few rounds only belong to something that happens
at the same time, such as a telemetry message. Classes are found by name, so that the walk can be
repeated after files have moved.

    python -m benchmarks.update_walk [--json]
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("edgefed", "device_agent", "broker")
ROUNDS = 12
FOLDER = "UPDATE_WALK_FOLDER"
"""The environment variable that names the folder for the calls of each process."""
MARKS = {"answer": ("FedAvg", "begin"), "add": ("ExactMean", "end")}
"""The methods at which a walk begins and ends, with their classes."""
HOOK = f"import sys; sys.path.append({str(ROOT)!r}); import benchmarks.update_walk as w; w.trace()"

Call = tuple[int, str, str]
"""Monotonic time in nanoseconds, source file, and ``begin``, ``end`` or nothing."""


def trace() -> None:
    """Note the calls of product functions in all threads, and write them while they come.

    A process may end without exit handlers, so that its calls must be on disk before.
    """
    calls: list[Call] = []
    files: dict[CodeType, str] = {}
    lock = threading.Lock()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in files:
            files[code] = product_file(code)
        if files[code]:
            calls.append((time.monotonic_ns(), files[code], mark(frame)))

    def write() -> None:
        with lock, (Path(os.environ[FOLDER]) / f"{os.getpid()}.calls").open("a") as file:
            count = len(calls)
            file.writelines(f"{json.dumps(each)}\n" for each in calls[:count])
            del calls[:count]

    def keep_writing() -> None:
        while True:
            time.sleep(0.1)
            write()

    threading.Thread(target=keep_writing, daemon=True).start()
    atexit.register(write)
    threading.settrace(note)
    sys.settrace(note)


def product_file(code: CodeType) -> str:
    """Return the path of a function's file from the root; nothing for modules and other code."""
    path = Path(code.co_filename)
    if code.co_name == "<module>" or not path.is_relative_to(ROOT):
        return ""
    relative = path.relative_to(ROOT)
    return str(relative) if relative.parts[0] in PRODUCT else ""


def mark(frame: FrameType) -> str:
    """Return whether a walk begins or ends with this call."""
    name, code = frame.f_code.co_name, frame.f_code
    if name not in MARKS or "self" not in frame.f_locals:
        return ""
    owner, kind = MARKS[name]
    for each in type(frame.f_locals["self"]).__mro__:
        if each.__name__ == owner:
            return kind if getattr(each.__dict__.get(name), "__code__", None) is code else ""
    return ""


def walks(calls: Sequence[Call]) -> list[list[str]]:
    """Return the files of each walk, in the order of their first calls."""
    found: list[list[str]] = []
    inside = False
    for _, file, kind in sorted(calls):
        if kind == "begin":
            found.append([])
            inside = True
        if inside and file not in found[-1]:
            found[-1].append(file)
        if kind == "end":
            inside = False
    return found


def update_walk() -> list[str]:
    """Run the demo and return the files that the updates of all rounds pass.

    Raises:
        RuntimeError: the demo failed, or a round has no walk.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
        command = [sys.executable, "-m", "edgefed.cli.main", "--no-config", "--state", name]
        options = ["--headless", "--devices", "1", "--rounds", str(ROUNDS), "--seed", "1"]
        ran = subprocess.run(
            [*command, "demo", *options, "--json"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", FOLDER: name},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            raise RuntimeError(f"the demo failed: {ran.stderr}")
        calls: list[Call] = []
        for path in folder.glob("*.calls"):
            calls += [tuple(json.loads(line)) for line in path.read_text().splitlines()]
    found = walks(calls)
    if len(found) != ROUNDS:
        raise RuntimeError(f"{len(found)} walks were found in {ROUNDS} rounds")
    return [file for file in found[0] if all(file in other for other in found[1:])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the files of the walk."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.update_walk", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    files = update_walk()
    if options.json:
        print(json.dumps({"count": len(files), "files": files}))
    else:
        print("\n".join([*files, f"{len(files)} files"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
