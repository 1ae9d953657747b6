"""Every command keeps the rules: `--json` prints JSON, reads and dry runs change nothing.

`EXAMPLES` has a command line for every command; a new command needs one.
"""

from __future__ import annotations

import json
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.cli import main
from ductile.clock import SystemClock, to_text
from tests.cli.runner import CliRunner
from tests.cli.test_command_tree import ALL
from tests.waiting import until

CONFIG = """\
service: {name: home, node: n1, shutdown_grace: 0s}
state: {path: ./data/state.db}
plugin_roots: [./plugins]
plugins:
  hello: {schedules: [{id: yearly, cron: "0 0 1 1 *"}]}
  waits: {retry: {max_attempts: 2, backoff_base: 10h}}
  broken: {retry: {max_attempts: 1}}
routes:
  - {from: hello, event_type: said, to: hello}
pipelines:
  - {name: greet, on: greeting, steps: [{id: one, uses: hello}]}
  - {name: asking, on: ask, steps: [{id: ask, wait: {approval: "Pay?"}}]}
  - {name: stuck, on: stick, steps: [{id: one, uses: waits}]}
  - {name: bad, on: worse, steps: [{id: one, uses: broken}]}
  - {name: away, on: going, steps: [{id: out, relay: {to: lab, event: gone}}]}
alerts:
  - {name: failures, on: job.dead, to: hello, wait: 10h}
instances:
  - {name: lab, base_url: "http://127.0.0.1:1", ingress_path: /peer/home, secret: 0123456789ab}
"""
OK = 'echo \'{"status":"ok","result":"fine","state_updates":{"n":1}}\''
ERROR = 'echo \'{"status":"error","error":"no"}\''

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "system backup": ("{root}/copy.db",),
    "system breaker": ("hello",),
    "system demo": ("--dir", "{root}/demo"),
    "system doctor": (),
    "system import": ("{foreign}",),
    "system plugin-facts": ("hello",),
    "system reload": (),
    "system restore": ("{backup}",),
    "system start": (),
    "system status": (),
    "system stop": (),
    "system ui": ("--no-browser",),
    "system verify": ("--quick",),
    "system watch": ("--once",),
    "config apply": (),
    "config check": (),
    "config diff": (),
    "config get": ("plugin:hello.schedules[0].cron",),
    "config history": (),
    "config init": ("{root}/fresh",),
    "config lock": (),
    "config plan": (),
    "config restore": ("{root}/kept.db.config.tar",),
    "config revert": ("{snapshot}",),
    "config schema": (),
    "config set": ("service.log_level", "debug"),
    "config show": ("plugin:hello",),
    "plugin install": ("{root}/offers/spare",),
    "alert list": (),
    "alert show": ("failures",),
    "alert silence": ("failures", "2h"),
    "alert test": ("failures",),
    "alert unsilence": ("failures",),
    "plugin compare": ("hello", "--last", "1"),
    "plugin list": (),
    "plugin pause": ("hello", "--reason", "upgrade", "--for", "1h"),
    "plugin resume": ("hello",),
    "pipeline pause": ("greet",),
    "pipeline resume": ("greet",),
    "system pause": (),
    "system resume": (),
    "plugin new": ("fresh", "--lang", "sh"),
    "plugin reset-breaker": ("hello",),
    "plugin run": ("hello",),
    "plugin show": ("hello",),
    "plugin state get": ("hello",),
    "plugin state set": ("hello", "n", "2"),
    "plugin state unset": ("hello", "n"),
    "plugin sync": ("hello",),
    "plugin test": ("hello",),
    "plugin trace": ("hello", "--yes", "--no-verify"),
    "plugin update": ("extra",),
    "plugin validate": (),
    "approval approve": ("{approval}",),
    "approval list": (),
    "approval reject": ("{approval}", "--comment", "no"),
    "approval show": ("{approval}",),
    "pipeline cancel": ("{stuck}",),
    "pipeline compare": ("bad",),
    "pipeline dry-run": ("greet",),
    "pipeline list": (),
    "pipeline retry": ("{bad}",),
    "pipeline run": ("greet",),
    "pipeline runs": ("{bad}",),
    "pipeline show": ("greet",),
    "pipeline visualize": ("greet",),
    "schedule explain": ("hello",),
    "schedule list": (),
    "schedule next": ("hello",),
    "schedule pause": ("hello/yearly",),
    "schedule resume": ("hello/yearly",),
    "job acknowledge": ("{dead}",),
    "job bundle": ("{done}", "-o", "{root}/new.json"),
    "job cancel": ("{queued}",),
    "job inspect": ("{done}",),
    "job list": (),
    "job logs": (),
    "job replay": ("{done}",),
    "job rerun": ("{root}/job.json",),
    "job retry": ("{dead}",),
    "job why": ("{dead}",),
    "node drain": ("n1",),
    "node forget": ("n1",),
    "node list": (),
    "node resume": ("n1",),
    "queue list": (),
    "relay discard": ("{relay}",),
    "relay list": (),
    "relay retry": ("{relay}",),
    "relay send": ("lab", "--event", "x.y"),
    "webhook config add": ("github", "pull", "--session", "s"),
    "webhook config list": (),
    "webhook config remove": ("{webhook}",),
    "webhook deliveries": (),
    "webhook discard": ("{delivery}",),
    "webhook retry": ("{delivery}",),
    "webhook send": ("{webhook}",),
    "webhook show": ("{delivery}",),
    "agent forget": ("{reminder}",),
    "agent list": (),
    "agent remind": ("a", "--in", "10h"),
    "agent reminders": (),
    "agent show": ("a",),
    "audit list": (),
    "token create": ("fresh", "--scope", "jobs:ro"),
    "token list": (),
    "token revoke": ("ci",),
    "token rotate": ("ci",),
    "events follow": ("--after", "0", "--count", "1"),
    "api": ("/jobs/retry", "-X", "POST", "-f", "status=dead"),
    "skills export": ("--dir", "{root}/skill"),
    "skills list": (),
    "mcp": (),
    "completion": ("bash",),
    "start": (),
    "status": (),
    "run": ("hello",),
    "plugins": (),
    "logs": ("hello",),
    "reload": (),
    "reset": ("hello",),
    "ui": ("--no-browser",),
}
NOW = to_text(SystemClock().now())
NEED_A_GATEWAY = {
    "config apply",
    "config plan",
    "pipeline compare",
    "reload",
    "system reload",
    "system stop",
    "system ui",
    "ui",
    "events follow",
    "mcp",
}
NEED_NO_GATEWAY = {"system restore", "node forget"}
AUDITED = {"plugin compare"}
"""Reads that start a plugin in a running gateway: they leave an entry in the audit log."""


def name_of(path: tuple[str, ...]) -> str:
    return " ".join(path)


def test_every_command_has_an_example() -> None:
    assert set(EXAMPLES) == {name_of(path) for path, _ in ALL}


def test_wrong_usage_is_reported_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    for path, _ in ALL:
        assert main([*path, "--no-such-option", "--json"]) == 2, path
        out, err = capsys.readouterr()
        error = json.loads(out)
        assert (error["code"], err) == ("usage", ""), path
        assert "--no-such-option" in error["error"], path


@dataclass
class UsedGateway:
    """A configuration whose ledger has rows in every table, and their ids."""

    cli: CliRunner
    ids: dict[str, str] = field(default_factory=dict)

    def line(self, name: str) -> list[str]:
        names = {"root": str(self.cli.root), **self.ids}
        return [*name.split(), *(part.format(**names) for part in EXAMPLES[name])]

    def __call__(self, *line: str) -> Any:
        done = self.cli(*line, "--json")
        assert done.code == 0, (line, done.out, done.err)
        return done.json

    def snapshot(self) -> dict[str, Any]:
        """Return the content of every file, and the ledger row by row."""
        found: dict[str, Any] = {"ledger": dump(self.cli.state / "state.db")}
        for path in sorted(self.cli.root.rglob("*")):
            about = path.lstat()
            if stat.S_ISREG(about.st_mode) and not path.name.startswith("state.db"):
                found[str(path)] = (oct(about.st_mode), path.read_bytes())
            elif stat.S_ISDIR(about.st_mode):
                found[str(path)] = oct(about.st_mode)
        return found


def dump(path: Path) -> dict[str, list[Any]]:
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        db.set_busy_timeout(5000)
        names = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
        tables = [row[0] for row in db.execute(names).fetchall()]
        return {
            table: sorted(map(repr, db.execute(f"SELECT * FROM {table}").fetchall()))
            for table in tables
        }


@pytest.fixture
def used(capsys: pytest.CaptureFixture[str]) -> Iterator[UsedGateway]:
    root = Path(tempfile.mkdtemp(prefix="ductile-")).resolve()
    used = UsedGateway(CliRunner(root, capsys))
    used.cli.write("config.yaml", CONFIG)
    used.cli.plugin("hello", OK, commands="poll, handle, health")
    used.cli.plugin("waits", ERROR, commands="poll, handle")
    used.cli.plugin("broken", ERROR, commands="poll, handle")
    for name in ("extra", "spare"):
        source = used.cli.plugin(name, OK).parent
        source.rename(used.cli.write(f"offers/{name}.txt", "").with_name(name))
    used("plugin", "install", str(root / "offers/extra"), "--yes")
    fill(used)
    yield used
    shutil.rmtree(root)


def fill(used: UsedGateway) -> None:
    ids, cli = used.ids, used.cli
    ids["foreign"] = str(cli.root / "other.db")
    with closing(apsw.Connection(ids["foreign"])) as db:
        db.execute((Path(__file__).parents[1] / "compat/ledger.sql").read_text())
    with cli.gateway():
        ids["done"] = used("plugin", "run", "hello")["job_id"]
        ids["snapshot"] = used("config", "history")["snapshots"][0]["id"]
        for name, plugin in (("queued", "waits"), ("dead", "broken")):
            cli("plugin", "run", plugin)
            (job,) = used("job", "list", "--plugin", plugin)["jobs"]
            ids[name] = job["job_id"]
        used("token", "create", "ci", "--scope", "jobs:ro")
        beat = '{"type": "heartbeat", "agent_id": "a", "cluster_id": "west"}'
        assert cli("api", "/gateway/heartbeat", "-d", beat).code == 0
        ids["reminder"] = str(used("agent", "remind", "a", "--in", "300h")["id"])
        added = used("webhook", "config", "add", "github", "push", "--session", "s")
        ids["webhook"] = str(added["id"])
        ids["stuck"] = used("pipeline", "run", "stuck", "--async")["instance_id"]
        used("pipeline", "run", "asking", "--async")
        asked: Callable[[], Any] = lambda: used("approval", "list")["approvals"]  # noqa: E731
        ids["approval"] = str(until(lambda: asked() or None)[0]["id"])
        cli("pipeline", "run", "bad")
        [ids["bad"]] = [run["instance_id"] for run in used("pipeline", "runs", "bad")["runs"]]
        # Its first attempt has failed, and the next one is hours away.
        until(lambda: used("job", "list", "--plugin", "waits")["jobs"][0]["next_retry_at"])
        used("pipeline", "run", "away")
        relays: Callable[[], Any] = lambda: used("relay", "list")["relays"]  # noqa: E731
        ids["relay"] = str(until(lambda: relays() or None)[0]["id"])
        used("job", "bundle", ids["done"], "-o", str(cli.root / "job.json"))
        ids["backup"] = str(
            used("system", "backup", str(cli.root / "kept.db"), "--with-config")["path"]
        )
    # Dead deliveries, without waiting hours for their attempts.
    with closing(apsw.Connection(str(cli.state / "state.db"))) as db:
        db.execute("UPDATE relay_deliveries SET status = 'dead', next_retry_at = NULL")
        # The gateway would evict the agent while the commands run, if they take 90 s.
        db.execute("UPDATE gateway_heartbeats SET received_at = NULL")
        db.execute(
            "INSERT INTO webhook_deliveries (webhook_id, session_id, payload, target_url,"
            " signature, status, attempt_count, last_attempted_at, created_at)"
            " VALUES (?, 's', '{}', 'http://127.0.0.1:1/', '', 'dead', 6, ?, ?)",
            (int(ids["webhook"]), NOW, NOW),
        )
        ids["delivery"] = str(db.last_insert_rowid())


def is_json(text: str) -> bool:
    """Return whether the text is one JSON document, or one per line."""
    for documents in ([text], text.splitlines()):
        try:
            return bool([json.loads(one) for one in documents])
        except ValueError:
            continue
    return False


def violations(used: UsedGateway, *, running: bool) -> Iterator[str]:
    """Run every command as in its example, and yield each violated rule."""
    unable = NEED_NO_GATEWAY if running else NEED_A_GATEWAY
    before = used.snapshot()
    for path, command in ALL:
        name = name_of(path)
        dry = ["--dry-run"] if command.writes else []
        for form in (["--json", "-v"], []):
            line = [*used.line(name), *dry, *form]
            done = used.cli(*line)
            if done.code != (1 if name in unable else 0):
                yield f"{line} ended with {done.code}: {done.out}{done.err}"
            if form and not is_json(done.out):
                yield f"{line} is not JSON: {done.out!r}"
            if "\x1b" in done.out + done.err:
                yield f"{line} is coloured without a terminal"
            after = used.snapshot()
            allowed = {"audit_log", "sqlite_sequence"} if running and name in AUDITED else set()
            if changed := set(difference(before, after)) - allowed:
                yield f"{line} changed {sorted(changed)}"
            before = after


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for key in before.keys() | after.keys():
        if key == "ledger":
            yield from difference(before[key], after[key])
        elif before.get(key) != after.get(key):
            yield key


def test_reads_and_dry_runs_change_nothing_without_a_gateway(used: UsedGateway) -> None:
    wrong = list(violations(used, running=False))
    assert not wrong, "\n".join(wrong)


def test_reads_and_dry_runs_change_nothing_with_a_running_gateway(used: UsedGateway) -> None:
    with used.cli.gateway():
        wrong = list(violations(used, running=True))
        assert not wrong, "\n".join(wrong)


def test_an_invalid_configuration_exits_78_or_is_not_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that needs a configuration reports its problems; the others work."""
    (tmp_path / "config.yaml").write_text("servce: {}\n")
    ids = dict.fromkeys(
        (
            *("done", "queued", "dead", "reminder", "webhook", "relay", "delivery", "foreign"),
            *("stuck", "bad", "approval", "snapshot"),
        ),
        "1",
    )
    used = UsedGateway(CliRunner(tmp_path, capsys), {**ids, "backup": str(tmp_path / "x.db")})
    codes = {}
    for path, command in ALL:
        name = name_of(path)
        done = used.cli(*used.line(name), *(["--dry-run"] if command.writes else []), "--json")
        codes[name] = done.code
        assert is_json(done.out), (name, done.out, done.err)
        if done.code == 78:
            assert done.json["code"] == "config_invalid", name
    apart = {name for name, code in codes.items() if code != 78}
    assert apart <= {
        "api",
        "completion",
        "config get",
        "config init",
        "config lock",
        "config restore",
        "config revert",
        "config schema",
        "system demo",
        "system doctor",
        "system restore",
    }
