"""How tables of the file become sections: the type of each field carries the check of its values.

A fault names the place, [users.alice] or policies[2].pattern, and the nearest known name of an unknown one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform, get_type_hints

from flintmq import checks
from flintmq.checks import Check, Unfit
from flintmq.errors import ConfigFault

Document = dict[str, Any]

# Stands behind the check of a setting that no fault shows.
SECRET = "secret"
# The default of a setting that has to be given: whoever reads the table tells that it is missing.
MISSING: Any = None
NO_TABLE: Mapping[str, Any] = MappingProxyType({})


@dataclass_transform(frozen_default=True)
class Section(tuple[Any, ...]):
    """The settings of one table: a tuple with names and defaults, like a NamedTuple, for every field.

    NamedTuple compiles a function for each class, and would have each check made while the class is: a
    quarter of a millisecond for a class, of which a broker without a file of settings has no use.
    """

    _fields: ClassVar[tuple[str, ...]]
    _field_defaults: ClassVar[Mapping[str, Any]]

    def __init_subclass__(cls) -> None:
        fields = cls.__annotations__
        if not fields:  # it has those of its base
            return
        cls._fields = tuple(fields)
        cls._field_defaults = {name: cls.__dict__[name] for name in fields}
        for place, name in enumerate(fields):
            setattr(cls, name, property(itemgetter(place)))

    def __new__(cls, *values: Any, **named: Any) -> Self:
        given = dict(zip(cls._fields[: len(values)], values, strict=True))
        every = {**cls._field_defaults, **given, **named}
        if len(every) > len(cls._fields):
            raise TypeError(f"{cls.__name__} has no {', '.join(named.keys() - set(cls._fields))}")
        return super().__new__(cls, every.values())

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({fields})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        """For copies: tuple's own would hand all values over as the first."""
        return tuple(self)

    def _replace(self, **named: Any) -> Self:
        return type(self)(*self, **named)


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
    return get_type_hints(settings, include_extras=True)


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
