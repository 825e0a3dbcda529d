"""The text of a Mosquitto configuration without TLS, and the limits that hold with TLS too."""

from __future__ import annotations

from pathlib import Path

from broker.address import bind_host
from broker.listeners import DEVICES
from edgefed.config.values.address import Address
from edgefed.errors import UsageError
from edgefed.wire.limits import MAX_PACKET_BYTES

MAX_CONNECTIONS = DEVICES.max_connections
MAX_QUEUED_MESSAGES = 20 * MAX_CONNECTIONS
"""Beyond this a client's messages are dropped, retained ones at its subscription among them. A
coordinator that starts receives one retained presence of every device, and all devices may begin a
task and answer it at the same moment: the queue holds them."""

MAX_QUEUED_BYTES = 256 * 1024**2
"""The same in bytes, since chunks for a slow device are large."""

MAX_INFLIGHT_MESSAGES = 20
MAX_KEEPALIVE_SECONDS = 120
MEMORY_LIMIT_BYTES = 1024**3

LIMITS = f"""\
# Small messages go out at once instead of waiting for more (Nagle).
set_tcp_nodelay true

# A chunk and head room; a client that sends more is disconnected.
max_packet_size {MAX_PACKET_BYTES}

max_inflight_messages {MAX_INFLIGHT_MESSAGES}

# Never 0: some versions then drop everything. Room for what every device says in one moment.
max_queued_messages {MAX_QUEUED_MESSAGES}
max_queued_bytes {MAX_QUEUED_BYTES}

max_keepalive {MAX_KEEPALIVE_SECONDS}
memory_limit {MEMORY_LIMIT_BYTES}

# Presence and state survive a restart; a crash loses the last minute.
persistence true
autosave_interval 60
persistent_client_expiration 1d
"""


def configuration(
    listen: Address,
    persistence: Path | None = None,
    *,
    allow_anonymous: bool | None = None,
    passwords: Path | None = None,
    acl: Path | None = None,
    user: str = "",
) -> str:
    """Return a Mosquitto 2 configuration without TLS.

    Args:
        listen: address and port.
        persistence: folder for the broker's own database; None leaves it to Mosquitto's main
            configuration file, so that the text can be put into its ``conf.d``.
        allow_anonymous: whether clients without a user name are let in; None for loopback only.
        passwords: file made by ``mosquitto_passwd``. Client ids stay the clients' own: commands and
            dashboards share a user, and would disconnect each other if it were their id.
        acl: file with the rules of :func:`broker.acl.acl`.
        user: the user that Mosquitto becomes when started as root; Mosquitto's default when empty.

    Raises:
        UsageError: a path that a configuration file cannot hold.
    """
    anonymous = listen.is_loopback if allow_anonymous is None else allow_anonymous
    lines = [f"listener {listen.port} {bind_host(listen)}", "", *_who(anonymous, passwords, acl)]
    lines += [f"max_connections {MAX_CONNECTIONS}"]
    return "\n".join([*lines, *shared_lines(persistence, user)]) + "\n"


def shared_lines(persistence: Path | None, user: str) -> list[str]:
    """Return the options that do not belong to a listener.

    Args:
        persistence: as in ``configuration``.
        user: as in ``configuration``.

    Raises:
        UsageError: a path that a configuration file cannot hold.
    """
    lines = [f"user {user}"] if user else []
    lines += ["", LIMITS.rstrip()]
    if persistence is not None:
        lines += [f"persistence_location {option_path(persistence)}"]
    return lines


def _who(anonymous: bool, passwords: Path | None, acl: Path | None) -> list[str]:
    lines = [f"allow_anonymous {'true' if anonymous else 'false'}"]
    if passwords is not None:
        lines += [f"password_file {option_path(passwords)}"]
    elif not anonymous:
        lines += ["# Nobody is let in before there are users: mosquitto_passwd -c FILE NAME, then"]
        lines += ["# password_file FILE"]
    if acl is not None:
        lines += [f"acl_file {option_path(acl)}"]
    return lines


def option_path(path: Path) -> str:
    """Return a path as an option's value.

    Raises:
        UsageError: it would end the line.
    """
    text = str(path.expanduser().absolute())
    if not text.isprintable():
        raise UsageError(
            f"{text!r} cannot be part of a Mosquitto configuration.",
            code="broker.path",
            hint="choose a path without line breaks",
        )
    return text
