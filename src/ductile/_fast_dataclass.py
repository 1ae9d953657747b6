"""`dataclass`, faster to define and to create for classes with slots.

The standard decorator compiles six methods per class: for the two hundred classes of a gateway that
is a fifth of its start-up time. It also sets each field of a frozen instance by a call. This one
compiles `__init__` only, and only when the first instance is made: of most classes a start makes
none. The type checker, which sees the standard decorator, enforces `frozen`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, fields
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
        if options == {"slots": True}:
            return _record(cls, __hash__=None)
        return dataclasses.dataclass(cls, **options)


__all__ = ["dataclass"]


def _record(cls: type, **more: object) -> type:
    own = {name for name, value in vars(cls).items() if value is not None}
    # Otherwise the standard decorator computes the text of the signature.
    cls.__doc__ = cls.__doc__ or cls.__name__
    made: type = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=True)
    methods = {"__init__": _late_init(made), "__repr__": _repr, **_comparing(made), **more}
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _late_init(cls: Any) -> Callable[..., None]:
    """An `__init__` that compiles the actual one and takes its place."""

    def init(self: object, *args: object, **values: object) -> None:
        cls.__init__ = _compile_init(cls)
        cls.__init__(self, *args, **values)

    return init


def _compile_init(cls: Any) -> Callable[..., None]:
    """As the standard decorator does, for classes whose fields are all parameters."""
    names: dict[str, Any] = {"_missing": MISSING}
    by_place, lines = ["self"], ["pass"]
    by_name: list[str] = []
    for field in fields(cls):
        parameter = value = name = field.name
        if field.default_factory is not MISSING:
            names[f"_make_{name}"] = field.default_factory
            parameter = f"{name}=_missing"
            value = f"_make_{name}() if {name} is _missing else {name}"
        elif field.default is not MISSING:
            names[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
        (by_name if field.kw_only else by_place).append(parameter)
        lines.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    given = ", ".join([*by_place, "*", *by_name] if by_name else by_place)
    exec(f"def __init__({given}):\n " + "\n ".join(lines), names)
    made: Callable[..., None] = names["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


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
