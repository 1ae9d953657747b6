"""`dataclass`, faster to define and to create for frozen classes with slots.

The standard decorator compiles six methods per class: for the two hundred classes of a gateway that
is a fifth of its start-up time. It also sets each field of a frozen instance by a call. This one
compiles `__init__` only; the type checker, which sees the standard decorator, enforces `frozen`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import fields
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
    # Otherwise the standard decorator computes the text of the signature.
    cls.__doc__ = cls.__doc__ or cls.__name__
    made: type = dataclasses.dataclass(cls, repr=False, eq=False, slots=True)
    for name, method in {"__repr__": _repr, **_comparing(made)}.items():
        if name not in own:
            setattr(made, name, method)
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
