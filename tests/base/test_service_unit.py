"""Units of services: their text, what systemd makes of it, and what is not replaced."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from runpy import run_path

import pytest

from edgefed.errors import NotAllowedError, UnknownNameError, UnreachableError
from edgefed.process import installed_service
from edgefed.process.installed_service import Systemd, seconds_of
from edgefed.process.service_unit import ServiceKind, ServiceUnit, is_unedited, quoted, sealed
from tests.processes import clean_environment

ROOT = Path(__file__).parents[2]
KINDS: tuple[ServiceKind, ...] = ("agent", "coordinator", "broker", "gateway")

IN_NAMESPACE = """
mount -t tmpfs run /run && mkdir -p /run/systemd/system /run/user && chmod 700 /run/user
export XDG_RUNTIME_DIR=/run/user XDG_CONFIG_HOME="$2/config"
exec "$1" -m tests.base.systemd_session "$2"
"""


@pytest.mark.parametrize("kind", ["agent", "coordinator", "broker"])
def test_the_units_to_deploy_are_those_of_the_program(kind: str) -> None:
    written = (ROOT / "deploy" / f"edgefed-{kind}.service").read_text(encoding="utf-8")
    assert written == run_path(str(ROOT / "deploy" / "make_units.py"))["unit"](kind)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_all_units(tmp_path: Path) -> None:
    names: list[Path] = []
    for kind in KINDS:
        for run_as, state in (("root", None), ("", None), ("root", tmp_path / "a state")):
            unit = ServiceUnit(
                *(kind, (sys.executable, "-c", 'a "b" %h')),
                name=f"edgefed-{kind}-{len(names)}.service",
                run_as=run_as,
                state=state,
                memory="1.5G",
                cpu="150%",
                fields=(("EDGEFED_FLEET", "hall-2"),),
                systemd=240,
            )
            names.append(tmp_path / unit.name)
            names[-1].write_text(unit.text())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_unit_has_its_limits_and_leaves_a_gpu_visible() -> None:
    unit = ServiceUnit(
        "agent", ("/opt/agent", "run"), "a.service", memory="4G", cpu="150%", systemd=254
    )
    lines = unit.text().splitlines()
    assert {"Type=notify", "WatchdogSec=180", "MemoryMax=4G", "CPUQuota=150%"} <= set(lines)
    assert {"RestartSteps=6", "RestartMaxDelaySec=300", "SupplementaryGroups=video"} <= set(lines)
    assert not {"PrivateDevices=yes", "ProtectClock=yes", "ProtectHome=yes"} & set(lines)
    own = ServiceUnit("agent", ("/opt/agent", "run"), "a.service", run_as="").text()
    # A user's manager may not drop capabilities or change users.
    assert not any(word in own for word in ("User=", "CapabilityBoundingSet", "StateDirectory"))
    assert "NoNewPrivileges=yes" in own and "WantedBy=default.target" in own
    at_home = ServiceUnit(
        "coordinator", ("/opt/x",), "a.service", state=Path("/home/ann/fleet")
    ).text()
    assert "ProtectHome=read-only" in at_home and "ReadWritePaths=/home/ann/fleet" in at_home


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("npz:/srv/a-b.npz", "npz:/srv/a-b.npz"),
        ("50%", "50%%"),
        ("a b", '"a b"'),
        ('"\\', '"\\"\\\\"'),
        ("a\nUser=root", '"a\\nUser=root"'),
        ("", '""'),
    ],
)
def test_words_are_quoted_for_systemd(word: str, text: str) -> None:
    assert quoted(word) == text


def test_an_edit_of_a_unit_is_noticed() -> None:
    text = sealed(ServiceUnit("agent", ("/opt/agent",), "a.service").text(), "edgefed-agent")
    assert is_unedited(text)
    assert not is_unedited(text.replace("WatchdogSec=180", "WatchdogSec=18"))
    assert not is_unedited(text.partition("\n")[2])
    assert not is_unedited("")


@pytest.mark.parametrize(
    ("span", "seconds"),
    [("3min", 180), ("1min 30s", 90), ("500ms", 0.5), ("1h 2min", 3720), ("0", 0), ("infinity", 0)],
)
def test_spans_of_time_are_read(span: str, seconds: float) -> None:
    assert seconds_of(span) == seconds


class NoonClock:
    """It is noon, 100 seconds after the machine started."""

    def monotonic(self) -> float:
        return 100.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``systemctl`` that writes down its words, and a session that systemd manages."""
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/words\ncat {tmp_path}/shown 2>/dev/null\n'
        f"test ! -e {tmp_path}/fails || {{ echo Unit is masked. >&2; exit 1; }}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(installed_service, "BOOTED", tmp_path)
    (tmp_path / "systemd").mkdir()
    (tmp_path / "systemd" / "private").touch()
    return tmp_path


def own_manager(folder: Path) -> Systemd:
    places = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_RUNTIME_DIR": str(folder)}
    return Systemd(NoonClock(), places, user=True)


def test_an_edited_unit_stays_unless_it_is_forced(systemctl: Path) -> None:
    manager, text = own_manager(systemctl), sealed("[Service]\n", "edgefed-agent")
    path = manager.install("a.service", text, force=False, start=False)
    manager.install("a.service", text, force=False, start=True)
    assert path == systemctl / "config/systemd/user/a.service" and path.read_text() == text
    path.write_text(text + "MemoryMax=1G\n")
    with pytest.raises(NotAllowedError) as refused:
        manager.install("a.service", text, force=False, start=True)
    assert refused.value.code == "service.edited" and "MemoryMax" in path.read_text()
    with pytest.raises(NotAllowedError):
        manager.uninstall("a.service", force=False)
    manager.install("a.service", text, force=True, start=False)
    manager.uninstall("a.service", force=False)
    assert not path.exists()
    with pytest.raises(UnknownNameError):
        manager.uninstall("a.service", force=True)
    words = [line.split()[1:] for line in (systemctl / "words").read_text().splitlines()]
    start = [["daemon-reload"], ["enable", "a.service"], ["restart", "a.service"]]
    end = [["disable", "--now", "a.service"], ["daemon-reload"]]
    assert words == [["daemon-reload"], *start, ["daemon-reload"], *end]


def test_a_status_has_times_of_the_wall_clock(systemctl: Path) -> None:
    (systemctl / "shown").write_text(
        "ActiveState=active\nSubState=running\nUnitFileState=enabled\nNRestarts=2\nMainPID=7\n"
        "Result=success\nWatchdogUSec=3min\nActiveEnterTimestampMonotonic=60000000\n"
        "WatchdogTimestampMonotonic=0\n"
    )
    places = {"XDG_CONFIG_HOME": str(systemctl / "config"), "XDG_RUNTIME_DIR": str(systemctl)}
    state = Systemd(NoonClock(), places, user=True).status("a.service")
    assert (state.active, state.enabled, state.installed) == (True, True, False)
    assert (state.restarts, state.pid, state.watchdog_seconds) == (2, 7, 180.0)
    assert (state.since, state.watchdog_at) == ("2026-01-01T11:59:20.000Z", "")


def test_a_failure_of_systemd_is_an_error_with_its_reason(systemctl: Path) -> None:
    (systemctl / "fails").touch()
    with pytest.raises(UnreachableError, match="daemon-reload failed: Unit is masked") as failed:
        own_manager(systemctl).install("a.service", "", force=False, start=True)
    assert failed.value.code == "service.failed"
    assert own_manager(systemctl).version() == 0
    (systemctl / "systemd" / "private").unlink()
    with pytest.raises(UnreachableError) as absent:
        own_manager(systemctl).status("a.service")
    assert absent.value.code == "service.no_systemd"


def test_systemd_restarts_a_program_that_hangs_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    namespace = ["unshare", "--mount", "--propagation", "private"]
    try:
        subprocess.run([*namespace, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no mount namespaces here")
    if not Path("/lib/systemd/systemd").exists():
        pytest.skip("systemd is not installed")
    done = subprocess.run(
        [*namespace, "sh", "-c", IN_NAMESPACE, "sh", sys.executable, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
        env=clean_environment(),
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    started, restarted = shown["started"], shown["restarted"]
    assert (started["enabled"], started["restarts"], started["watchdog_seconds"]) == (True, 0, 1.0)
    assert restarted["pid"] not in (0, started["pid"]) and restarted["since"] > started["since"]
    assert (shown["word"], shown["memory"]) == (True, str(500 * 1024**2))
    assert (shown["removed"]["installed"], shown["removed"]["active"]) == (False, False)
    assert shown["left"] == []
