"""The texts of Mosquitto configurations with TLS: of the fleet's broker, and of enrolment's."""

from __future__ import annotations

from pathlib import Path

from broker.configuration import MAX_INFLIGHT_MESSAGES, option_path, shared_lines
from broker.listeners import ENROLMENT, FLEET, Listener
from broker.secured_files import SecuredFiles
from edgefed.wire.topics import CLIENT_ID_PREFIX

ENROLMENT_OPEN_FILES = 64
"""Open files of its process: the connections that ``max_connections`` admits, and a few more.
Mosquitto 2.0 admits more than ``max_connections`` after some have ended; the system does not."""

ENROLMENT_LIMITS = f"""\
# Nothing outlives its connection: strangers could leave as much as they want.
retain_available false
persistence false

# A certificate and head room; a client that sends more is disconnected.
max_packet_size {ENROLMENT.max_packet}

max_inflight_messages {MAX_INFLIGHT_MESSAGES}

# What every stranger asks in one moment.
max_queued_messages 256
max_queued_bytes 1048576

max_keepalive 60
memory_limit 33554432
set_tcp_nodelay true
"""


def secured_configuration(
    port: int,
    files: SecuredFiles,
    *,
    bind: str = "",
    persistence: Path | None = None,
    user: str = "",
    plugin: Path | None = None,
) -> str:
    """Return a Mosquitto 2 configuration with TLS, for all but enrolment.

    Mosquitto reads the files again on SIGHUP. A user that is no longer in the access rules can
    neither send nor receive from then on, and a revoked certificate cannot connect again.

    Args:
        port: of the devices' listener; commands have the one after the next.
        files: certificates, revocations and access rules.
        bind: the address to listen on; empty for all addresses of this machine.
        persistence: folder for the broker's own database; None leaves it to Mosquitto's main
            configuration file, so that the text can be put into its ``conf.d``.
        user: the user that Mosquitto becomes when started as root; Mosquitto's default when empty.
        plugin: limits subscriptions; without it, parties with a certificate can freeze the broker
            with them.

    Raises:
        UsageError: a path that a configuration file cannot hold.
    """
    lines = [line for listener in FLEET for line in _listener(listener, port, bind, files)]
    lines += [
        "# Certificates name the users.",
        "allow_anonymous false",
        f"acl_file {option_path(files.acl)}",
        "",
        *_client_ids(),
    ]
    if plugin is not None:
        lines += [
            "# Access rules refuse no subscription; this does.",
            f"plugin {option_path(plugin)}",
            "",
        ]
    return "\n".join([*lines, *shared_lines(persistence, user)]) + "\n"


def enrolment_configuration(
    port: int, files: SecuredFiles, *, bind: str = "", user: str = ""
) -> str:
    """Return the configuration of a Mosquitto 2 for enrolment alone.

    Start it with at most ``ENROLMENT_OPEN_FILES`` open files.

    Args:
        port: of the devices' listener; enrolment has the next one.
        files: certificates, access rules and passwords.
        bind: as in ``secured_configuration``.
        user: as in ``secured_configuration``.

    Raises:
        UsageError: a path that a configuration file cannot hold.
    """
    lines = [f"user {user}", ""] if user else []
    lines += [
        *_listener(ENROLMENT, port, bind, files),
        "# Strangers have no user; the coordinator has a password.",
        "allow_anonymous true",
        f"password_file {option_path(files.enrolment_passwords)}",
        f"acl_file {option_path(files.enrolment_acl)}",
        "",
        *_client_ids(),
    ]
    return "\n".join([*lines, ENROLMENT_LIMITS.rstrip()]) + "\n"


def _client_ids() -> list[str]:
    return [
        "# A client id is a certificate's name or begins so: none can be another's.",
        f"clientid_prefixes {CLIENT_ID_PREFIX}",
        "",
    ]


def _listener(listener: Listener, port: int, bind: str, files: SecuredFiles) -> list[str]:
    lines = [
        f"# {listener.purpose}",
        f"listener {port + listener.offset} {bind}".rstrip(),
        f"cafile {option_path(files.authority)}",
        f"certfile {option_path(files.certificate)}",
        f"keyfile {option_path(files.key)}",
        "tls_version tlsv1.3",
        f"max_connections {listener.max_connections}",
        f"require_certificate {_word(listener.certificate)}",
    ]
    if listener.certificate:
        lines += [f"crlfile {option_path(files.revoked)}", "use_identity_as_username true"]
    if listener.one_connection:
        lines += ["use_username_as_clientid true"]
    return [*lines, ""]


def _word(flag: bool) -> str:
    return "true" if flag else "false"
