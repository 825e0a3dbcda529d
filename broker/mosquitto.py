"""Find Mosquitto, and run it as a child process with a generated configuration."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from broker.address import require_free
from broker.child_process import ChildProcess, wait_until_accepting
from broker.configuration import configuration
from broker.running_broker import BrokerProcess
from edgefed.config.address import Address
from edgefed.errors import UsageError
from edgefed.files import make_folder, write_atomic

INSTALL_HINT = "apt install mosquitto"
_FOLDERS_BESIDE_PATH = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")


def find_mosquitto() -> Path | None:
    """Return the Mosquitto program, or None.

    Besides ``PATH`` the system's folders are searched, which an ordinary user's often lacks.
    """
    folders = os.pathsep.join((os.environ.get("PATH", os.defpath), *_FOLDERS_BESIDE_PATH))
    found = shutil.which("mosquitto", path=folders)
    return Path(found) if found else None


class MosquittoBroker(BrokerProcess):
    """A running Mosquitto. It ends with ``stop``, or with this process.

    Args:
        address: where it listens.
        folder: for its configuration, log and database; created when absent.
        allow_anonymous: whether clients without a user name are let in; None for loopback only.
        program: the Mosquitto program; searched for when left out.

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
    ) -> None:
        program = program or find_mosquitto()
        if program is None:
            raise UsageError(
                "Mosquitto is not installed.", code="broker.no_mosquitto", hint=INSTALL_HINT
            )
        require_free(address)
        folder = folder.expanduser().absolute()
        database = make_folder(folder / "database")
        # Started as root it would drop to a user who may not reach the folder.
        user = "root" if os.name == "posix" and os.geteuid() == 0 else ""
        text = configuration(address, database, allow_anonymous=allow_anonymous, user=user)
        file = folder / "mosquitto.conf"
        write_atomic(file, (text + "\nlog_dest stderr\n").encode())
        child = ChildProcess(
            [str(program), "-c", str(file)], folder=folder, log=folder / "mosquitto.log"
        )
        wait_until_accepting(child, address)
        super().__init__(address, child)
