"""A record is a frozen dataclass with slots in all that the type checker does not see to."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from collections.abc import Callable
from dataclasses import asdict, astuple, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest

import ductile
from ductile._fast_dataclass import dataclass

SOURCES = Path(ductile.__file__).parent
ALONE = ("core/delivery/ssrf.py",)
"""Files that can be copied into a plugin, and so import nothing of ours."""
NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Ours:
    """What is said of it."""

    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list)
    d: str = field(default="d", repr=False)
    e: int = field(default=5, compare=False)
    kind: ClassVar[str] = "kind"


@dataclass(frozen=True, slots=True)
class Heir(Ours):
    f: int = 6

    @property
    def double(self) -> int:
        return self.f * 2


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    """What is said of it."""

    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list)
    d: str = field(default="d", repr=False)
    e: int = field(default=5, compare=False)
    kind: ClassVar[str] = "kind"


BOTH = pytest.mark.parametrize("kind", [Ours, Theirs])
Kind = Callable[..., Any]


@BOTH
def test_arguments_come_by_place_and_by_name(kind: Kind) -> None:
    assert astuple(kind(1, "x", d="y")) == (1, "x", [], "y", 5)


@BOTH
@pytest.mark.parametrize("wrong", [{}, {"a": 1, "z": 2}])
def test_wrong_arguments_are_refused_in_the_name_of_the_class(
    kind: Kind, wrong: dict[str, int]
) -> None:
    with pytest.raises(TypeError, match=r"(Ours|Theirs).__init__\(\)"):
        kind(**wrong)


@BOTH
def test_a_default_that_is_made_is_made_for_each(kind: Kind) -> None:
    assert kind(1).c is not kind(1).c


@BOTH
def test_it_has_slots_and_no_dictionary(kind: Kind) -> None:
    assert not hasattr(kind(1), "__dict__")


@BOTH
def test_it_equals_what_is_of_its_class_and_holds_the_same(kind: Kind) -> None:
    assert kind(1) == kind(1, e=6)
    assert kind(1) != kind(2)
    assert kind(1) != (1, "b", [], "d", 5)
    assert kind(1) != Heir(1)


@BOTH
def test_equal_values_have_equal_hashes(kind: Kind) -> None:
    assert hash(kind(1, c=(), e=5)) == hash(kind(1, c=(), e=6))
    with pytest.raises(TypeError, match="unhashable"):
        hash(kind(1))


@BOTH
def test_it_shows_what_may_be_shown(kind: Any) -> None:
    assert repr(kind(1)) == f"{kind.__qualname__}(a=1, b='b', c=[], e=5)"


@BOTH
def test_one_that_holds_itself_can_be_shown(kind: Kind) -> None:
    made = kind(1)
    made.c.append(made)
    assert "c=[...]" in repr(made)


@BOTH
def test_the_tools_for_dataclasses_work_on_it(kind: Any) -> None:
    made = kind(1)
    assert replace(made, b="x") == kind(1, "x")
    assert asdict(made) == {"a": 1, "b": "b", "c": [], "d": "d", "e": 5}
    assert [one.name for one in fields(kind)] == ["a", "b", "c", "d", "e"]
    assert kind.__match_args__ == ("a", "b", "c", "d", "e")
    assert kind.__doc__ == "What is said of it."
    assert orjson.loads(orjson.dumps(made)) == asdict(made)


@BOTH
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_it_can_be_copied(kind: Kind, copied: Callable[[Any], Any]) -> None:
    assert copied(kind(1, c=[2])) == kind(1, c=[2])


def test_an_heir_has_what_it_inherits() -> None:
    heir = Heir(1, f=3)
    assert (heir.a, heir.e, heir.f, heir.double) == (1, 5, 3, 6)
    assert heir == Heir(1, f=3) != Heir(1)


def test_one_field_alone_is_compared_as_a_tuple_is() -> None:
    @dataclass(frozen=True, slots=True)
    class One:
        value: float

    assert One(NAN) == One(NAN)
    assert hash(One(1.0)) == hash((1.0,))


def test_one_without_fields_equals_every_other() -> None:
    @dataclass(frozen=True, slots=True)
    class Nothing: ...

    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(())


def test_methods_of_the_class_are_kept() -> None:
    @dataclass(frozen=True, slots=True)
    class Own:  # noqa: PLW1641 - it is given one
        value: int

        def __post_init__(self) -> None:
            object.__setattr__(self, "value", self.value + 1)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __repr__(self) -> str:
            return "mine"

    assert Own(1).value == 2
    assert Own(1) == Own(5)
    assert repr(Own(1)) == "mine"
    assert hash(Own(1)) == hash((2,))


@pytest.mark.parametrize("make", [dataclass, dataclasses.dataclass])
def test_one_that_is_not_frozen_is_not_hashable(make: Any) -> None:
    @make(slots=True)
    class Open:
        a: int
        b: list[int] = field(default_factory=list, kw_only=True)

    made = Open(1, b=[2])
    made.a = 3
    assert made == Open(3, b=[2]) != Open(3)
    assert repr(made).endswith("Open(a=3, b=[2])")
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)
    with pytest.raises(TypeError, match="takes 2 positional"):
        Open(1, [2])


def test_others_are_made_by_the_standard_one() -> None:
    @dataclass
    class Loose:
        a: int

    loose = Loose(1)
    loose.a = 2
    assert loose == Loose(2)


def test_every_dataclass_with_slots_is_one() -> None:
    """Each that is not costs every start half a millisecond."""
    slow = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if re.search(r"@dataclass\((frozen=True, )?slots=True\)", text := path.read_text("utf-8"))
        and re.search(r"^from dataclasses import .*\bdataclass\b", text, re.MULTILINE)
    }
    assert slow - {*ALONE} == set()
