"""What is always there, and what others add: [[exchanges]], [[queues]], [[bindings]], templates, plug-ins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from flintmq import checks
from flintmq.checks import Unfit
from flintmq.config.tables import Document, listed, section, setting, table, table_setting
from flintmq.errors import ConfigFault


def arguments(value: object) -> Mapping[str, Any]:
    """A field table: what TOML can hold it can hold as well, but for times without a date."""
    given = checks.table(value)
    for name, item in given.items():
        try:
            checks.text()(name)
        except Unfit as unfit:
            raise Unfit(str(unfit), ": a name", name) from None
        for each in item if isinstance(item, list) else [item]:
            if not isinstance(each, str | bool | int | float | dict | list):
                raise Unfit("expected text, a number, true or false, a list or a table", f".{name}", each)
            if type(each) is int and not -(1 << 63) <= each < 1 << 63:
                raise Unfit("expected a number of 64 bits", f".{name}", each)
    return MappingProxyType(dict(given))


@dataclass(frozen=True, slots=True)
class QueueTemplate:
    """[queue_templates.NAME]: what a queue gets that is declared with the argument x-template."""

    durable: bool | None = setting(None, checks.switch)  # None: as the client says
    auto_delete: bool | None = setting(None, checks.switch)
    arguments: Mapping[str, Any] = table_setting(arguments)


@dataclass(frozen=True, slots=True)
class ExchangeSettings:
    """[[exchanges]]: a durable exchange that is always there."""

    name: str = setting("", checks.text())
    type: str = setting("", checks.text())
    virtual_host: str = setting("", checks.text())  # the first one, if it is not given
    internal: bool = setting(False, checks.switch)
    arguments: Mapping[str, Any] = table_setting(arguments)


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """[[queues]]: a durable queue that is always there."""

    name: str = setting("", checks.text())
    virtual_host: str = setting("", checks.text())
    template: str = setting("", checks.text())
    arguments: Mapping[str, Any] = table_setting(arguments)


@dataclass(frozen=True, slots=True)
class BindingSettings:
    """[[bindings]]: a binding that is always there."""

    source: str = setting("", checks.text())
    queue: str = setting("", checks.text())  # either a queue
    exchange: str = setting("", checks.text())  # or an exchange
    routing_key: str = setting("", checks.key)
    virtual_host: str = setting("", checks.text())
    arguments: Mapping[str, Any] = table_setting(arguments)


@dataclass(frozen=True, slots=True)
class Plugins:
    """[plugins]: what other packages add."""

    # Names of entry points in the group flintmq.exchanges; None: all that are installed.
    exchanges: tuple[str, ...] | None = setting(None, checks.texts(checks.text()))
    # The same of the group flintmq.services.
    services: tuple[str, ...] | None = setting(None, checks.texts(checks.text()))
    # And of the group flintmq.transforms.
    transforms: tuple[str, ...] | None = setting(None, checks.texts(checks.text()))


def read_templates(value: object) -> Mapping[str, QueueTemplate]:
    named = {
        name: section(QueueTemplate, given, f"queue_templates.{name}")
        for name, given in table(value, "queue_templates").items()
    }
    return MappingProxyType(named)


def read_bindings(document: Document, virtual_hosts: Sequence[str]) -> tuple[BindingSettings, ...]:
    bindings = listed(BindingSettings, document, "bindings", ("source",), virtual_hosts)
    for index, binding in enumerate(bindings):
        if bool(binding.queue) == bool(binding.exchange):
            raise ConfigFault(f"bindings[{index}]: give either queue or exchange, where it leads to")
    return bindings
