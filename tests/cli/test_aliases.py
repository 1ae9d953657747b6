"""Hidden aliases: command lines of the Go program, and earlier commands of ours."""

from __future__ import annotations

import json
import re
import tarfile
from contextlib import closing
from pathlib import Path

import apsw
import click
import pytest

from ductile.cli import main
from ductile.cli.main import root
from tests.cli.runner import CliRunner
from tests.http.harness import ADMIN, running_api


def run_line(cli: CliRunner, *line: str) -> tuple[int, str]:
    """Run a command line without adding `--config`."""
    cli.capsys.readouterr()
    code = main(list(line))
    return code, cli.capsys.readouterr().out


@pytest.mark.parametrize("name", ["--config-dir", "-config-dir", "-config", "-c"])
def test_aliases_of_config(cli: CliRunner, name: str) -> None:
    result = (0, "hello")
    code, out = run_line(cli, "plugin", "list", "--json", name, str(cli.root))
    assert (code, json.loads(out)["plugins"][1]["name"]) == result
    before_the_command = run_line(cli, name, str(cli.root), "plugin", "list")
    assert before_the_command[0] == 0


def test_config_dir_works_with_init_and_lock(cli: CliRunner) -> None:
    fresh = cli.root / "fresh"
    assert run_line(cli, "config", "init", "--config-dir", str(fresh))[0] == 0
    assert run_line(cli, "config", "lock", "--config-dir", str(fresh))[0] == 0
    assert (fresh / ".checksums").exists()


def test_long_options_work_with_one_dash(cli: CliRunner) -> None:
    assert cli("plugin", "list", "-json").json["plugins"]
    done = cli("plugin", "run", "hello", "-payload={}", "-dry-run", "-json")
    assert done.json["dry_run"] is True
    wrong = cli("plugin", "run", "nobody", "-json")
    assert (wrong.code, wrong.json["code"]) == (2, "usage")


def test_short_options_can_be_joined_with_values(cli: CliRunner) -> None:
    done = cli("api", "/x", "-fjson=1", "-Xpost", "--dry-run")
    assert (done.json["method"], done.json["body"]) == ("POST", {"json": 1})


def test_aliases_are_not_in_help_or_hints(cli: CliRunner) -> None:
    api = root.get_command(click.Context(root), "api")
    assert api is not None
    help = api.get_help(click.Context(api))
    assert "--data" in help
    assert not [name for name in ("--body", "--config-dir", " -json ") if name in help]
    wrong = cli("plugin", "list", "--jsno").err
    assert "--json" in wrong
    assert "'-json'" not in wrong


@pytest.mark.parametrize(
    ("alias", "command"),
    [
        ("system relays --status dead", "relay list --status dead"),
        ("system resend --all-dead --dry-run", "relay retry --all-dead --dry-run"),
        ("system reset hello", "plugin reset-breaker hello"),
        ("reset hello", "plugin reset-breaker hello"),
        ("system selfcheck --quick", "system verify --quick"),
    ],
)
def test_earlier_commands_still_work(cli: CliRunner, alias: str, command: str) -> None:
    assert cli("run", "hello").code == 0
    for form in ([], ["--json"]):
        done = cli(*alias.split(), *form)
        assert (done.code, done.out) == (0, cli(*command.split(), *form).out)


def test_an_alias_works_after_options_of_the_program(cli: CliRunner) -> None:
    code, out = run_line(cli, "--config", str(cli.root), "system", "reset", "hello")
    assert (code, out) == (0, "hello: no breaker was open\n")


def test_earlier_commands_and_options_are_in_no_help() -> None:
    system = root.get_command(click.Context(root), "system")
    assert isinstance(system, click.Group)
    assert not {"relays", "resend", "reset", "selfcheck"} & set(
        system.list_commands(click.Context(system))
    )
    restore = system.get_command(click.Context(system), "restore")
    assert restore is not None
    help = restore.get_help(click.Context(system))
    assert ("--allow-violations" in help, "--accept-breaches" in help) == (True, False)


def test_payload_file_reads_the_payload(cli: CliRunner) -> None:
    given = cli.write("given.json", '{"a": 1}')
    line = ("plugin", "run", "hello", "--payload-file", str(given), "--dry-run", "--json")
    assert cli(*line).json["payload"] == {"a": 1}
    both = cli(*line, "--payload", "{}")
    assert (both.code, both.json["code"]) == (2, "usage")
    assert cli("run", "hello", "--payload-file", f"{given}.gone").code == 1


def test_skills_without_an_action_prints_the_document(cli: CliRunner) -> None:
    document = cli("skills", "export").out
    assert document.startswith("---\n")
    assert cli("skills").out == document
    assert cli("system", "skills").out == document


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("config plugin list", "plugin list"),
        ("config route list", "config show route:*"),
        ("config webhook list", "config show webhook:*"),
        ("config plugin show hello", "config show plugin:hello"),
    ],
)
def test_config_aliases_of_the_go_program(cli: CliRunner, theirs: str, ours: str) -> None:
    done = cli(*theirs.split(), "--json")
    assert (done.code, done.out) == (0, cli(*ours.split(), "--json").out)


def test_config_plugin_set(cli: CliRunner) -> None:
    line = ("config", "plugin", "set", "hello", "retry.max_attempts", "3")
    assert cli(*line, "--dry-run").code == 0
    assert cli("config", "get", "plugin:hello.retry.max_attempts").out == "2\n"
    assert cli(*line, "--apply").code == 0
    assert cli("config", "get", "plugin:hello.retry.max_attempts").out == "3\n"
    assert main(["config", "plugin", "set"]) == 2


class TestStrict:
    @pytest.fixture
    def warned(self, cli: CliRunner) -> CliRunner:
        config = cli.root / "config.yaml"
        config.write_text(config.read_text().replace("hello: {", "hello: {timeouts: {nope: 1s}, "))
        return cli

    @pytest.mark.parametrize("name", ["--strict", "-strict", "--fail-on-warnings"])
    def test_strict_fails_on_a_warning(self, warned: CliRunner, name: str) -> None:
        assert warned("config", "check").code == 0
        done = warned("config", "check", name)
        assert done.code == 78
        assert "has no command `nope`" in done.out
        assert "is valid" not in done.out
        result = warned("config", "check", name, "--json").json
        assert (result["ok"], len(result["warnings"])) == (False, 1)

    def test_strict_passes_without_warnings(self, cli: CliRunner) -> None:
        assert cli("config", "check", "--strict").code == 0


class TestBackup:
    @pytest.fixture
    def ran(self, cli: CliRunner) -> CliRunner:
        assert cli("run", "hello").code == 0
        return cli

    def count(self, path: Path) -> object:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
            return db.execute("SELECT count(*) FROM job_queue").get

    def test_to_archives_the_configuration(self, ran: CliRunner) -> None:
        target = ran.root / "nightly.tar.gz"
        done = ran("system", "backup", "--to", str(target))
        assert done.code == 0
        assert "is one SQLite file for system restore, not an archive" in done.err
        assert self.count(target) == 1
        with tarfile.open(f"{target}.config.tar") as archive:
            assert "config.yaml" in {Path(name).name for name in archive.getnames()}
        assert ran("system", "restore", str(target), "--dry-run").code == 0

    def test_scope_db_backs_up_the_ledger_only(self, ran: CliRunner) -> None:
        target = ran.root / "copy.db"
        assert ran("system", "backup", "--to", str(target), "--scope", "db").code == 0
        assert self.count(target) == 1
        assert not Path(f"{target}.config.tar").exists()

    @pytest.mark.parametrize(
        "line", ["--to X --scope plugins", "--to X --scope all", "--scope db", "X --to X"]
    )
    def test_unsupported_scopes_are_refused(self, ran: CliRunner, line: str) -> None:
        target = ran.root / "copy.db"
        done = ran("system", "backup", *line.replace("X", str(target)).split())
        assert (done.code, target.exists()) == (2, False)


def test_breaker_filters_by_command(cli: CliRunner) -> None:
    config = cli.root / "config.yaml"
    two = "schedules: [{id: a, every: 1h}, {id: b, every: 1h, command: handle}], "
    config.write_text(config.read_text().replace("hello: {", f"hello: {{{two}"))
    line = ("system", "breaker", "hello", "--limit", "1", "--json")
    both = cli(*line).json["breakers"]
    assert {row["command"] for row in both} == {"poll", "handle"}
    [one] = cli(*line, "--command", "poll").json["breakers"]
    assert one["command"] == "poll"
    wrong = cli(*line, "--command", "health")
    assert (wrong.code, "poll, handle" in wrong.json["error"]) == (2, True)


class TestApi:
    def test_api_body_and_headers(self, cli: CliRunner) -> None:
        with running_api() as own:
            line = ("api", "/plugin/echo/poll", "-c", str(own.root), "-H", "Idempotency-Key: once")
            first, again = (
                run_line(cli, *line, *body)
                for body in (("-b", '{"payload": {"a": 1}}'), ("--body", '{"payload": {"a": 1}}'))
            )
            assert first[0] == 0
            # The log of the gateway in this process is in the output as well, without spaces.
            ids = [re.findall(r'"job_id": "(.+)"', out) for _, out in (first, again)]
            assert len(ids[0]) == 1
            assert ids[0] == ids[1]
            other = run_line(cli, *line, "-b", '{"payload": {"a": 2}}')
            assert other[0] == 1

    def test_a_header_replaces_the_default(self, cli: CliRunner) -> None:
        with running_api() as own:
            url = "http://{}:{}".format(*own.address("api"))
            line = ("api", "/jobs", "--api-url", url, "--api-key", "wrong")
            assert cli(*line).code == 1
            assert cli(*line, "--header", f"authorization: Bearer {ADMIN}").code == 0

    def test_dry_run_hides_header_values(self, cli: CliRunner) -> None:
        done = cli("api", "/jobs", "-H", "Authorization: Bearer hunter2", "--dry-run")
        assert done.json["headers"] == ["Authorization"]
        assert "hunter2" not in done.out

    @pytest.mark.parametrize("line", ["hunter2", ": hunter2", "a b: hunter2", "a: hunter2\r\nx: y"])
    def test_an_invalid_header_is_refused_without_printing_it(
        self, cli: CliRunner, line: str
    ) -> None:
        done = cli("api", "/jobs", "-H", line)
        assert done.code == 2
        assert "hunter2" not in done.err
