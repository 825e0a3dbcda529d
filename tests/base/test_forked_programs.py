"""A program that is forked from a prepared process is like one after ``python -m``."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.processes import wait_until_ended
from tests.programs.forked_programs import ForkedProgram, ended
from tests.programs.launched_programs import launching

SHOW = """
import json, os, sys
shown = [__name__, sys.argv[1:], dict(os.environ), os.getpid(), "torch" in sys.modules]
print(json.dumps(shown), flush=True)
sys.exit(3)
"""


def test_it_has_words_environment_log_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "show_all.py").write_text(SHOW)
    log = tmp_path / "log"
    log.write_text("before\n")
    words = ["show_all", "--a", "b"]
    program = ForkedProgram(words, {"PYTHONPATH": str(tmp_path), "ONLY": "this"}, log)
    assert program.wait() == program.poll() == 3
    before, said = log.read_text().splitlines()
    name, arguments, environment, pid, prepared = json.loads(said)
    assert (before, name, arguments, pid) == ("before", "__main__", ["--a", "b"], program.pid)
    assert environment == {"PYTHONPATH": str(tmp_path), "ONLY": "this"}
    assert prepared, "it would have to import torch"


def test_it_is_a_process_that_can_be_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "sleeper.py").write_text("print('up', flush=True)\nwhile True: pass\n")
    program = ForkedProgram(["sleeper"], {"PYTHONPATH": str(tmp_path)}, log)
    while not log.exists() or not log.read_text():
        time.sleep(0.01)
    assert program.poll() is None
    program.kill()
    assert program.wait() == -signal.SIGKILL


def test_what_it_says_on_stdout_and_stderr_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "teller.py").write_text("import sys\nprint('out')\nsys.exit('err')\n")
    told = ended(["teller"], {"PYTHONPATH": str(tmp_path)})
    assert (told.returncode, told.stdout, told.stderr) == (1, "out\n", "err\n")


def test_it_runs_in_the_folder_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "shower.py").write_text("import os\nprint(os.getcwd())\n")
    told = ended(["shower"], {"PYTHONPATH": str(tmp_path)}, tmp_path)
    assert told.stdout == f"{tmp_path}\n"


def test_it_ends_at_sigterm(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "waiter.py").write_text("print('up', flush=True)\nwhile True: pass\n")
    program = ForkedProgram(["waiter"], {"PYTHONPATH": str(tmp_path)}, log)
    while not log.exists() or not log.read_text():
        time.sleep(0.01)
    with pytest.raises(TimeoutError):
        program.wait(0.01)
    program.terminate()
    assert program.wait() == -signal.SIGTERM


def launch(*words: str, folder: Path) -> subprocess.Popen[str]:
    """Start a module in a folder by the launcher."""
    return subprocess.Popen(
        launching(*words),
        cwd=folder,
        env={"PYTHONPATH": str(folder), "ONLY": "this"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_launched_one_has_the_launchers_files_folder_and_environment(tmp_path: Path) -> None:
    (tmp_path / "show_all.py").write_text(SHOW)
    code = "import os, sys\nprint(input(), os.getcwd())\nsys.exit('err')\n"
    (tmp_path / "taker.py").write_text(code)
    shown = launch("show_all", "--a", "b", folder=tmp_path)
    name, arguments, environment, _, prepared = json.loads(shown.communicate(timeout=60)[0])
    assert (name, arguments, prepared, shown.returncode) == ("__main__", ["--a", "b"], True, 3)
    assert environment.pop("LC_CTYPE", "") in ("", "C.UTF-8")  # by the launcher's Python
    assert environment == {"PYTHONPATH": str(tmp_path), "ONLY": "this"}
    taker = launch("taker", folder=tmp_path)
    assert taker.communicate("in\n", timeout=60) == (f"in {tmp_path}\n", "err\n")
    assert taker.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_launched_one_ends_as_its_launcher_does(tmp_path: Path, number: int) -> None:
    code = "import os\nprint(os.getpid(), flush=True)\nwhile True: pass\n"
    (tmp_path / "waiter.py").write_text(code)
    launcher = launch("waiter", folder=tmp_path)
    assert launcher.stdout is not None
    program = psutil.Process(int(launcher.stdout.readline()))
    launcher.send_signal(number)
    launcher.communicate(timeout=60)
    assert launcher.returncode == -number
    wait_until_ended([program])


def test_a_launched_one_gets_ctrl_c(tmp_path: Path) -> None:
    code = "try:\n    print('up', flush=True)\n    while True: pass\n"
    (tmp_path / "taker.py").write_text(code + "except KeyboardInterrupt: raise SystemExit(7)\n")
    launcher = launch("taker", folder=tmp_path)
    assert launcher.stdout is not None and launcher.stdout.readline() == "up\n"
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=60)
    assert launcher.returncode == 7
