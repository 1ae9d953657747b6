"""The standard `dataclass`, made cheap to define where it is frozen and has slots.

The standard one compiles six methods a class from text, which for the two hundred classes of
a gateway was a quarter of its start. Here `__init__` alone is compiled; the rest is shared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        if options == {"frozen": True, "slots": True}:
            return _record(cls)
        return dataclasses.dataclass(cls, **options)


__all__ = ["dataclass"]


def _record(cls: type) -> type:
    own = {name for name, value in vars(cls).items() if value is not None}
    # The standard one would look up and write out the signature.
    cls.__doc__ = cls.__doc__ or cls.__name__
    made: type = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=True)
    for name, method in {**_SHARED, **_comparing(made), "__init__": _init(made)}.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _init(cls: Any) -> Callable[..., None]:
    """Sets each slot by its own descriptor, which asks no `__setattr__`."""
    scope: dict[str, Any] = {"__name__": cls.__module__, "__missing": MISSING}
    parameters, body = ["self"], []
    for field in fields(cls):
        name, value = field.name, field.name
        if field.kw_only or not field.init:
            raise TypeError(f"{cls.__name__}.{name} needs the standard dataclass")
        scope[f"__set_{name}"] = getattr(cls, name).__set__
        if field.default is not MISSING:
            scope[f"__default_{name}"] = field.default
            parameters.append(f"{name}=__default_{name}")
        elif field.default_factory is not MISSING:
            scope[f"__make_{name}"] = field.default_factory
            parameters.append(f"{name}=__missing")
            value = f"__make_{name}() if {name} is __missing else {name}"
        else:
            parameters.append(name)
        body.append(f"__set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}): {'; '.join(body) or 'pass'}", scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _comparing(cls: Any) -> dict[str, Callable[..., Any]]:
    names = [field.name for field in fields(cls) if field.compare]
    values: Callable[[object], Any] = (
        attrgetter(*names)
        if len(names) > 1
        else lambda self: tuple(getattr(self, name) for name in names)
    )

    def equal(self: object, other: object) -> Any:
        alike = other.__class__ is self.__class__
        return values(self) == values(other) if alike else NotImplemented

    return {"__eq__": equal, "__hash__": lambda self: hash(values(self))}


@recursive_repr("...")
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(_: object, name: str, __: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_SHARED: dict[str, Callable[..., Any]] = {
    "__repr__": _repr,
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _state,
    "__setstate__": _restore,
}
