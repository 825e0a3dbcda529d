"""Algorithms of installed packages: imported on request, and independent of each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.composed.registry import PLUGINS, algorithms, built_in, find
from edgefed.algorithms.interface.base import Algorithm
from edgefed.errors import PluginError
from edgefed.files.plugins import installed as entry_points_found
from tests.programs.forked_programs import ended

GOOD = """
from edgefed.extension import FedAvg
print("imported good", file=__import__("sys").stderr)

class Good(FedAvg):
    name = "good"
    summary = "FedAvg by another name"
    paper = "none"
"""
BROKEN = "import a_package_that_is_not_there"
EXITS = "raise SystemExit('leave me')"
NO_ALGORITHM = "class Thing: ..."
OTHER_NAME = GOOD.replace('"good"', '"other"')
ABSTRACT = """
from edgefed.extension import Algorithm

class Half(Algorithm):
    name = "abstract"
"""


def package(root: Path, distribution: str, name: str, source: str, value: str) -> None:
    """Install a package with one module and one entry point into a folder of ``sys.path``."""
    root.mkdir(exist_ok=True)
    module = value.partition(":")[0]
    (root / f"{module}.py").write_text(source)
    folder = root / f"{distribution.replace('-', '_')}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[{PLUGINS.group}]\n{name} = {value}\n")


def edgefed(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with the packages in ``root`` installed."""
    path = os.pathsep.join([str(root), *filter(None, sys.path)])
    return ended(["edgefed.cli.main", *words], {**os.environ, "PYTHONPATH": path})


def test_an_installed_algorithm_is_listed_shown_and_runs(tmp_path: Path) -> None:
    root = tmp_path / "site"
    package(root, "nice-package", "good", GOOD, "nice_package:Good")
    listed = json.loads(edgefed(root, "algo", "list", "--json").stdout)
    assert [each["name"] for each in listed if each["summary"] == "FedAvg by another name"] == [
        "good"
    ]
    assert "mu" in json.loads(edgefed(root, "algo", "show", "good", "--json").stdout)["settings"]
    words = ["--state", str(tmp_path / "state"), "sim", "run", "--rounds", "1", "--devices", "2"]
    words += ["--set", "data.limit=100"]
    runs = [
        edgefed(root, *words, "--json", "--algorithm", name, "--set", f"simulation.workers={count}")
        for name, count in (("good", 2), ("fedavg", 1))
    ]
    digests = [json.loads(run.stdout)["weights_digest"] for run in runs]
    assert digests[0] == digests[1], runs[0].stderr


def test_a_package_is_not_imported_before_its_algorithm_is_named(tmp_path: Path) -> None:
    root = tmp_path / "site"
    package(root, "nice-package", "good", GOOD, "nice_package:Good")
    assert "imported good" not in edgefed(root, "algo", "show", "fedavg").stderr
    assert "imported good" in edgefed(root, "algo", "show", "good").stderr


BROKEN_PACKAGES = {
    "import": (BROKEN, "Sad", "a_package_that_is_not_there"),
    "exit": (EXITS, "Sad", "leave me"),
    "class": (NO_ALGORITHM, "Thing", "no subclass"),
    "missing": (NO_ALGORITHM, "Nothing", "Nothing"),
    "name": (OTHER_NAME, "Good", "has the name 'other'"),
    "abstract": (ABSTRACT, "Half", "does not define"),
}
"""Source, the class that the package names, and why it cannot be used, by the algorithm's name."""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good package and each of the broken ones."""
    root = tmp_path_factory.mktemp("broken") / "site"
    package(root, "nice-package", "good", GOOD, "nice_package:Good")
    for name, (source, kind, _) in BROKEN_PACKAGES.items():
        package(root, f"sad-{name}", name, source, f"sad_{name}:{kind}")
    return root


def test_broken_packages_are_told_of_and_hide_no_other(broken: Path) -> None:
    listed = edgefed(broken, "algo", "list")
    assert listed.returncode == 0
    assert "good" in listed.stdout
    assert "fedmix" in listed.stdout
    for name, (_, _, reason) in BROKEN_PACKAGES.items():
        (told,) = (line for line in listed.stderr.splitlines() if f"package sad-{name}" in line)
        assert reason in told


def test_a_broken_package_that_is_named_is_an_error(broken: Path) -> None:
    shown = edgefed(broken, "algo", "show", "exit")
    assert shown.returncode == 2
    assert "algorithm.plugin" in shown.stderr
    assert "package sad-exit" in shown.stderr
    assert "leave me" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_one_package_seen_twice_offers_its_algorithm_once() -> None:
    point = EntryPoint("good", "nice:Good", PLUGINS.group)
    found = PLUGINS.offers([point, point])
    assert found.usable == {"good": point}
    assert not found.refused


LOADED = [
    ("path", "pathlib:Path", "pathlib:Path is no subclass"),
    ("sad", "a_package_that_is_not_there:Sad", "ModuleNotFoundError: No module named"),
    ("part", "edgefed.extension:Algorithm", "does not define answer, merge, plan, prepare"),
    ("mean", "edgefed.algorithms.averaging.fedavg:FedAvg", "has the name 'fedavg'"),
    ("bare", f"{__name__}:Nameless", "has the name ''"),
]


class Nameless(Algorithm[Any]):
    """Complete but for its name."""

    start = plan = merge = prepare = answer = FedAvg.start  # type: ignore[assignment]


@pytest.mark.parametrize(("name", "value", "said"), LOADED)
def test_what_is_loaded_must_be_an_algorithm(name: str, value: str, said: str) -> None:
    with pytest.raises(PluginError) as caught:
        PLUGINS.load(EntryPoint(name, value, PLUGINS.group))
    assert caught.value.code == "algorithm.plugin"
    assert caught.value.message.startswith(f"The algorithm '{name}' of package {value} cannot")
    assert said in caught.value.message
    assert caught.value.hint


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder whose packages are installed, and forget them afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    entry_points_found.cache_clear()
    yield tmp_path
    entry_points_found.cache_clear()
    for module in [name for name in sys.modules if name.startswith("a_plugin_")]:
        del sys.modules[module]


def test_the_registry_has_what_is_usable_and_tells_why_the_rest_is_not(installed: Path) -> None:
    quiet = "\n".join(line for line in GOOD.splitlines() if not line.startswith("print"))
    package(installed, "nice-package", "good", quiet, "a_plugin_nice:Good")
    package(installed, "sad-package", "sad", BROKEN, "a_plugin_sad:Sad")
    package(installed, "rude-package", "fedavg", "", "a_plugin_rude:Good")
    for number in (1, 2):
        package(installed, f"twin-{number}", "twin", "", f"a_plugin_{number}:Twin")
    assert algorithms().keys() - built_in().keys() == {"good"}
    assert list(algorithms()) == sorted(algorithms())
    assert find("good").summary == "FedAvg by another name"
    assert find("fedavg") is FedAvg
    problems = PLUGINS.problems()
    assert problems.keys() == {"sad", "fedavg", "twin"}
    assert all(f"'{name}'" in text for name, text in problems.items())
    assert "a_package_that_is_not_there" in problems["sad"]
    assert "rude-package" in problems["fedavg"]
    for name, said in (("sad", "sad-package"), ("twin", "package twin-1, package twin-2")):
        with pytest.raises(PluginError, match=said) as caught:
            find(name)
        assert caught.value.code == "algorithm.plugin"
        assert caught.value.hint
