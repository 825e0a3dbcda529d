"""Find Mosquitto and its plug-in, and run it as a child process with a generated configuration."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from broker.address import require_free
from broker.broker_interface import BrokerProcess
from broker.child_process import (
    NO_LIMITS,
    OPENING_SECONDS,
    ChildProcess,
    ProcessLimits,
    wait_until_accepting,
)
from broker.configuration import configuration
from edgefed.config.values.address import Address
from edgefed.errors import UsageError
from edgefed.files.writing import make_folder, write_atomic
from edgefed.native.library import find

INSTALL_HINT = "apt install mosquitto"
PLUGIN_HINT = "install a C compiler, then EdgeFed again"
PLUGIN_COPY = "subscriptions.so"
"""Name of the plug-in in a folder from which the system's Mosquitto reads its files."""

_FOLDERS_BESIDE_PATH = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")


def find_mosquitto() -> Path | None:
    """Return the Mosquitto program, or None.

    Besides ``PATH`` the system's folders are searched, which an ordinary user's often lacks.
    """
    folders = os.pathsep.join((os.environ.get("PATH", os.defpath), *_FOLDERS_BESIDE_PATH))
    program = shutil.which("mosquitto", path=folders)
    return Path(program) if program else None


def find_plugin() -> Path | None:
    """Return Mosquitto's plug-in that limits subscriptions; None where it could not be built."""
    return find(Path(__file__).parent, "_subscriptions")


class MosquittoBroker(BrokerProcess):
    """A running Mosquitto. It ends with ``stop``, or with this process.

    Args:
        address: of its listener.
        folder: for its configuration, log and database; created when absent.
        allow_anonymous: whether clients without a user name are let in; None for loopback only.
        program: the Mosquitto program; searched for when left out.
        tell: takes one line about a start that takes long.

    Raises:
        UsageError: Mosquitto is not installed, or the port is taken.
        UnreachableError: it ended at once, or does not accept connections.
        StorageError: the folder cannot be written.
    """

    name = "mosquitto"

    def __init__(
        self,
        address: Address,
        folder: Path,
        *,
        allow_anonymous: bool | None = None,
        program: Path | None = None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        folder = folder.expanduser().absolute()
        text = configuration(
            address,
            database_folder(folder),
            allow_anonymous=allow_anonymous,
            user=mosquitto_user(),
        )
        super().__init__(address, run_mosquitto(text, address, folder, program=program, tell=tell))


def run_mosquitto(
    text: str,
    address: Address,
    folder: Path,
    *,
    more: Sequence[Address] = (),
    program: Path | None = None,
    limits: ProcessLimits = NO_LIMITS,
    tell: Callable[[str], None] = lambda line: None,
) -> ChildProcess:
    """Run Mosquitto with a configuration, and return it once it accepts connections.

    Args:
        text: the configuration.
        address: of its first listener.
        folder: for its configuration and log.
        more: addresses of its other listeners.
        program: the Mosquitto program; searched for when left out.
        limits: of the process.
        tell: takes one line about a start that takes long.

    Raises:
        UsageError: Mosquitto is not installed, or a port is taken.
        UnreachableError: it ended at once, or does not accept connections.
        StorageError: the folder cannot be written.
    """
    program = program or find_mosquitto()
    if program is None:
        raise UsageError(
            "Mosquitto is not installed.", code="broker.no_mosquitto", hint=INSTALL_HINT
        )
    for listener in (address, *more):
        require_free(listener)
    file = folder / "mosquitto.conf"
    write_atomic(file, (text + "\nlog_dest stderr\n").encode())
    child = ChildProcess(
        [str(program), "-c", str(file)],
        folder=folder,
        log=folder / "mosquitto.log",
        limits=limits,
    )
    for listener in (address, *more):
        wait_until_accepting(child, listener, opening=OPENING_SECONDS, tell=tell)
    return child


def database_folder(folder: Path) -> Path:
    """Create the folder of a broker's own database below the broker's, and return it.

    Raises:
        StorageError: it cannot be made.
    """
    return make_folder(folder / "database")


def mosquitto_user() -> str:
    """Return the user that Mosquitto becomes: root if we are, since it would drop to another.

    That user may not reach the broker's folders.
    """
    return "root" if os.name == "posix" and os.geteuid() == 0 else ""
