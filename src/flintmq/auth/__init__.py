"""Who may log in and what they may do: users, passwords, SASL mechanisms, back ends, permissions.

    octets of a SASL response -> Mechanism -> Accepted(user) | Refused | Verification (slow: off the loop)
    user, virtual host, operation, resource -> require() -> nothing, or a ChannelFault 403

Owns every decision about identity and access, for AMQP and HTTP alike. It must never know sockets:
the address of the peer comes in as text. Begin with authentication.py and users.py.
"""

from flintmq.auth.asked_permissions import AnswerPending
from flintmq.auth.authentication import Authentication
from flintmq.auth.mechanisms import Challenge, Mechanism, mechanism
from flintmq.auth.permission_checks import (
    Heeded,
    Operation,
    may,
    require,
    require_topic,
    require_virtual_host,
)
from flintmq.auth.permissions import Permissions
from flintmq.auth.user import Tag, User
from flintmq.auth.users import Accepted, Refused, Users, Verification

__all__ = [
    "Accepted",
    "AnswerPending",
    "Authentication",
    "Challenge",
    "Heeded",
    "Mechanism",
    "Operation",
    "Permissions",
    "Refused",
    "Tag",
    "User",
    "Users",
    "Verification",
    "may",
    "mechanism",
    "require",
    "require_topic",
    "require_virtual_host",
]
