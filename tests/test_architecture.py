"""The architecture: import directions, folder sizes, unique names, and where side effects live."""

from __future__ import annotations

import ast
import gc
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import ductile

ROOT = Path(ductile.__file__).parent
REPOSITORY = ROOT.parent.parent
LAYERS = (
    {"model", "_fast_dataclass", "errors", "clock", "files", "failpoint"},
    {"core"},
    {"config", "store", "plugins", "runner", "log"},
    {"agents"},
    {"engine"},
    {"operations"},
    {"http", "cli"},
    {"__main__"},
)
RANK = {layer: rank for rank, layers in enumerate(LAYERS) for layer in layers}
ALLOWED_SIDEWAYS = {("cli", "http"), ("plugins", "config"), ("plugins", "runner")}
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
"""The demo's config and plugins are shipped files, not part of the program."""
MODULES = sorted(path for path in ROOT.rglob("*.py") if SHIPPED not in path.parents)


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(parse(path)))


def parse(path: Path) -> ast.AST:
    """The syntax tree, read as the oldest supported Python reads it.

    Without garbage collection: CPython up to 3.11.7 raises a SystemError ("AST constructor
    recursion depth mismatch") if a finalizer parses something meanwhile (gh-106905).
    """
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 11))
    finally:
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def forget_the_nodes() -> Iterator[None]:
    """Millions of objects would slow down the garbage collector for all later tests."""
    yield
    nodes.cache_clear()


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


def layers_imported(path: Path) -> Iterator[tuple[str, int]]:
    for module, line in imports(path):
        head, _, rest = module.partition(".")
        if head == "ductile" and rest:
            yield rest.partition(".")[0], line


def external_imports(path: Path) -> Iterator[tuple[str, int]]:
    for module, line in imports(path):
        head = module.partition(".")[0]
        if head != "ductile":
            yield head, line


def modules_in(*rooms: str) -> list[Path]:
    return [path for path in MODULES if layer_of(path) in rooms]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_modules_parse_with_the_oldest_supported_python() -> None:
    for path in MODULES:
        nodes(path)


def test_every_package_has_a_layer() -> None:
    assert {layer_of(path) for path in MODULES} <= RANK.keys() | {"__init__"}


def is_against_the_order(room: str, other: str) -> bool:
    """Whether a module of `room` may not import one of `other`."""
    if room == "__init__":
        return True
    if room == other or RANK[room] == 0 or (room, other) in ALLOWED_SIDEWAYS:
        return False
    return RANK.get(other, 99) >= RANK[room]


def test_imports_point_to_lower_layers() -> None:
    wrong = [
        f"{shown(path)}:{line} imports ductile.{other}"
        for path in MODULES
        for other, line in layers_imported(path)
        if is_against_the_order(layer_of(path), other)
    ]
    assert wrong == []


def test_the_lowest_layer_imports_nothing_above_it() -> None:
    for path in modules_in(*LAYERS[0]):
        assert {other for other, _ in layers_imported(path)} <= LAYERS[0], shown(path)


def test_core_imports_no_clock_randomness_or_system_module() -> None:
    wrong = [
        f"{shown(path)}:{line} imports {module}"
        for path in modules_in("core")
        for module, line in external_imports(path)
        if module in BANNED_IN_CORE
    ]
    assert wrong == []


def test_core_opens_no_file() -> None:
    wrong = [
        f"{shown(path)}:{node.lineno} calls {node.func.id}"
        for path in modules_in("core")
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"open", "print", "input", "exec", "eval"}
    ]
    assert wrong == []


def test_runner_imports_only_the_standard_library() -> None:
    for path in modules_in("runner"):
        assert {module for module, _ in external_imports(path)} <= sys.stdlib_module_names, shown(
            path
        )
        assert {other for other, _ in layers_imported(path)} <= RUNNER_MAY | {"runner"}, shown(path)


def test_nothing_imports_the_standard_sqlite_module() -> None:
    found = [shown(p) for p in MODULES for module, _ in external_imports(p) if module == "sqlite3"]
    assert found == []


def test_no_module_has_a_vague_name() -> None:
    parts = {part for path in MODULES for part in path.relative_to(ROOT).with_suffix("").parts}
    assert parts & VAGUE == set()


def test_only_the_clock_module_reads_the_time_or_makes_ids() -> None:
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
        wrong += [
            shown(path)
            for module, _ in external_imports(path)
            if module in ("random", "uuid_utils")
        ]
    assert wrong == []


def test_only_plugin_commands_import_the_package_installers() -> None:
    """The gateway itself never resolves or installs packages, and never needs the network."""
    importing = {
        shown(path.parent)
        for path in MODULES
        for module, _ in imports(path)
        if module.startswith("ductile.operations.plugins")
    }
    assert importing == {"operations/plugins", "cli/commands/plugin"}


def test_missing_parent_directories_are_created_in_one_place() -> None:
    """`mkdir(parents=True)` leaves the modes of the parents to the umask."""
    wrong = [
        f"{shown(path)}:{node.lineno}"
        for path in MODULES
        for node in nodes(path)
        if (isinstance(node, ast.keyword) and node.arg == "parents")
        or (isinstance(node, ast.Attribute) and node.attr == "makedirs")
    ]
    assert wrong == []


def test_demo_plugins_do_not_import_the_package() -> None:
    entered = {other for path in SHIPPED.rglob("*.py") for other, _ in layers_imported(path)}
    assert entered == set()


def test_async_is_used_only_in_http_and_cli() -> None:
    wrong = [
        f"{shown(path)}:{node.lineno}"
        for path in MODULES
        if layer_of(path) not in ("http", "cli")
        for node in nodes(path)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await)
    ]
    assert wrong == []


def test_a_folder_has_at_most_sixteen_modules() -> None:
    counts = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    assert {shown(folder): count for folder, count in counts.items() if count > 16} == {}


def test_a_module_has_at_most_400_lines() -> None:
    lengths = {shown(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_a_function_has_at_most_fifty_lines() -> None:
    """Its complexity is limited by ruff (C901 in pyproject.toml)."""
    long = [
        f"{shown(path)}:{node.lineno} {node.name} has {length} lines"
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > 50
    ]
    assert long == []


def test_every_top_level_folder_is_described() -> None:
    described = (REPOSITORY / "ARCHITECTURE.md").read_text()
    generated = {"build", "demo", "dist"}
    folders = {path.name for path in REPOSITORY.iterdir() if path.is_dir()} - generated
    unknown = [
        name for name in folders if not name.startswith(".") and f"`{name}/" not in described
    ]
    assert unknown == []


def test_a_class_name_is_defined_once_in_the_package() -> None:
    counts = Counter(
        node.name for path in MODULES for node in nodes(path) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in counts.items() if count > 1] == []
