"""Users, virtual hosts, permissions, limits, policies and parameters of a definitions file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flintmq import checks
from flintmq.auth.passwords import KeyedHash, parse_hash, plain_hash
from flintmq.auth.permissions import TopicPermissions
from flintmq.auth.user import Tag, User
from flintmq.broker.administration import limits as limits_of
from flintmq.broker.administration import parameters as parameters_of
from flintmq.broker.administration.host_metadata import HOST_COMPONENT, HOST_METADATA, describe, is_news
from flintmq.broker.administration.permissions import check_patterns
from flintmq.broker.definitions.entry import Entry, host_of, quoted
from flintmq.broker.definitions.fields import Fields, field_value, named_values
from flintmq.broker.policies import Policy
from flintmq.checks import Unfit
from flintmq.config import PASSWORD_OCTETS_MAX, USER_TAGS, PermissionSettings
from flintmq.patterns.name_pattern import PatternFault
from flintmq.scram import ScramKeys

if TYPE_CHECKING:
    from flintmq.auth.passwords import PasswordHash
    from flintmq.broker.broker import Broker
    from flintmq.broker.definitions.draft import Draft
    from flintmq.wire.tables import FieldTable, FieldValue

# What RabbitMQ calls the kinds of hashes, and how many octets the salt and the digest have together.
HASH_OCTETS = {
    "rabbit_password_hashing_sha256": 36,
    "rabbit_password_hashing_sha512": 68,
    "rabbit_password_hashing_md5": 20,
}
# What the hashes of this broker are called, which RabbitMQ does not know.
OWN_HASHING = "flintmq"
HASH_CHARS_MAX = 1024
# A key of ours: the hash with the keys of SCRAM.
KEYED_HASH = "flintmq_password_hash"

# RabbitMQ's parameters of the whole broker have no component.
GLOBAL_COMPONENT = "global"
# Parameters of these components are something of its own here.
LIMITS_COMPONENT = "vhost-limits"
OPERATOR_POLICY_COMPONENT = "operator_policy"
# What RabbitMQ calls the queue type that each queue has here unless it asks for another one.
CLASSIC_NAMES = ("", "classic", "undefined", "rabbit_classic_queue")

# Keys of policies that are accepted and change nothing here, by what they begin with.
IDLE_KEYS = {
    "ha-": "this broker is one node: there are no mirrors",
    "federation-": "there is no federation",
    "queue-master-locator": "this broker is one node",
    "queue-leader-locator": "this broker is one node",
    "initial-cluster-size": "this broker is one node",
    "target-group-size": "this broker is one node",
    "queue-mode": "queues decide by themselves what lies on disk",
    "queue-version": "there is one kind of classic queue",
    "max-in-memory-": "queues decide by themselves what lies on disk",
}


class UserEntry(Entry):
    section = "users"
    rank = 0

    def read(self, fields: Fields, within: str) -> None:
        self.name = fields.name("name")
        self.label = quoted("user", self.name)
        self.password: bytes | None = None
        self.password_hash: PasswordHash | None = None
        self.read_password(fields)
        self.tags = self.read_tags(fields)
        self.limits = read_limits(fields.take("limits", named_values, {}), self.notes)

    def read_password(self, fields: Fields) -> None:
        password, written = fields.text("password", ""), fields.text("password_hash", "")
        algorithm, keyed = fields.text("hashing_algorithm", ""), fields.text(KEYED_HASH, "")
        if password and written:
            raise Unfit("give either password or password_hash")
        if password:
            self.password = password.encode("utf-8", "surrogateescape")
            if len(self.password) > PASSWORD_OCTETS_MAX:
                raise Unfit(f"password: expected text of 1 to {PASSWORD_OCTETS_MAX} octets")
        elif written:
            if max(len(written), len(keyed)) > HASH_CHARS_MAX:
                raise Unfit(f"password_hash: expected {HASH_CHARS_MAX} letters at most")
            if algorithm not in ("", OWN_HASHING, *HASH_OCTETS):
                raise Unfit(f"hashing_algorithm '{algorithm[:64]}': known are {', '.join(HASH_OCTETS)}")
            try:
                self.password_hash = parse_hash(keyed or written)
            except ValueError as error:
                raise Unfit(f"password_hash: {error}") from None
            if keyed and text_of(self.password_hash) != written:
                raise Unfit(f"{KEYED_HASH}: is of another password than password_hash")
            if algorithm in HASH_OCTETS and hashing_of(written) != algorithm:
                raise Unfit(f"password_hash: is not one of {algorithm}")
        else:
            self.notes.append("has no password: can log in by other means alone")

    def read_tags(self, fields: Fields) -> frozenset[Tag]:
        """An array, or text with commas in files of old."""
        given = fields.take("tags", lambda value: value, [])
        names = [each.strip() for each in given.split(",")] if isinstance(given, str) else given
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            raise Unfit("tags: expected an array of texts")
        unknown = [each for each in names if each and each not in USER_TAGS]
        if unknown:
            shown = ", ".join(f"'{each[:64]}'" for each in unknown)
            self.notes.append(f"tags that mean nothing here are left out: {shown}")
        return frozenset(Tag(each) for each in names if each in USER_TAGS)

    def check(self, draft: Draft) -> None:
        accounts, user = draft.broker.administration.accounts, draft.broker.users.get(self.name)
        if user is None:
            accounts.check_new(self.name)
            if self.name == "guest":
                self.notes.append("is added: delete it again if it was taken away here")
        elif not self.is_same(draft.broker):
            accounts.changeable(self.name)
            self.note_changes(user)
        check_limits(self.limits)
        draft.users.add(self.name)

    def note_changes(self, user: User) -> None:
        """Above all whoever imports wants to know of another password; one in plain may be the same."""
        changed = ["password"] if self.password is None and not self.has_password(user) else []
        changed += ["tags"] if user.tags != self.tags else []
        if changed:
            self.notes.append(f"is there already: the file changes its {' and its '.join(changed)}")

    def is_same(self, broker: Broker) -> bool:
        user = broker.users.get(self.name)
        return user is not None and user.tags == self.tags and self.has_password(user)

    def has_password(self, user: User) -> bool:
        """Whether the password is the one of the file; of one in plain nobody knows before it is checked."""
        lacks_keys = has_keys(self.password_hash) and not has_keys(user.password_hash)
        is_plain = self.password is not None and self.password_hash is None
        return not (lacks_keys or is_plain) and text_of(user.password_hash) == text_of(self.password_hash)

    def apply(self, broker: Broker) -> bool:
        accounts, user = broker.administration.accounts, broker.users.get(self.name)
        is_same = self.is_same(broker)
        if user is None:
            accounts.add(self.name, self.password_hash, self.tags)
            self.is_begun = True
        elif not is_same:
            if not self.has_password(user):
                accounts.set_password(self.name, self.password_hash)
                self.is_begun = True
            if user.tags != self.tags:
                accounts.set_tags(self.name, self.tags)
                self.is_begun = True
        return apply_limits(self, broker, (limits_of.USER, self.name), self.limits) or not is_same


def text_of(password_hash: PasswordHash | None) -> str:
    """The hash without keys of SCRAM, which RabbitMQ does not have."""
    return "" if password_hash is None else plain_hash(password_hash).text()


def has_keys(password_hash: PasswordHash | None) -> bool:
    """Whether keys of SCRAM are kept with it; those of passwords in the settings are made when needed."""
    return isinstance(password_hash, KeyedHash) and isinstance(password_hash.scram, ScramKeys)


def hashing_of(text: str) -> str:
    """What RabbitMQ calls the kind of a hash, by its length; the hashes of this broker begin with a $."""
    if text.startswith("$"):
        return OWN_HASHING
    octets = len(text.rstrip("=")) * 3 // 4
    return next((name for name, size in HASH_OCTETS.items() if size == octets), OWN_HASHING)


class HostEntry(Entry):
    section = "vhosts"
    rank = 1

    def read(self, fields: Fields, within: str) -> None:
        self.name = fields.name("name")
        self.label = quoted("virtual host", self.name)
        metadata = fields.table("metadata")
        for key in ("description", "tags", "default_queue_type", "protected_from_deletion"):
            value = fields.take(key, field_value, None)
            if value is not None:
                metadata.setdefault(key, value)
        self.metadata: FieldTable = {key: value for key, value in metadata.items() if value is not None}
        self.limits = fields.take("limits", named_values, {})  # for a LimitsEntry
        if self.metadata.get("default_queue_type", "") not in CLASSIC_NAMES:
            self.notes.append(
                f"default_queue_type {self.metadata['default_queue_type']!r} is kept, and queues that are "
                "declared without x-queue-type are classic all the same"
            )
        if fields.flag("tracing"):
            self.notes.append("tracing is left off")
        if self.metadata.get("protected_from_deletion") is True:
            self.notes.append("protected_from_deletion is kept, and protects from nothing here")

    def check(self, draft: Draft) -> None:
        if draft.host(self.name) is None:
            draft.broker.administration.virtual_hosts.check_new(self.name)
        if is_news(draft.broker.administration.parameters, self.name, self.metadata):
            draft.add_parameter((self.name, HOST_COMPONENT, HOST_METADATA), self.metadata)
        draft.hosts.add(self.name)

    def apply(self, broker: Broker) -> bool:
        is_new = self.name not in broker.virtual_hosts
        if is_new:
            broker.administration.virtual_hosts.add(self.name)
            self.is_begun = True
        return describe(broker.administration.parameters, self.name, self.metadata) or is_new


class PermissionEntry(Entry):
    section = "permissions"
    rank = 2

    def read(self, fields: Fields, within: str) -> None:
        self.host = host_of(fields, within)
        self.user = fields.name("user")
        self.label = f"permission of user '{self.user}' in virtual host '{self.host}'"
        patterns = [fields.text(each) for each in ("configure", "write", "read")]
        self.settings = PermissionSettings(*patterns)

    def check(self, draft: Draft) -> None:
        draft.require_user(self.user)
        draft.require_host(self.host)
        check_patterns(self.settings)
        if not self.is_same(draft.broker):
            draft.broker.administration.permissions.require_changeable(self.user, self.host)

    def is_same(self, broker: Broker) -> bool:
        user = broker.users.get(self.user)
        known = None if user is None else user.permissions.get(self.host)
        return known is not None and known.settings == self.settings

    def apply(self, broker: Broker) -> bool:
        if self.is_same(broker):
            return False
        broker.administration.permissions.set(self.user, self.host, self.settings)
        return True


class TopicPermissionEntry(Entry):
    section = "topic_permissions"
    rank = 3

    def read(self, fields: Fields, within: str) -> None:
        self.host = host_of(fields, within)
        self.user, self.exchange = fields.name("user"), fields.text("exchange")
        self.write, self.allowed = fields.text("write"), fields.text("read")
        self.label = (
            f"topic permission of user '{self.user}' for exchange '{self.exchange}' "
            f"in virtual host '{self.host}'"
        )

    def check(self, draft: Draft) -> None:
        draft.require_user(self.user)
        draft.require_host(self.host)
        if not 0 < checks.octets_of(self.exchange) <= checks.NAME_OCTETS_MAX:
            raise Unfit("exchange: expected the name of a topic exchange")
        try:
            TopicPermissions(self.write, self.allowed, self.user, self.host)
        except PatternFault as fault:
            raise Unfit(f"pattern: expected a regular expression ({fault})") from None

    def apply(self, broker: Broker) -> bool:
        user = broker.users.get(self.user)
        known = None if user is None else user.topic_permissions.get((self.host, self.exchange))
        if known is not None and (known.write, known.read) == (self.write, self.allowed):
            return False
        model = broker.administration.topic_permissions
        model.set(self.user, self.host, self.exchange, self.write, self.allowed)
        return True


class PolicyEntry(Entry):
    """A policy, or an operator policy, which RabbitMQ keeps among the parameters."""

    section = "policies"
    rank = 4
    is_operator = False

    def read(self, fields: Fields, within: str) -> None:
        self.host, self.name = host_of(fields, within), fields.name("name")
        self.label = quoted("policy", self.name, self.host)
        self.read_rules(fields)

    def read_rules(self, fields: Fields) -> None:
        self.policy = Policy(
            self.host,
            self.name,
            fields.text("pattern"),
            fields.take("definition", named_values, {}),
            fields.take("priority", checks.whole(-(2**31), 2**31 - 1), 0),
            fields.text("apply-to", "queues" if self.is_operator else "all"),
            self.is_operator,
        )
        for key in self.policy.definition:
            for start, why in IDLE_KEYS.items():
                if key.startswith(start):
                    self.notes.append(f"key '{key}' is kept and changes nothing: {why}")

    def check(self, draft: Draft) -> None:
        draft.require_host(self.host)
        if not self.is_same(draft.broker):
            draft.broker.policies.refuse_configured(self.host, self.name, self.is_operator)
        draft.add_policy((self.host, self.name), self.is_operator)

    def is_same(self, broker: Broker) -> bool:
        known, new = broker.policies.find(self.host, self.name, self.is_operator), self.policy
        return known is not None and rules_of(known) == rules_of(new)

    def apply(self, broker: Broker) -> bool:
        if self.is_same(broker):
            return False
        new = self.policy
        broker.policies.put(
            self.host, self.name, new.pattern, new.definition, new.priority, new.apply_to, self.is_operator
        )
        return True


def rules_of(policy: Policy) -> tuple[Any, ...]:
    return policy.pattern, dict(policy.definition), policy.priority, policy.apply_to


class OperatorPolicyEntry(PolicyEntry):
    section = "parameters"
    is_operator = True

    def read(self, fields: Fields, within: str) -> None:
        self.host, self.name = host_of(fields, within), fields.name("name")
        self.label = quoted("operator policy", self.name, self.host)
        fields.text("component")
        value = Fields(fields.take("value", checks.table))
        self.read_rules(value)
        if value.rest():
            raise Unfit(f"value: no such key: {', '.join(value.rest())}")


class ParameterEntry(Entry):
    section = "parameters"
    rank = 5

    def read(self, fields: Fields, within: str) -> None:
        self.host = host_of(fields, within)
        self.read_rest(fields, fields.name("component"))
        self.label = quoted("parameter", f"{self.component}/{self.name}", self.host)
        self.notes.append("is kept, and nothing here acts on it")

    def read_rest(self, fields: Fields, component: str) -> None:
        self.component, self.name = component, fields.name("name")
        if not fields.has("value"):
            fields.given["value"] = None
        self.value: FieldValue = fields.take("value", field_value)

    def check(self, draft: Draft) -> None:
        if self.host:
            draft.require_host(self.host)
        draft.add_parameter((self.host, self.component, self.name), self.value)

    def apply(self, broker: Broker) -> bool:
        parameters = broker.administration.parameters
        key = (self.host, self.component, self.name)
        if key in parameters.values and parameters.values[key] == self.value:
            return False
        parameters.set(*key, self.value)
        return True


class GlobalParameterEntry(ParameterEntry):
    section = "global_parameters"

    def read(self, fields: Fields, within: str) -> None:
        self.host = parameters_of.WHOLE_BROKER
        self.read_rest(fields, fields.text("component", GLOBAL_COMPONENT))
        self.label = quoted("global parameter", self.name)


def limits_item(virtual_host: str, limits: FieldTable) -> FieldTable:
    """The parameter that says what a virtual host may have."""
    return {"vhost": virtual_host, "component": LIMITS_COMPONENT, "name": "limits", "value": limits}


class LimitsEntry(Entry):
    """The last of all: limits are not meant for what the file itself brings."""

    section = "parameters"
    rank = 9

    def read(self, fields: Fields, within: str) -> None:
        self.host = host_of(fields, within)
        fields.text("component")
        fields.text("name")
        self.label = f"limits of virtual host '{self.host}'"
        self.limits = read_limits(fields.take("value", named_values), self.notes)

    def check(self, draft: Draft) -> None:
        draft.require_host(self.host)
        check_limits(self.limits)

    def apply(self, broker: Broker) -> bool:
        return apply_limits(self, broker, (limits_of.HOST, self.host), self.limits)


def read_limits(given: FieldTable, notes: list[str]) -> dict[str, int]:
    """The limits that there are here; below 0 is no limit at all."""
    found: dict[str, int] = {}
    for name, value in given.items():
        if type(value) is not int or value > limits_of.LIMIT_MAX:
            raise Unfit(f"limit '{name[:64]}': expected a whole number to {limits_of.LIMIT_MAX}")
        if name not in limits_of.NAMES:
            notes.append(f"limit '{name[:64]}' means nothing here and is left out")
        elif value >= 0:
            found[name] = value
    return found


def check_limits(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        limits_of.check_range(name, value)


def apply_limits(entry: Entry, broker: Broker, owner: limits_of.Owner, limits: dict[str, int]) -> bool:
    known = broker.administration.limits.of.get(owner, {})
    changed = {name: value for name, value in limits.items() if known.get(name) != value}
    for name, value in changed.items():
        broker.administration.limits.set(owner, name, value)
        entry.is_begun = True
    return bool(changed)
