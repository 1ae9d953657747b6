"""A copy of the repository in which one edit at a time is tested."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from sysconfig import get_path

from mutants.catalogue import Mutant

LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "*_cache", ".hypothesis", "build", "dist", "node_modules"
)
TEST_SECONDS = 60
"""Limit of one test. Longer than a test waits for anything (`tests/waiting.py`)."""
TIMED_OUT = "Timeout (>"
"""What pytest-timeout reports. A test that hangs does not state what is wrong."""
PYTEST_EXIT = {0: "passed", 1: "failed", 5: "missing"}
NOT_FOUND = ("ERROR: not found: ", "ERROR: file or directory not found: ")
"""What pytest reports for a node id without a test; a test that cannot be imported is not that."""


class Verdict(StrEnum):
    CAUGHT = "caught"
    """A test failed."""
    SURVIVED = "survived"
    """All tests passed."""
    HUNG = "hung"
    """Only a time limit ended the tests."""
    BROKEN = "broken"
    """The tests could not run: the edit is not a valid program."""
    STALE = "stale"
    """The text to edit or a test is not there any more."""


class Workspace:
    """The copy, and a virtual environment whose `ductile` is the copy."""

    def __init__(self, root: Path, directory: Path) -> None:
        self.tree, self._environment = directory / "tree", directory / "venv"
        shutil.copytree(root, self.tree, ignore=LEFT_OUT, symlinks=True)
        self._create_environment()

    def _create_environment(self) -> None:
        """Programs that tests start with an empty environment must find the copy as well."""
        venv.create(self._environment, symlinks=True)
        base = {"base": str(self._environment), "platbase": str(self._environment)}
        packages = Path(get_path("purelib", vars=base))
        # Directories in a .pth file are not searched for .pth files: the installed package, which
        # is the repository itself, is not found.
        (packages / "mutants.pth").write_text(f"{self.tree / 'src'}\n{get_path('purelib')}\n")
        python, own = Path(sys.executable), self._environment / "bin"
        for script in python.parent.iterdir():
            if script.is_file() and not (own / script.name).exists():
                text = script.read_bytes()
                (own / script.name).write_bytes(text.replace(bytes(python.parent), bytes(own)))
                (own / script.name).chmod(0o755)

    def run(self, tests: Sequence[str], seconds: float, *, cached: bool = True) -> tuple[str, str]:
        """Run tests until one fails: what happened (of `PYTEST_EXIT`, `hung` or `broken`), and the
        output. Without `cached` the compiled modules of this run are kept for later ones."""
        python = self._environment / "bin" / "python"
        options = ["-x", "-q", "-n", "0", "--tb=line", f"--timeout={TEST_SECONDS}"]
        environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"} if cached else dict(os.environ)
        process = subprocess.Popen(
            [python, "-m", "pytest", *options, *tests],
            cwd=self.tree,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return "hung", output
        if process.returncode == 1 and TIMED_OUT in output:
            return "hung", output
        if any(text in output for text in NOT_FOUND):
            return "missing", output
        return PYTEST_EXIT.get(process.returncode, "broken"), output

    @contextmanager
    def edited(self, mutant: Mutant) -> Iterator[bool]:
        """Apply the edit and undo it; False if it does not fit the source any more."""
        path = self.tree / mutant.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        edited = mutant.edit(text)
        if edited is None:
            yield False
            return
        times = path.stat()
        try:
            path.write_text(edited, encoding="utf-8")
            yield True
        finally:
            path.write_text(text, encoding="utf-8")
            # The compiled original is valid again.
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def judge(self, mutant: Mutant, seconds: float) -> tuple[Verdict, str]:
        """Test one mutant; returns the verdict and the output of the tests."""
        with self.edited(mutant) as applies:
            if not applies:
                return Verdict.STALE, f"{mutant.file} does not contain the text exactly once"
            ended, output = self.run(mutant.tests, seconds)
        verdicts = {
            "passed": Verdict.SURVIVED,
            "failed": Verdict.CAUGHT,
            "missing": Verdict.STALE,
            "hung": Verdict.HUNG,
        }
        return verdicts.get(ended, Verdict.BROKEN), output
