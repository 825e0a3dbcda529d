"""The text of a Mosquitto ACL file: the users that may read and write each topic of a fleet.

A forbidden publication is acknowledged and dropped; a forbidden subscription is granted and stays
silent.

A user that may write a topic may also have a message retained on it, and no rule distinguishes
retained messages from others. Topics that others than the coordinator write are therefore named one
by one.
"""

from __future__ import annotations

from collections.abc import Iterable

from edgefed.trust.enrolment_login import COORDINATOR_USER
from edgefed.wire.topics import Topics

OPERATOR_PREFIX = "operator."
VIEWER_PREFIX = "viewer."


def acl(fleet: str, users: Iterable[str]) -> str:
    """Return the rules for the holders of certificates, one section for each.

    The broker takes the common name of a certificate as the user (``trust.certificates.user_of``).
    Users that are not named have no rights. There are no rules for ``%u``, so that a valid
    certificate that is not in the list has no rights.

    Args:
        fleet: the fleet's name.
        users: the common names of the coordinator, the devices, the operators and the viewers.
    """
    topics = Topics(fleet)
    return "\n".join(_section(user, _rules(topics, user)) for user in sorted(set(users)))


def enrolment_acl(fleet: str) -> str:
    """Return the rules of the broker for enrolment; ``%c`` is the client id."""
    root = Topics(fleet).root
    return f"""\
# Everybody may ask, below their own client id, and nobody sees another's answer.
pattern write {root}/enrol/%c/request
pattern read {root}/enrol/%c/response

user {COORDINATOR_USER}
topic read {root}/enrol/+/request
topic write {root}/enrol/+/response
"""


def password_acl(fleet: str) -> str:
    """Return the rules for a broker with users and passwords, where a device's user is its name.

    The coordinator may use every topic of the fleet. A device publishes to its topics below
    ``up/DEVICE`` and reads ``down/DEVICE``, ``all`` and its own presence, by which it detects
    another of its name, as a gateway does; ``%u`` is its user name.
    """
    topics = Topics(fleet)
    root = topics.root
    below = topics.written_by_device("device")
    own = (f"{root}/up/%u/{topic.rpartition('/')[2]}" for topic in below)
    writes = "\n".join(f"pattern write {topic}" for topic in own)
    return f"""\
# The coordinator, and the operator's dashboard, of fleet {fleet}.
user {COORDINATOR_USER}
topic readwrite {root}/#

# Every device: its user name is its name in the fleet.
{writes}
pattern read {root}/up/%u/birth
pattern read {root}/up/%u/gateway
pattern read {root}/down/%u/#
pattern read {root}/all/#
"""


def _section(user: str, rules: list[str]) -> str:
    return "\n".join([f"user {user}", *(f"topic {rule}" for rule in rules), ""])


def _rules(topics: Topics, user: str) -> list[str]:
    root = topics.root
    if user == COORDINATOR_USER:
        return _coordinator_rules(root, topics)
    if user.startswith((OPERATOR_PREFIX, VIEWER_PREFIX)):
        return [
            *(f"write {topic}" for topic in topics.written_by_client(user)),
            f"read {root}/control/{user}/+/response",
            f"read {topics.events()}",
            f"read {topics.coordinator()}",
            f"read {root}/check/{user}/+",
        ]
    return [
        *(f"write {topic}" for topic in topics.written_by_device(user)),
        f"read {topics.birth(user)}",
        f"read {topics.gateway(user)}",
        f"read {topics.every_down(user)}",
        f"read {root}/all/#",
    ]


def _coordinator_rules(root: str, topics: Topics) -> list[str]:
    """Return the coordinator's rules; it clears the retained messages of others."""
    return [
        f"readwrite {root}/up/+/+",
        f"write {root}/down/#",
        f"readwrite {root}/all/#",
        f"readwrite {topics.events()}",
        f"readwrite {root}/control/+/+/request",
        f"write {root}/control/+/+/response",
        f"read {root}/check/{COORDINATOR_USER}/+",
        f"write {root}/check/+/+",
    ]
