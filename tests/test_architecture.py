"""Imports point one way, and the edges of the house stay where DESIGN put them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import ductile

ROOT = Path(ductile.__file__).parent
LAYERS = (
    {"model", "record", "errors", "clock", "files", "failpoint"},
    {"core"},
    {"config", "store", "plugins", "runner", "log"},
    {"agents"},
    {"engine"},
    {"operations"},
    {"http", "cli"},
    {"__main__"},
)
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
BESIDE = {("cli", "http"), ("plugins", "config"), ("plugins", "runner")}
"""`system start` serves HTTP; plugins are read with the YAML reader of `config`, and `plugin
validate` explains an entrypoint that cannot be executed as the runner would."""
BANNED_IN_CORE = {
    "time",
    "random",
    "uuid",
    "uuid_utils",
    "os",
    "io",
    "logging",
    "sqlite3",
    "apsw",
    "psycopg",
    "threading",
    "socket",
    "subprocess",
    "asyncio",
    "secrets",
}
RUNNER_MAY = {"model"}
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
SHIPPED = ROOT / "demo"
"""The demo's config and plugins are files that we ship, not a room of the house."""
MODULES = sorted(path for path in ROOT.rglob("*.py") if SHIPPED not in path.parents)


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))))


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, at its top or inside a function, with the line."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            assert node.module is not None
            if node.module == "ductile":
                for alias in node.names:
                    yield f"ductile.{alias.name}", node.lineno
            else:
                yield node.module, node.lineno


def rooms_entered(path: Path) -> Iterator[tuple[str, int]]:
    for module, line in imports(path):
        head, _, rest = module.partition(".")
        if head == "ductile" and rest:
            yield rest.partition(".")[0], line


def outside(path: Path) -> Iterator[tuple[str, int]]:
    for module, line in imports(path):
        head = module.partition(".")[0]
        if head != "ductile":
            yield head, line


def in_room(*rooms: str) -> list[Path]:
    return [path for path in MODULES if room_of(path) in rooms]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_modules_are_python_of_the_oldest_version_we_support() -> None:
    for path in MODULES:
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 11))


def test_every_room_has_a_place_in_the_order() -> None:
    assert {room_of(path) for path in MODULES} <= RANK.keys() | {"__init__"}


def is_against_the_order(room: str, other: str) -> bool:
    """Whether a module of `room` may not import one of `other`."""
    if room == "__init__":
        return True
    if room == other or RANK[room] == 0 or (room, other) in BESIDE:
        return False
    return RANK.get(other, 99) >= RANK[room]


def test_imports_point_from_the_edge_to_the_core() -> None:
    wrong = [
        f"{shown(path)}:{line} imports ductile.{other}"
        for path in MODULES
        for other, line in rooms_entered(path)
        if is_against_the_order(room_of(path), other)
    ]
    assert wrong == []


def test_the_nouns_know_nothing_of_the_rooms() -> None:
    for path in in_room(*LAYERS[0]):
        assert {other for other, _ in rooms_entered(path)} <= LAYERS[0], shown(path)


def test_the_core_touches_no_clock_no_chance_no_system() -> None:
    wrong = [
        f"{shown(path)}:{line} imports {module}"
        for path in in_room("core")
        for module, line in outside(path)
        if module in BANNED_IN_CORE
    ]
    assert wrong == []


def test_the_core_opens_no_file() -> None:
    wrong = [
        f"{shown(path)}:{node.lineno} calls {node.func.id}"
        for path in in_room("core")
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"open", "print", "input", "exec", "eval"}
    ]
    assert wrong == []


def test_the_runner_needs_the_standard_library_alone() -> None:
    for path in in_room("runner"):
        assert {module for module, _ in outside(path)} <= sys.stdlib_module_names, shown(path)
        assert {other for other, _ in rooms_entered(path)} <= RUNNER_MAY | {"runner"}, shown(path)


def test_nothing_opens_the_ledger_with_the_systems_sqlite() -> None:
    found = [shown(p) for p in MODULES for module, _ in outside(p) if module == "sqlite3"]
    assert found == []


def test_a_module_is_named_after_what_it_is() -> None:
    parts = {part for path in MODULES for part in path.relative_to(ROOT).with_suffix("").parts}
    assert parts & VAGUE == set()


def test_only_the_clock_asks_for_the_time_or_for_an_id() -> None:
    """`to_text(datetime.now(UTC))` of the log is the one exception: it must work without one."""
    wrong = []
    for path in MODULES:
        if shown(path) in ("clock.py", "log.py"):
            continue
        for node in nodes(path):
            called = node.func if isinstance(node, ast.Call) else None
            if (
                isinstance(called, ast.Attribute)
                and called.attr in ("now", "utcnow", "today")
                and isinstance(called.value, ast.Name)
                and called.value.id in ("datetime", "date")
            ):
                wrong.append(f"{shown(path)}:{node.lineno}")
        wrong += [shown(path) for module, _ in outside(path) if module in ("random", "uuid_utils")]
    assert wrong == []


def test_one_place_makes_what_is_missing_above_a_directory() -> None:
    """`mkdir(parents=True)` leaves the modes of the parents to the umask."""
    wrong = [
        f"{shown(path)}:{node.lineno}"
        for path in MODULES
        for node in nodes(path)
        if (isinstance(node, ast.keyword) and node.arg == "parents")
        or (isinstance(node, ast.Attribute) and node.attr == "makedirs")
    ]
    assert wrong == []


def test_what_the_demo_ships_does_not_enter_the_house() -> None:
    entered = {other for path in SHIPPED.rglob("*.py") for other, _ in rooms_entered(path)}
    assert entered == set()


def test_async_lives_at_the_edge_alone() -> None:
    wrong = [
        f"{shown(path)}:{node.lineno}"
        for path in MODULES
        if room_of(path) not in ("http", "cli")
        for node in nodes(path)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await)
    ]
    assert wrong == []
