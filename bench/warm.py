"""Warm against cold starts of Python plugins, taking turns in one gateway with 8 workers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict

import orjson

from bench import backlog, latency
from bench.findings import Check, Findings, median, percentile, table
from bench.gateway import Place, running
from bench.processes import usage
from bench.programs import MANIFEST, programs, scratch

WORKERS = 8
CONNECTIONS = 16
START_UP = 400
"""Jobs that run before the measurement: the first ones start the zygote."""
# The first statement takes the time: `import time` is part of every interpreter.
PLUGIN = """\
#!{python}
import time; began = time.time_ns()
import json, sys
{imports}
request = json.load(sys.stdin)
print(json.dumps({{"status": "ok", "result": began}}))
"""
KINDS = {"json": "", "httpx": "import httpx"}


def measure(*, quick: bool) -> Findings:
    rounds, cold_jobs, warm_jobs = (2, 40, 400) if quick else (5, 100, 1500)
    samples = 60 if quick else 300
    write_plugins()
    place = Place(workers=WORKERS)
    rates: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    found = Findings("warm")
    with running(place) as gateway:
        ledger = backlog.reader(place)
        done = 0
        for kind in KINDS:
            done += START_UP
            rate(place, ledger, f"{kind}-warm", START_UP, done)
        for _ in range(rounds):
            for kind in KINDS:
                for mode, jobs in (("cold", cold_jobs), ("warm", warm_jobs)):
                    done += jobs
                    name = f"{kind}-{mode}"
                    before = usage(gateway.family())
                    rates[name].append(rate(place, ledger, name, jobs, done))
                    used = usage(gateway.family()) - before
                    cpu[name].append((used.gateway + used.runner + used.plugins) / jobs)
        latencies = {}
        for kind in KINDS:
            posted = latency.post(place, samples, f"{kind}-warm")
            done += samples
            backlog.until_done(ledger, done)
            results = dict(ledger.rows("SELECT job_id, result FROM job_log"))
            latencies[kind] = [
                orjson.loads(results[job_id])["result"] / 1e6 - sent * 1000
                for job_id, (sent, _) in posted.items()
            ]
        ledger.close()
    print(
        table(
            [
                {"plugin": name, "jobs/s": median(values), "CPU ms": median(cpu[name]) * 1e3}
                for name, values in rates.items()
            ]
        )
    )
    for kind in KINDS:
        pairs = zip(rates[f"{kind}-warm"], rates[f"{kind}-cold"], strict=True)
        ratios = [warm / cold for warm, cold in pairs]
        print(f"{kind}: warm is {', '.join(f'{ratio:.1f}' for ratio in ratios)} times cold")
        found.checks.append(Check(f"{kind}, warm to cold", median(ratios), at_least=10.0))
        saved = median(cpu[f"{kind}-cold"]) / median(cpu[f"{kind}-warm"])
        found.checks.append(Check(f"{kind}, CPU of cold to CPU of warm", saved))
        what = f"{kind}, POST to the plugin's first line"
        found.checks += [
            Check(f"{what}, p50", median(latencies[kind]), "ms", at_most=10.0),
            Check(f"{what}, p99", percentile(latencies[kind], 0.99), "ms"),
        ]
    found.details = {"rates": dict(rates), "samples": samples}
    return found


def rate(place: Place, ledger: backlog.Reader, plugin: str, jobs: int, total: int) -> float:
    """Jobs a second, from the first POST until the last has ended."""
    began = time.time()
    load = programs().load(place.socket, plugin, jobs, CONNECTIONS)
    load.communicate()
    if load.returncode:
        raise RuntimeError("the load generator failed")
    return jobs / (backlog.until_done(ledger, total) - began)


def write_plugins() -> None:
    """Four plugins in the plugin root of the measurements, with an environment that has httpx."""
    environment = scratch() / "httpx"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    install = [str(environment / "bin" / "pip"), "install", "--quiet", "httpx"]
    subprocess.run(install, check=True)
    for kind, imports in KINDS.items():
        for mode in ("cold", "warm"):
            folder = programs().plugin_root / f"{kind}-{mode}"
            folder.mkdir(mode=0o755)
            preload = "json" if kind == "json" else "json, httpx"
            runtime = f"runtime: {{python: {mode}, preload: [{preload}]}}\n"
            manifest = MANIFEST.format(name=f"{kind}-{mode}") + runtime
            (folder / "manifest.yaml").write_text(manifest)
            run = folder / "run"
            python = environment / "bin" / "python"
            run.write_text(PLUGIN.format(python=python, imports=imports))
            run.chmod(0o755)
