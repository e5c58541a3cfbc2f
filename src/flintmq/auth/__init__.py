"""Who may log in and what they may do: users, passwords, SASL mechanisms, permissions.

    octets of a SASL response -> Mechanism -> Accepted(user) | Refused | Verification (slow: off the loop)
    user, virtual host, operation, resource -> require() -> nothing, or a ChannelFault 403

Owns every decision about identity and access, for AMQP and HTTP alike. It must never know sockets:
the address of the peer comes in as text. Begin with users.py.
"""

from flintmq.auth.access import Operation, may, require, require_topic, require_virtual_host
from flintmq.auth.mechanisms import Challenge, Mechanism, login_refused, mechanism, mechanisms_offered
from flintmq.auth.permissions import Permissions
from flintmq.auth.user import Tag, User
from flintmq.auth.users import Accepted, Refused, Users, Verification

__all__ = [
    "Accepted",
    "Challenge",
    "Mechanism",
    "Operation",
    "Permissions",
    "Refused",
    "Tag",
    "User",
    "Users",
    "Verification",
    "login_refused",
    "may",
    "mechanism",
    "mechanisms_offered",
    "require",
    "require_topic",
    "require_virtual_host",
]
