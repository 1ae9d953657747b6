"""`python -m mutants [NAME...]`: plant one bug at a time and report whether the tests notice it.

A name may be a pattern (`settle-*`). The exit code is 1 unless all mutants are caught.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from mutants.catalogue import Mutant, load
from mutants.workspace import Verdict, Workspace

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 120.0
"""Limit of one mutant."""
UNEDITED_SECONDS = 1200.0
SHOWN_LINES = 15


def select(catalogue: list[Mutant], names: list[str]) -> list[Mutant]:
    """The mutants of these names or patterns; all without names."""
    if not names:
        return catalogue
    return [one for one in catalogue if any(fnmatchcase(one.name, name) for name in names)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, or matching patterns")
    parser.add_argument("--check", action="store_true", help="only report stale entries")
    options = parser.parse_args(arguments)
    selected = select(load(), options.names)
    if not selected:
        parser.error("no mutant has such a name")
    if options.check:
        return check(selected)
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        workspace = Workspace(ROOT, Path(directory).resolve())
        return run(workspace, selected)


def check(selected: list[Mutant]) -> int:
    """Report entries whose text or tests are not there any more; returns the exit code."""
    stale = [(mutant, flaw) for mutant in selected for flaw in _find_flaws(mutant)]
    for mutant, flaw in stale:
        print(f"stale  {mutant.name}: {flaw}")
    print(f"{len(selected)} mutants, {len({mutant.name for mutant, _ in stale})} stale")
    return 1 if stale else 0


def run(workspace: Workspace, selected: list[Mutant]) -> int:
    """Test the mutants one after the other, with progress; returns the exit code."""
    began = time.monotonic()
    tests = list(dict.fromkeys(test for mutant in selected for test in mutant.tests))
    print(f"running {len(tests)} tests without an edit", flush=True)
    ended, output = workspace.run(tests, UNEDITED_SECONDS, cached=False)
    if ended != "passed":
        print(_last_lines(output))
        print(f"{ended}: the tests must pass without an edit")
        return 1
    found: Counter[Verdict] = Counter()
    for number, mutant in enumerate(selected, 1):
        since = time.monotonic()
        verdict, output = workspace.judge(mutant, SECONDS)
        found[verdict] += 1
        place, seconds = f"{number}/{len(selected)}", time.monotonic() - since
        print(f"{place:>7}  {verdict:9} {seconds:5.1f} s  {mutant.name}", flush=True)
        if verdict is not Verdict.CAUGHT:
            print(f"{mutant.file}: {mutant.breaks}\n{_last_lines(output)}", flush=True)
    counts = ", ".join(f"{found[verdict]} {verdict}" for verdict in Verdict if found[verdict])
    print(f"{len(selected)} mutants in {time.monotonic() - began:.0f} s: {counts}")
    return 0 if found[Verdict.CAUGHT] == len(selected) else 1


def _find_flaws(mutant: Mutant) -> Iterator[str]:
    source = ROOT / mutant.file
    if not source.is_file() or mutant.edit(source.read_text(encoding="utf-8")) is None:
        yield mutant.file
    for test in mutant.tests:
        path, _, name = test.partition("[")[0].partition("::")
        name = name.rpartition("::")[2]
        if not (ROOT / path).is_file() or f"def {name}(" not in (ROOT / path).read_text():
            yield test


def _last_lines(output: str) -> str:
    return "\n".join(output.splitlines()[-SHOWN_LINES:])


if __name__ == "__main__":
    sys.exit(main())
