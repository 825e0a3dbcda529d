"""The text of a Mosquitto ACL file: who may read and write which topics of a fleet.

A forbidden publication is acknowledged and dropped; a forbidden subscription is granted and stays
silent.
"""

from __future__ import annotations

from collections.abc import Iterable

from edgefed.wire.topics import Topics

COORDINATOR_USER = "coordinator"
OPERATOR_PREFIX = "operator."
VIEWER_PREFIX = "viewer."


def acl(fleet: str, users: Iterable[str]) -> str:
    """Return the rules for the holders of certificates, one section for each.

    The broker takes the common name of a certificate as the user (``trust.certificates.user_of``).
    Who is not named has no rights. There are no rules for ``%u``, so that a certificate that is
    valid but removed from the list, or from another list, opens nothing.

    Args:
        fleet: the fleet's name.
        users: the common names of the coordinator, the devices, the operators and the viewers.
    """
    topics = Topics(fleet)
    sections = [_enrolment(topics.root)]
    sections += [_section(user, _rules(topics, user)) for user in sorted(set(users))]
    return "\n".join(sections)


def password_acl(fleet: str) -> str:
    """Return the rules for a broker with users and passwords, where a device's user is its name.

    The coordinator may use every topic of the fleet. A device publishes below ``up/DEVICE`` and
    reads ``down/DEVICE``, ``all`` and its own presence, by which it meets another of its name;
    ``%u`` is its user name.
    """
    root = Topics(fleet).root
    return f"""\
# The coordinator, and the operator's dashboard, of fleet {fleet}.
user {COORDINATOR_USER}
topic readwrite {root}/#

# Every device: its user name is its name in the fleet.
pattern write {root}/up/%u/#
pattern read {root}/up/%u/birth
pattern read {root}/down/%u/#
pattern read {root}/all/#
"""


def _enrolment(root: str) -> str:
    """Return the rules for clients without a certificate; ``%c`` is the client id."""
    return f"""\
# Enrolment: everybody may ask, below their own client id, and nobody sees another's answer.
pattern write {root}/enrol/%c/request
pattern read {root}/enrol/%c/response
"""


def _section(user: str, rules: list[str]) -> str:
    return "\n".join([f"user {user}", *(f"topic {rule}" for rule in rules), ""])


def _rules(topics: Topics, user: str) -> list[str]:
    root = topics.root
    if user == COORDINATOR_USER:
        return _coordinator_rules(root, topics)
    if user.startswith((OPERATOR_PREFIX, VIEWER_PREFIX)):
        return [
            f"write {root}/control/{user}/+/request",
            f"read {root}/control/{user}/+/response",
            f"read {topics.events()}",
            f"read {topics.coordinator()}",
            f"readwrite {root}/check/{user}/#",
        ]
    return [
        f"write {topics.every_up_of(user)}",
        f"read {topics.birth(user)}",
        f"read {topics.every_down(user)}",
        f"read {root}/all/#",
    ]


def _coordinator_rules(root: str, topics: Topics) -> list[str]:
    """Return what the coordinator needs; it clears the births of devices that are removed."""
    return [
        f"read {topics.every_up()}",
        f"write {topics.every_birth()}",
        f"write {root}/down/#",
        f"readwrite {root}/all/#",
        f"readwrite {topics.events()}",
        f"read {root}/control/+/+/request",
        f"write {root}/control/+/+/response",
        f"read {root}/enrol/+/request",
        f"write {root}/enrol/+/response",
        f"readwrite {root}/check/{COORDINATOR_USER}/#",
    ]
