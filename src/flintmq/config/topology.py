"""What is always there, and what others add: [[exchanges]], [[queues]], [[bindings]], templates, plug-ins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

from flintmq import checks
from flintmq.checks import Unfit
from flintmq.config.tables import NO_TABLE, Document, Section, listed, section, table
from flintmq.errors import ConfigFault


def field_table(value: object) -> Mapping[str, Any]:
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


class QueueTemplate(Section):
    """[queue_templates.NAME]: what a queue gets that is declared with the argument x-template."""

    durable: Annotated[bool | None, checks.switch] = None  # None: as the client says
    auto_delete: Annotated[bool | None, checks.switch] = None
    arguments: Annotated[Mapping[str, Any], field_table] = NO_TABLE


class ExchangeSettings(Section):
    """[[exchanges]]: a durable exchange that is always there."""

    name: Annotated[str, checks.text()] = ""
    type: Annotated[str, checks.text()] = ""
    virtual_host: Annotated[str, checks.text()] = ""  # the first one, if it is not given
    internal: Annotated[bool, checks.switch] = False
    arguments: Annotated[Mapping[str, Any], field_table] = NO_TABLE


class QueueSettings(Section):
    """[[queues]]: a durable queue that is always there."""

    name: Annotated[str, checks.text()] = ""
    virtual_host: Annotated[str, checks.text()] = ""
    template: Annotated[str, checks.text()] = ""
    arguments: Annotated[Mapping[str, Any], field_table] = NO_TABLE


class BindingSettings(Section):
    """[[bindings]]: a binding that is always there."""

    source: Annotated[str, checks.text()] = ""
    queue: Annotated[str, checks.text()] = ""  # either a queue
    exchange: Annotated[str, checks.text()] = ""  # or an exchange
    routing_key: Annotated[str, checks.key] = ""
    virtual_host: Annotated[str, checks.text()] = ""
    arguments: Annotated[Mapping[str, Any], field_table] = NO_TABLE


class Plugins(Section):
    """[plugins]: what other packages add."""

    # Names of entry points in the group flintmq.exchanges; None: all that are installed.
    exchanges: Annotated[tuple[str, ...] | None, checks.texts(checks.text())] = None
    # The same of the group flintmq.services.
    services: Annotated[tuple[str, ...] | None, checks.texts(checks.text())] = None
    # And of the group flintmq.transforms.
    transforms: Annotated[tuple[str, ...] | None, checks.texts(checks.text())] = None


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
