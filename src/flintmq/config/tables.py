"""How tables of the file become sections: the type of each field carries the check of its values.

A fault names the place, [users.alice] or policies[2].pattern, and the nearest known name of an unknown one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

from flintmq import checks
from flintmq.checks import Check, Unfit
from flintmq.errors import ConfigFault
from flintmq.field_tuple import FieldTuple

Document = dict[str, Any]

# Stands behind the check of a setting that no fault shows.
SECRET = "secret"
# The default of a setting that has to be given: whoever reads the table tells that it is missing.
MISSING: Any = None
NO_TABLE: Mapping[str, Any] = MappingProxyType({})


class Section(FieldTuple):
    """The settings of one table, with a default for every field.

    Its checks are made for its first value: a broker without a file of settings has no use for most.
    """


Settings = TypeVar("Settings", bound=Section)


def checked(value: object, where: str, check: Check, is_secret: bool = False) -> Any:
    """What a value means that stands at `where`."""
    try:
        return check(value)
    except Unfit as unfit:
        if is_secret:
            raise ConfigFault(f"{where}: {unfit} (not shown here)") from None
        raise wrong(where + unfit.within, unfit.value if unfit.within else value, str(unfit)) from None


@cache
def types_of(settings: type[Section]) -> Mapping[str, Any]:
    """The type of each field, with its check."""
    # For a check any type will do, and pathlib is loaded by whoever names a file (files.py).
    return get_type_hints(settings, localns={"Path": object}, include_extras=True)


def option(settings: type[Section], name: str, value: object, where: str) -> Any:
    """What a value means for one field of a section."""
    check, *marks = types_of(settings)[name].__metadata__
    return checked(value, where, check, SECRET in marks)


def wrong(where: str, value: object, text: str) -> ConfigFault:
    return ConfigFault(f"{where} = {checks.shown(value)}: {text}")


def table(value: object, where: str) -> Document:
    try:
        return checks.table(value)
    except Unfit as unfit:
        raise wrong(where, value, f"{unfit}, written as [{where}]") from None


def refuse_unknown(given: Iterable[str], known: Sequence[str], where: str) -> None:
    for name in given:
        if name not in known:
            inside = f" in [{where}]" if where else ""
            hint = checks.suggestion(name, known, ", ") or f"; known here: {', '.join(known)}"
            raise ConfigFault(f"unknown setting '{checks.shown(name)[1:-1]}'{inside}{hint}")


def section(settings: type[Settings], value: object, where: str, *, apart: tuple[str, ...] = ()) -> Settings:
    """One table of the file as its section; the fields named in `apart` are the caller's to fill in."""
    given = table(value, where)
    refuse_unknown(given, settings._fields, where)
    names = [name for name in given if name not in apart]
    return settings(**{name: option(settings, name, given[name], f"{where}.{name}") for name in names})


def listed(
    settings: type[Settings],
    document: Document,
    name: str,
    required: Sequence[str],
    virtual_hosts: Sequence[str],
) -> tuple[Settings, ...]:
    """An array of tables, each with what is required, in a virtual host that there is, or the first one."""
    value = document.get(name, [])
    if not isinstance(value, list):
        raise wrong(name, value, f"expected a list of tables, each written as [[{name}]]")
    found: list[Settings] = []
    for index, given in enumerate(value):
        where = f"{name}[{index}]"
        each: Any = section(settings, given, where)
        for key in required:
            if key not in given:
                raise ConfigFault(f"{where}.{key} is missing")
        if each.virtual_host:
            check_virtual_host(each.virtual_host, virtual_hosts, f"{where}.virtual_host", name_it=True)
        found.append(each._replace(virtual_host=each.virtual_host or virtual_hosts[0]))
    return tuple(found)


def check_virtual_host(name: str, virtual_hosts: Sequence[str], where: str, *, name_it: bool = False) -> None:
    if name not in virtual_hosts:
        hint = checks.suggestion(name, virtual_hosts, ", ") or "; add it to virtual_hosts"
        named = f" '{name}'" if name_it else ""
        raise ConfigFault(f"{where}: no such virtual host{named}{hint}")
