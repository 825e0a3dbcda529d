"""The demo broker: amqtt in its own process, on this machine only.

``python -m broker.embedded HOST PORT`` runs it in the foreground. It has no users, no access rules
and no TLS, and stores nothing on disk.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from pathlib import Path

from broker.address import bind_host, require_free
from broker.broker_interface import BrokerProcess
from broker.child_process import ChildProcess, wait_until_accepting
from edgefed.config.values.address import Address
from edgefed.errors import EdgeFedError, UsageError


def embedded_is_installed() -> bool:
    """Whether the demo broker's library (amqtt) is installed."""
    return importlib.util.find_spec("amqtt") is not None


def require_demo(address: Address) -> None:
    """Make sure that the demo broker may and can serve the address.

    Raises:
        UsageError: other machines could reach it, or amqtt is not installed.
    """
    if not address.is_loopback:
        raise UsageError(
            f"The demo broker serves this machine only, not {address.host}.",
            code="broker.demo_only",
            hint="use Mosquitto for other machines: apt install mosquitto",
        )
    if not embedded_is_installed():
        raise UsageError(
            "The demo broker is not installed.",
            code="broker.no_embedded",
            hint="apt install mosquitto, or pip install 'edgefed[demo]'",
        )


class EmbeddedBroker(BrokerProcess):
    """A running demo broker. It ends with ``stop``, or with this process.

    Args:
        address: of its listener; loopback only.
        folder: for its log; created when absent.

    Raises:
        UsageError: the address is not loopback, the port is taken, or amqtt is not installed.
        UnreachableError: it ended at once, or does not accept connections.
        StorageError: the folder cannot be written.
    """

    name = "embedded"

    def __init__(self, address: Address, folder: Path) -> None:
        require_demo(address)
        require_free(address)
        folder = folder.expanduser().absolute()
        child = ChildProcess(
            [sys.executable, "-m", "broker.embedded", bind_host(address), str(address.port)],
            folder=folder,
            log=folder / "embedded-broker.log",
            last_signal=signal.SIGKILL,
            environment=_environment(),
        )
        wait_until_accepting(child, address)
        super().__init__(address, child)


def _environment() -> dict[str, str]:
    """Return this environment, with the packages found from any working folder."""
    packages = str(Path(__file__).absolute().parent.parent)
    others = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (packages, others)))}


def main(arguments: list[str]) -> int:
    """Serve HOST PORT until SIGTERM or Ctrl-C; return the exit code."""
    try:
        if len(arguments) != 2 or not arguments[1].isdecimal():
            raise UsageError("The demo broker needs an address and a port: HOST PORT.")
        address = Address(arguments[0], int(arguments[1]))
        require_demo(address)
        from broker.embedded_server import serve

        sys.stderr.write(f"demo broker on {address}: for this machine only, keeps nothing\n")
        serve(address)
    except EdgeFedError as error:
        sys.stderr.write(f"broker.embedded: error: {error.message}  [{error.code}]\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
