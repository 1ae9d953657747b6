"""Where the gateway's time goes, a job: `python -m bench.profile [--mode drain] [--workers 8]`.

Threads as the kernel describes them: CPU, and waiting for a core while there was work.
Functions by py-spy, where it is to be found (on PATH or by --py-spy; it is no dependency):
first among all that ran, then among those that held the interpreter's lock. A sample counts
for the innermost of the PLACES on its stack.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench import backlog
from bench.findings import table
from bench.gateway import Place, running, warm
from bench.programs import programs
from bench.throughput import CONNECTIONS, DRAIN, END_TO_END

RATE = 400
WARM_UP = 0.7
TOP = 25
PLACES = (
    ("notices", "store/notices.py", "post"),
    ("claim", "store/jobs/claim.py", ""),
    ("settle", "store/jobs/settle.py", ""),
    ("settle", "store/jobs/close.py", ""),
    ("settle", "store/jobs/closing/", ""),
    ("enqueue", "store/jobs/enqueue.py", "enqueue_job"),
    ("after the commit", "engine/dispatch/work_signal.py", "notify"),
    ("after the commit", "engine/notices/bus.py", ""),
    ("after the commit", "engine/effects.py", ""),
    ("log", "log.py", ""),
    ("judge", "core/jobs/judge.py", ""),
    ("prepare", "core/jobs/prepare.py", ""),
    ("slot's socket", "runner/client.py", ""),
    ("begin, commit", "store/engines/sqlite.py", "_begin"),
    ("begin, commit", "store/engines/sqlite.py", "_commit"),
    ("batch", "store/engines/sqlite.py", "_commit_together"),
    ("batch", "store/engines/sqlite.py", "_commit_batch"),
    ("batch", "store/engines/sqlite.py", "_announce"),
    ("hand to the writer", "store/engines/sqlite.py", "write"),
    ("hand to the writer", "store/engines/sqlite.py", "submit"),
    ("wake the waiting", "store/engines/sqlite.py", "release"),
    ("writer, else", "store/engines/sqlite.py", "_write_loop"),
    ("route and handler", "http/routes/jobs.py", ""),
    ("starlette", "starlette/", ""),
    ("uvicorn", "uvicorn/", ""),
    ("asyncio", "asyncio/", ""),
    ("attempt, else", "engine/dispatch/attempt", ""),
    ("workers, else", "engine/dispatch/workers.py", ""),
    ("workers, else", "engine/dispatch/live_attempts.py", ""),
    ("dispatcher, else", "engine/dispatch/commit_batch.py", ""),
    ("dispatcher, else", "engine/dispatch/dispatcher.py", ""),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("--mode", choices=("end-to-end", "drain"), default="end-to-end")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--plugin", default="compiled")
    parser.add_argument("--py-spy", default=shutil.which("py-spy"))
    arguments = parser.parse_args()
    mode = DRAIN if arguments.mode == "drain" else END_TO_END
    warm()
    shape = mode, arguments.plugin, arguments.workers, arguments.jobs
    print(table(threads(*shape, arguments.py_spy)))
    if not arguments.py_spy:
        print("py-spy is not here: no functions")
        return
    for what, flags in (("running", []), ("holding the interpreter's lock", ["--gil"])):
        stacks, us = sample(*shape, arguments.py_spy, flags)
        print(f"\n{what}: {sum(stacks.values()) * us:.0f} us a job\n")
        print(table(ranked(by_place(stacks), us, "place")))
        print(f"\n{table(ranked(by_function(stacks), us, 'function itself'))}")


def threads(
    mode: str, plugin: str, workers: int, jobs: int, py_spy: str | None
) -> list[dict[str, Any]]:
    """CPU and waiting for a core, a job, by thread."""
    place = _prepared(mode, plugin, workers, jobs)
    with running(place) as gateway:
        names = _names(gateway.pid, py_spy)
        ledger = backlog.reader(place)
        before, done = _schedstats(gateway.pid), backlog.succeeded(ledger)
        _work(mode, place, plugin, jobs)
        backlog.until_done(ledger, jobs)
        after = _schedstats(gateway.pid)
        ledger.close()
    rows = []
    for tid, now in after.items():
        cpu, wait, slices = [b - a for a, b in zip(before.get(tid, (0, 0, 0)), now, strict=True)]
        if cpu > 1e6:
            rows.append(
                {
                    "thread": names.get(tid, str(tid)),
                    "CPU us": cpu / 1e3 / (jobs - done),
                    "waits for a core us": wait / 1e3 / (jobs - done),
                    "slices": slices / (jobs - done),
                }
            )
    return sorted(rows, key=lambda row: -float(row["CPU us"]))


def sample(
    mode: str, plugin: str, workers: int, jobs: int, py_spy: str, flags: list[str]
) -> tuple[Counter[tuple[str, ...]], float]:
    """Stacks with how often they were seen, and what one sighting is worth: us a job."""
    place = _prepared(mode, plugin, workers, jobs)
    raw = place.directory / "stacks"
    with running(place) as gateway:
        command = [py_spy, "record", "--pid", str(gateway.pid), "--rate", str(RATE)]
        command += ["--format", "raw", "--nonblocking", "--duration", "600", "--output", str(raw)]
        spy = subprocess.Popen(
            [*command, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(WARM_UP)
        ledger = backlog.reader(place)
        done = backlog.succeeded(ledger)
        _work(mode, place, plugin, jobs)
        backlog.until_done(ledger, jobs)
        spy.send_signal(signal.SIGINT)
        spy.wait()
        ledger.close()
    return _read(raw), 1e6 / RATE / (jobs - done)


def _prepared(mode: str, plugin: str, workers: int, jobs: int) -> Place:
    place = Place(workers=workers)
    if mode == DRAIN:
        backlog.fill(place, plugin, jobs)
    return place


def _work(mode: str, place: Place, plugin: str, jobs: int) -> None:
    if mode == END_TO_END:
        programs().load(place.socket, plugin, jobs, CONNECTIONS).communicate()


def _schedstats(pid: int) -> dict[int, tuple[int, ...]]:
    """By thread: nanoseconds on a core, nanoseconds ready for one, times put on one."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        found[int(task.name)] = tuple(map(int, (task / "schedstat").read_text().split()))
    return found


def _names(pid: int, py_spy: str | None) -> dict[int, str]:
    if py_spy is None:
        return {}
    command = [py_spy, "dump", "--json", "--pid", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {}
    return {thread["os_thread_id"]: thread["thread_name"] for thread in json.loads(done.stdout)}


def _read(raw: Path) -> Counter[tuple[str, ...]]:
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in raw.read_text().splitlines():
        frames, count = line.rsplit(" ", 1)
        # Without the line numbers: a function is one thing.
        stacks[tuple(re.sub(r":\d+\)$", ")", frame) for frame in frames.split(";"))] += int(count)
    return stacks


def by_place(stacks: Counter[tuple[str, ...]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for frames, count in stacks.items():
        found[next((p for f in reversed(frames) if (p := _place(f))), "other")] += count
    return found


def _place(frame: str) -> str | None:
    name, _, file = frame.rpartition(" (")
    for place, path, function in PLACES:
        if path in file and (not function or name.rpartition(".")[2] == function):
            return place
    return None


def by_function(stacks: Counter[tuple[str, ...]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for frames, count in stacks.items():
        found[frames[-1]] += count
    return found


def ranked(found: Counter[str], us: float, what: str) -> list[dict[str, Any]]:
    return [{"us a job": count * us, what: name} for name, count in found.most_common(TOP)]


if __name__ == "__main__":
    main()
