"""The standard `dataclass`, made cheap to define and to fill where it is frozen and has slots.

The standard one compiles six methods a class from text, which for the two hundred classes of a
gateway was a quarter of its start, and sets every field by a call. Here `__init__` alone is
compiled, and that nobody changes a value is for the type checker to see, which reads `frozen`.
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
    # The standard one would look up and write out the signature.
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
