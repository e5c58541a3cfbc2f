"""A web server that says who may do what, in the words of RabbitMQ's HTTP back end.

user_path        username, password                                      allow [tags] | deny
vhost_path       username, vhost, ip, tags                               allow | deny
resource_path    username, vhost, resource, name, permission, tags       allow | deny
topic_path       as resource_path, and routing_key                       allow | deny
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from flintmq.auth.backend import BackendFault, Identity, Login
from flintmq.auth.backends.web import web
from flintmq.auth.user import Tag

if TYPE_CHECKING:
    from flintmq.clock import Clock
    from flintmq.config import HttpAuth

# "allow" and some tags.
ANSWER_OCTETS_MAX = 4096


class HttpBackend:
    """Asks a web server, each time; who asks it keeps the answers."""

    can_renew = False

    def __init__(self, settings: HttpAuth, clock: Clock) -> None:
        self._settings = settings
        self.timeout_s = settings.timeout_s
        self.cache_s = settings.cache_s
        self._web = web(clock, settings.timeout_s, settings.authority, "auth.http")

    def authenticate(self, login: Login) -> Identity | None:
        asked = {"username": login.name}
        if login.password is not None:
            try:
                asked["password"] = login.password.decode()
            except UnicodeDecodeError:
                return None
        words = self._ask(self._settings.user_path, asked)
        if words is None:
            return None
        known = {str(tag) for tag in Tag}
        return Identity(login.name, frozenset(Tag(word) for word in words if word in known), permissions=None)

    def may_enter(self, identity: Identity, virtual_host: str, peer_address: str) -> bool:
        asked = {"username": identity.name, "vhost": virtual_host, "ip": peer_address, "tags": tags(identity)}
        return self._ask(self._settings.vhost_path, asked) is not None

    def may(self, identity: Identity, virtual_host: str, kind: str, name: str, operation: str) -> bool:
        asked = self._resource(identity, virtual_host, kind, name, operation)
        return self._ask(self._settings.resource_path, asked) is not None

    def may_use_topic(
        self, identity: Identity, virtual_host: str, exchange: str, operation: str, routing_key: str
    ) -> bool:
        if not self._settings.topic_path:
            return True
        asked = self._resource(identity, virtual_host, "topic", exchange, operation)
        asked["routing_key"] = routing_key
        asked["variable_map.username"] = identity.name
        asked["variable_map.vhost"] = virtual_host
        return self._ask(self._settings.topic_path, asked) is not None

    def _resource(
        self, identity: Identity, virtual_host: str, kind: str, name: str, operation: str
    ) -> dict[str, str]:
        return {
            "username": identity.name,
            "vhost": virtual_host,
            "resource": kind,
            "name": name,
            "permission": operation,
            "tags": tags(identity),
        }

    def _ask(self, url: str, asked: dict[str, str]) -> list[str] | None:
        """The words behind "allow"; None for "deny"."""
        form = urlencode(asked, errors="surrogateescape")
        if self._settings.method == "post":
            status, octets = self._web.ask("POST", url, form.encode(), ANSWER_OCTETS_MAX)
        else:
            joint = "&" if "?" in url else "?"
            status, octets = self._web.ask("GET", f"{url}{joint}{form}", None, ANSWER_OCTETS_MAX)
        words = octets.decode("utf-8", "replace").split()
        said = words[0].lower() if words else ""
        if status in (200, 201) and said in ("allow", "deny"):
            return words[1:] if said == "allow" else None
        raise BackendFault(f"{url} answers with status {status}, and neither allow nor deny")


def tags(identity: Identity) -> str:
    return " ".join(sorted(identity.tags))
