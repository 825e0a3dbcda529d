"""Links in the pages lead somewhere, and the files in deploy/ are what the program prints."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from broker.acl import acl
from broker.mosquitto import PLUGIN_COPY
from broker.secured_configuration import (
    ENROLMENT_OPEN_FILES,
    enrolment_configuration,
    secured_configuration,
)
from broker.secured_files import SecuredFiles
from edgefed.config.fleet.settings import Settings
from edgefed.config.values.address import TLS_PORT
from tests.processes import clean_environment
from tests.programs.forked_programs import ended

ROOT = Path(__file__).parents[2]
MODULES = [file for file in (ROOT / "benchmarks").glob("*.py") if file.stem != "__init__"]
BENCHMARKS = {file.stem: file for file in MODULES} | {
    file.parent.name: file for file in (ROOT / "benchmarks").glob("*/__main__.py")
}
"""The file of each command ``python -m benchmarks.NAME``, by name."""

INSTALLED = Path("/etc/mosquitto/edgefed")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def test_the_readme_links_to_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT).as_posix() for page in PAGES if page.parent != ROOT]
    assert pages and [page for page in pages if f"]({page})" not in text] == []


def test_a_benchmark_is_started_as_a_module_everywhere() -> None:
    sources = [*BENCHMARKS.values(), ROOT / "Makefile", *(ROOT / "tests").rglob("*.py")]
    for file in (*PAGES, *sources):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"python[0-9.]* benchmarks/", text), file
        assert not re.search(r'"benchmarks" / "\w+\.py"', text), file


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_says_how_it_is_started(name: str) -> None:
    module, file = f"benchmarks.{name}", BENCHMARKS[name]
    assert f"python -m {module}" in file.read_text(encoding="utf-8").split('"""')[1]
    told = ended([module, "--help"], clean_environment(), ROOT)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith(f"usage: python -m {module} ")


@pytest.mark.parametrize(
    ("name", "make"),
    [
        (
            "mosquitto.conf",
            partial(secured_configuration, plugin=INSTALLED / PLUGIN_COPY),
        ),
        ("mosquitto-enrolment.conf", enrolment_configuration),
    ],
)
def test_the_configuration_to_deploy_is_the_programs(
    name: str, make: Callable[[int, SecuredFiles], str]
) -> None:
    text = make(TLS_PORT, SecuredFiles(INSTALLED, INSTALLED))
    lines = (ROOT / "deploy" / name).read_text(encoding="utf-8").splitlines()
    comment = next(number for number, line in enumerate(lines) if not line)
    assert all(line.startswith("#") for line in lines[:comment])
    assert "\n".join(lines[comment + 1 :]) + "\n" == text


def test_the_units_limit_the_connections_to_enrolment() -> None:
    unit = (ROOT / "deploy" / "edgefed-enrolment.service").read_text(encoding="utf-8").splitlines()
    assert f"LimitNOFILE={ENROLMENT_OPEN_FILES}" in unit
    assert "ExecStart=/usr/sbin/mosquitto -c /etc/mosquitto/edgefed/enrolment.conf" in unit


def test_the_rules_to_deploy_are_the_programs() -> None:
    fleet = Settings(state=Path()).fleet
    users = ["coordinator", "cam-1", "operator.admin", "viewer.hall"]
    assert (ROOT / "deploy" / "edgefed.acl").read_text(encoding="utf-8") == acl(fleet, users)
