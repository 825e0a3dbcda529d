"""The text of a Mosquitto configuration with TLS: three listeners, and who may connect to them."""

from __future__ import annotations

from pathlib import Path

from broker.configuration import option_path, shared_lines
from broker.listeners import LISTENERS, Listener
from broker.secured_files import SecuredFiles
from edgefed.wire.topics import CLIENT_ID_PREFIX


def secured_configuration(
    port: int,
    files: SecuredFiles,
    *,
    bind: str = "",
    persistence: Path | None = None,
    user: str = "",
) -> str:
    """Return a Mosquitto 2 configuration with TLS.

    Mosquitto reads the files again on SIGHUP. A user that is no longer in the access rules can
    neither send nor receive from then on, and a revoked certificate cannot connect again.

    Args:
        port: of the devices' listener; enrolment and commands have the next two.
        files: certificates, revocations and access rules.
        bind: the address to listen on; empty for all addresses of this machine.
        persistence: folder for the broker's own database; None leaves it to Mosquitto's main
            configuration file, so that the text can be put into its ``conf.d``.
        user: the user that Mosquitto becomes when started as root; Mosquitto's default when empty.

    Raises:
        UsageError: a path that a configuration file cannot hold.
    """
    lines = [line for each in LISTENERS for line in _listener(each, port, bind, files)]
    lines += [
        "# Certificates name the users. Clients without one reach only enrolment and have no user:",
        "# the list of users with passwords is empty, so that nobody can claim a user's name.",
        "allow_anonymous true",
        f"password_file {option_path(files.passwords)}",
        f"acl_file {option_path(files.acl)}",
        "",
        "# A client id is a certificate's name or begins so: none can be another's.",
        f"clientid_prefixes {CLIENT_ID_PREFIX}",
        "",
    ]
    return "\n".join([*lines, *shared_lines(persistence, user)]) + "\n"


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
