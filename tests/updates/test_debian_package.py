"""The Debian package: built, and in a throw-away system installed, upgraded, removed and purged."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from broker.child_process import ending_with_parent
from edgefed.config.fleet.settings import AgentSettings, Settings
from edgefed.config.values.toml import parse_toml
from edgefed.version import VERSION
from tests.processes import clean_environment
from tests.role_wheels import needed
from tests.updates.wheels import make_wheel

FOLDER = Path(__file__).parents[2] / "deploy" / "debian"
LIMIT = 300.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg is not installed"),
]

SPACE = ("--net", "--mount", "--propagation", "private", "sh", "-ec")

LAYER = """
mount -t tmpfs none {place} && cd {place} && mkdir upper work root
mount -t overlay none -o lowerdir=/,upperdir=upper,workdir=work root
"""
"""A file system above that of this machine."""

SYSTEM = """
mount --rbind /proc root/proc && mount --rbind /dev root/dev
mount --bind {folder} root/mnt
mkdir -p root/run/systemd/system root/srv/packages root/usr/local/lib/{python}/dist-packages
mount --bind -o ro {packages} root/srv/packages
ln -s -t root/usr/local/lib/{python}/dist-packages $(sed 's,^,/srv/packages/,' root/mnt/links)
for program in systemctl deb-systemd-invoke; do
    cp root/mnt/recorder root/usr/bin/$program
done
echo ready && exec sleep {limit}
"""
"""What makes a system of it, whose Python has the packages that EdgeFed needs, with torch."""

RECORDER = """\
#!/bin/sh
echo "${0##*/} $*" >> /mnt/words
case "$*" in *list-units*) echo "edgefed-agent.service loaded active running EdgeFed agent" ;; esac
"""


def make(*words: str) -> tuple[Path, str]:
    """Build a package, without a compiler, and return its path and what was said on stderr."""
    command = [sys.executable, str(FOLDER / "make_deb.py"), *words]
    around = {**clean_environment(), "CC": "false"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, env=around, check=False
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip()), done.stderr


def dpkg_deb(*words: str) -> str:
    return subprocess.run(
        ["dpkg-deb", *words], capture_output=True, text=True, timeout=LIMIT, check=True
    ).stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The package of this checkout, and one of an older version that carries other wheels."""
    folder = tmp_path_factory.mktemp("packages")
    old = {
        "old_only.py": "",
        "edgefed-0.0.9.dist-info/entry_points.txt": "[console_scripts]\nedgefed-agent = carried:f",
    }
    needs = "Provides-Extra: ui\nProvides-Extra: agent\nRequires-Dist: torch>=2.1\n"
    needs += "Requires-Dist: carried>=1\nRequires-Dist: absent; extra == 'ui'\n"
    make_wheel(folder / "wheels", "edgefed", "0.0.9", old, needs)
    newer = {"carried.py": "f = lambda: print('newer')"}
    make_wheel(folder / "wheels", "carried", "1.0", {"carried.py": "f = lambda: print('old')"})
    make_wheel(folder / "wheels", "carried", "2.0", newer, "Requires-Dist: torch>=999\n")
    make_wheel(folder / "wheels", "torch", "999")
    earlier, said = make(
        *("--wheels", str(folder / "wheels"), "--out", str(folder)), *("--extras", "agent")
    )
    assert said == "left out: torch-999-py3-none-any.whl\n"
    return make("--out", str(folder))[0], earlier


def test_its_fields_name_the_machine_that_its_wheels_are_for(packages: tuple[Path, Path]) -> None:
    ask = ["dpkg", "--print-architecture"]
    machine = subprocess.check_output(ask, text=True, timeout=LIMIT)
    new, old = packages
    assert new.name == f"edgefed_{VERSION.replace('.dev', '~~dev')}_{machine.strip()}.deb"
    assert old.name == "edgefed_0.0.9_all.deb"
    minor = sys.version_info.minor
    bound = f"python3 (>= 3.{minor}), python3 (<< 3.{minor + 1})"
    assert dpkg_deb("-f", str(new), "Depends") == f"{bound}, python3-venv, adduser\n"
    assert dpkg_deb("-f", str(old), "Depends") == "python3 (>= 3.10), python3-venv, adduser\n"
    assert dpkg_deb("-f", str(new), "Recommends") == "mosquitto\n"


def test_it_has_everything_but_torch(packages: tuple[Path, Path], tmp_path: Path) -> None:
    new, old = packages
    dpkg_deb("-R", str(new), str(tmp_path / "new"))
    dpkg_deb("-R", str(old), str(tmp_path / "old"))
    listed = [line.split(maxsplit=5) for line in dpkg_deb("-c", str(new)).splitlines()]
    modes = {path.removeprefix("."): mode for mode, owner, _, _, _, path in listed}
    assert {owner for _, owner, *_ in listed} == {"root/root"}
    settings = (tmp_path / "new" / "DEBIAN" / "conffiles").read_text().splitlines()
    assert settings == sorted(path for path in modes if path.startswith("/etc/edgefed/"))[1:]
    assert {modes[path] for path in settings if path.endswith(".env")} == {"-rw-------"}
    assert {modes[path] for path in settings if path.endswith(".toml")} == {"-rw-r--r--"}
    units = sorted(Path(path).name for path in modes if path.endswith(".service"))
    assert units == [f"edgefed-{kind}.service" for kind in ("agent", "broker", "coordinator")]
    assert not any("torch" in path for path in modes)
    needs = {
        name: (tmp_path / name / "opt/edgefed/requirements.txt").read_text().splitlines()
        for name in ("new", "old")
    }
    assert needs["old"] == ["--no-index", "--find-links /opt/edgefed/wheels", "carried>=1"]
    assert 'tomli>=2.0; python_version < "3.11"' in needs["new"] and "segno>=1.6" in needs["new"]
    assert not any(line.startswith(("torch", "--no-index", "amqtt")) for line in needs["new"])
    for script in ("postinst", "prerm", "postrm"):
        path = tmp_path / "new" / "DEBIAN" / script
        assert os.access(path, os.X_OK)
        subprocess.run(["sh", "-n", path], check=True, timeout=LIMIT)


def test_a_requirement_without_a_wheel_is_named_at_once(tmp_path: Path) -> None:
    needs = "Requires-Dist: present>=2\nRequires-Dist: Absent.Too>=1\n"
    make_wheel(tmp_path, "edgefed", "0.0.9", metadata=needs)
    make_wheel(tmp_path, "present", "1.0")
    command = [sys.executable, str(FOLDER / "make_deb.py"), "--wheels", str(tmp_path)]
    done = subprocess.run(
        [*command, "--extras", ""], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.stderr == f"{tmp_path} has no wheel for present>=2, Absent.Too>=1.\n"
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("name", "model"), [("edgefed", Settings), ("edgefed-agent", AgentSettings)]
)
def test_the_examples_in_its_settings_are_valid(
    name: str, model: type[AgentSettings] | type[Settings]
) -> None:
    lines = (FOLDER / "etc" / f"{name}.toml").read_text().partition("\n\n")[2].splitlines()
    text = "\n".join(line.removeprefix("# ") for line in lines)
    shown = parse_toml(text, name).values
    assert len(shown) >= 2 and model.model_validate(shown)


class System:
    """A system of a test's own, in which a command runs as root, without a network."""

    def __init__(self, folder: Path, place: Path) -> None:
        (folder / "recorder").write_text(RECORDER)
        (folder / "recorder").chmod(0o755)
        # pip reads the metadata of all packages, which took half of the time with those of tests.
        needs = {*needed("edgefed", frozenset({"coordinator", "ui"}), set())}
        needs |= {*needed("markdown-it-py", frozenset({"linkify"}), set())}  # of textual
        files = [file for name in needs for file in distribution(name).files or ()]
        links = {file.parts[0] for file in files} - {"..", "__pycache__"}
        (folder / "links").write_text("\n".join(sorted(links)))
        self._folder, self._place = folder, place
        script = (LAYER + SYSTEM).format(
            place=place,
            folder=folder,
            limit=int(LIMIT),
            python=f"python3.{sys.version_info.minor}",
            packages=sysconfig.get_path("purelib"),
        )
        unshare = shutil.which("unshare") or ""
        self._first = subprocess.Popen(
            ending_with_parent([unshare, *SPACE, script], signal.SIGKILL),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._first.stdout is not None
        said = self._first.stdout.readline()
        assert said == "ready\n", said + self._first.stdout.read()

    def run(self, command: str, code: int = 0) -> str:
        """Run a shell command, and return its output."""
        inside = f"nsenter -t {self._first.pid} -n -m chroot {self._place}/root".split()
        path = "PATH=/usr/sbin:/usr/bin"
        done = subprocess.run(
            [*inside, "env", "-i", path, "LANG=C.UTF-8", "sh", "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == code, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def written(self) -> list[str]:
        """Return the paths that the system has beside those of this machine."""
        upper = f"{self._place}/upper"
        find = f"nsenter -t {self._first.pid} -m find {upper} -not -type c -printf /%P\\n"
        return subprocess.check_output(find.split(), text=True, timeout=LIMIT).splitlines()

    def calls(self) -> list[str]:
        """Return the calls of systemd's programs since the last time."""
        words = self._folder / "words"
        calls = words.read_text().splitlines() if words.exists() else []
        words.unlink(missing_ok=True)
        return [call for call in calls if "list-units" not in call]

    def end(self) -> None:
        self._first.kill()
        self._first.communicate(timeout=LIMIT)


@pytest.fixture
def system(packages: tuple[Path, Path], tmp_path: Path) -> Iterator[System]:
    if os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("nsenter")):
        pytest.skip("a throw-away system needs root and namespaces")
    ask = "import sys, ensurepip; print(sys.version_info[:2])"
    told = subprocess.run(
        ["/usr/bin/python3", "-c", ask], capture_output=True, text=True, check=False, timeout=LIMIT
    )
    if told.stdout.strip() != str(sys.version_info[:2]):
        pytest.skip("the system's Python has no venv, or another version than this one")
    place = tmp_path / "system"
    place.mkdir()
    tried = ["unshare", *SPACE, LAYER.format(place=place)]
    if subprocess.run(tried, capture_output=True, check=False, timeout=LIMIT).returncode:
        pytest.skip("this system has no namespaces, or no overlays of its file system")
    for path in (*packages, *packages[0].parent.glob("wheels/torch-*.whl")):
        shutil.copy(path, tmp_path)
    made = System(tmp_path, place)
    yield made
    made.end()


def test_it_is_installed_upgraded_removed_and_purged(
    system: System, packages: tuple[Path, Path]
) -> None:
    new, old = (f"/mnt/{path.name}" for path in packages)
    # Bytecode would take most of the time. pip takes 0 for yes, since the option sets a False.
    dpkg = "PIP_CONFIG_FILE=/dev/null PIP_RETRIES=0 PIP_NO_COMPILE=0 dpkg --force-unsafe-io"
    agent = "/opt/edgefed/bin/edgefed-agent"

    # Offline: what it needs comes from its wheels. If pip sees a newer torch, it does not take it.
    system.run(f"{dpkg} --unpack {old} && cp /mnt/torch-999-*.whl /opt/edgefed/wheels")
    system.run(f"{dpkg} --configure edgefed")
    assert system.run(agent) == "old\n"
    assert system.calls() == ["systemctl daemon-reload"]  # nothing is enabled or started
    owners = system.run(
        "stat -c '%U %a' /var/lib/edgefed /var/lib/edgefed-agent /etc/edgefed/*.env"
    )
    assert owners.splitlines() == [*["edgefed 700"] * 2, *["root 600"] * 3]
    settings = "/etc/edgefed/edgefed-agent.toml"
    system.run(f"echo 'name = \"cam-1\"' >> {settings}; touch /var/lib/edgefed-agent/agent.db")

    assert "error" not in system.run(f"{dpkg} -i {new}")
    service = "edgefed-agent.service"
    assert system.calls() == [
        f"deb-systemd-invoke stop {service}",
        "systemctl daemon-reload",
        f"deb-systemd-invoke start {service}",
    ]
    assert system.run(f"runuser -u edgefed -- {agent} --version") == f"edgefed-agent {VERSION}\n"
    shown = (
        "from importlib.util import find_spec as f; print(f('edgefed').origin, f('torch').origin)"
    )
    modules = system.run(f"cd / && /opt/edgefed/bin/python3 -c {shlex.quote(shown)}").split()
    assert modules[0].startswith("/opt/edgefed/lib/") and modules[1].startswith("/usr/local/")
    assert not [path for path in system.written() if path.endswith("/old_only.py")]
    assert system.run(f"tail -n 1 {settings}") == 'name = "cam-1"\n'
    units = " ".join(f"/lib/systemd/system/edgefed-{kind}.service" for kind in ("agent", "broker"))
    if shutil.which("systemd-analyze"):
        said = system.run(f"systemd-analyze verify --man=no {units}").splitlines()
        assert not [line for line in said if "Unknown key" not in line]

    system.calls()
    links = "/etc/systemd/system/multi-user.target.wants"
    system.run(f"mkdir -p {links} && ln -s /lib/systemd/system/{service} {links}")
    system.run(f"{dpkg} -r edgefed")
    assert system.calls() == [f"deb-systemd-invoke stop {service}", "systemctl daemon-reload"]
    system.run(
        f"test ! -e /opt/edgefed && test -e /var/lib/edgefed-agent/agent.db && cat {settings}"
    )
    system.run(f"{dpkg} -P edgefed")
    left = [path for path in system.written() if "edgefed" in path]
    assert not left and not system.run("getent passwd edgefed; getent group edgefed", code=2)
