"""uv and pip: resolve dependencies to exact files, and install those into an environment.

Only `plugin sync` uses them. The gateway itself never starts them and needs no network.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import orjson

from ductile import files
from ductile.errors import Refused
from ductile.plugins.environments.locate import PythonBuild
from ductile.plugins.environments.lock import InvalidLock, LockedPackage, read_packages

Report = Callable[[str], None]
"""Receives one line of progress."""

_KEPT_LINES = 25
_KEPT_CHARACTERS = 400
_REMOVED_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_USER")
_PROGRESS = re.compile(
    r"\s*(?:(?P<fetch>Collecting|Processing) (?P<name>\S+)"
    r"|(?P<build>Building) wheel for (?P<built>\S+)"
    r"|(?P<other>(?:Resolved|Prepared|Installed) .{1,120}))"
)


class InstallationFailed(Refused):
    """A package installer failed; the message has the end of its output."""

    code = "installation_failed"


class Installer(Protocol):
    name: str

    def resolve(self, requirements: Sequence[str], python: PythonBuild) -> list[LockedPackage]:
        """The exact packages that satisfy requirements."""
        ...

    def create(self, environment: Path, python: PythonBuild) -> None:
        """Create an empty virtual environment at a path that does not exist."""
        ...

    def install(self, environment: Path, packages: Sequence[LockedPackage]) -> None:
        """Install packages, whose hashes are verified."""
        ...


def choose_installer(wheelhouse: Path | None, report: Report) -> Installer:
    """uv if it is installed, otherwise pip. `wheelhouse` is used instead of an index."""
    options = [] if wheelhouse is None else ["--no-index", "--find-links", str(wheelhouse)]
    uv = find_uv()
    return PipInstaller(options, report) if uv is None else UvInstaller(uv, options, report)


def find_uv() -> str | None:
    """The program uv: next to the gateway's Python (the extra `uv`), or in PATH."""
    own = Path(sys.executable).with_name("uv")
    return str(own) if os.access(own, os.X_OK) else shutil.which("uv")


class UvInstaller:
    name = "uv"

    def __init__(self, program: str, source: list[str], report: Report) -> None:
        self._program = program
        self._source = source
        self._report = report

    def resolve(self, requirements: Sequence[str], python: PythonBuild) -> list[LockedPackage]:
        with TemporaryDirectory(prefix="ductile-sync-") as directory:
            listed = _write_lines(Path(directory) / "requirements.in", requirements)
            resolved = Path(directory) / "requirements.txt"
            options = ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]
            options += ["--python", str(python.executable), "--output-file", str(resolved)]
            self._run("pip", "compile", *options, *self._source, str(listed))
            return _read_resolved(resolved.read_text(encoding="utf-8"))

    def create(self, environment: Path, python: PythonBuild) -> None:
        self._run("venv", "--no-project", "--python", str(python.executable), str(environment))

    def install(self, environment: Path, packages: Sequence[LockedPackage]) -> None:
        with TemporaryDirectory(prefix="ductile-sync-") as directory:
            listed = _write_lines(Path(directory) / "lock.txt", (p.render() for p in packages))
            options = ["--require-hashes", "--no-deps", "--compile-bytecode", "--link-mode", "copy"]
            options += ["--python", str(environment / "bin" / "python")]
            self._run("pip", "install", *options, *self._source, "-r", str(listed))

    def _run(self, *words: str) -> None:
        run_installer("uv", [self._program, *words], self._report)


class PipInstaller:
    name = "pip"

    def __init__(self, source: list[str], report: Report) -> None:
        self._source = source
        self._report = report

    def resolve(self, requirements: Sequence[str], python: PythonBuild) -> list[LockedPackage]:
        with TemporaryDirectory(prefix="ductile-sync-") as directory:
            listed = _write_lines(Path(directory) / "requirements.in", requirements)
            resolved = Path(directory) / "report.json"
            options = ["--dry-run", "--ignore-installed", "--report", str(resolved)]
            self._run(python.executable, python, *options, "-r", str(listed))
            return _read_pip_report(resolved.read_bytes())

    def create(self, environment: Path, python: PythonBuild) -> None:
        words = [str(python.executable), "-I", "-m", "venv", "--without-pip", str(environment)]
        run_installer("venv", words, self._report)

    def install(self, environment: Path, packages: Sequence[LockedPackage]) -> None:
        python = environment / "bin" / "python"
        with TemporaryDirectory(prefix="ductile-sync-") as directory:
            listed = _write_lines(Path(directory) / "lock.txt", (p.render() for p in packages))
            self._run(python, None, "--require-hashes", "--no-deps", "-r", str(listed))

    def _run(self, target: Path, python: PythonBuild | None, *words: str) -> None:
        """Run pip for the Python `target`, from an installation that has pip."""
        pip = [_find_pip(python), "-m", "pip", "--python", str(target), "install"]
        run_installer("pip", [*pip, "--no-input", *self._source, *words], self._report)


def _find_pip(python: PythonBuild | None) -> str:
    """A Python that has pip: the gateway's own, or that of the plugin."""
    if importlib.util.find_spec("pip") is not None:
        return sys.executable
    other = None if python is None else str(python.executable)
    for candidate in filter(None, (other, shutil.which("python3"))):
        found = subprocess.run(
            [candidate, "-m", "pip", "--version"],
            capture_output=True,
            check=False,
            **files.child_identity(),
        )
        if found.returncode == 0:
            return candidate
    raise InstallationFailed(
        "neither uv nor pip is installed; install uv, or pip for the gateway's Python: "
        f"{sys.executable} -m ensurepip"
    )


def run_installer(name: str, words: Sequence[str], report: Report) -> None:
    """Run a program and report its progress. Raises `InstallationFailed`."""
    environment = {k: v for k, v in os.environ.items() if k not in _REMOVED_VARIABLES}
    environment |= {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_REQUIRE_VIRTUALENV": "0",
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
        **files.child_home(),
    }
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
        errors="replace",
        **files.child_identity(),
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                last.append(line.rstrip()[:_KEPT_CHARACTERS])
                _report_progress(line, report)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        said = "\n".join(f"  {line}" for line in last if line)
        raise InstallationFailed(f"{name} failed:\n{said}")


def _report_progress(line: str, report: Report) -> None:
    found = _PROGRESS.match(line)
    if found is None:
        return
    if found["fetch"]:
        report(f"  fetching {found['name'].rpartition('/')[2]}")
    elif found["build"]:
        report(f"  building {found['built']}")
    else:
        report(f"  {found['other'].strip().lower()}")


def _write_lines(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _read_resolved(text: str) -> list[LockedPackage]:
    try:
        return read_packages(text.split("\n"))
    except InvalidLock as error:
        raise InstallationFailed(f"a resolved package cannot be locked: {error}") from None


def _read_pip_report(data: bytes) -> list[LockedPackage]:
    """The packages in an installation report of pip; a hash that it lacks cannot be locked."""
    packages = []
    for entry in orjson.loads(data)["install"]:
        metadata, archive = entry["metadata"], entry["download_info"].get("archive_info", {})
        digest = archive.get("hashes", {}).get("sha256", "")
        if not digest:
            digest = str(archive.get("hash", "")).removeprefix("sha256=")
        line = f"{metadata['name']}=={metadata['version']} --hash=sha256:{digest}"
        packages += _read_resolved(line)
    return packages
