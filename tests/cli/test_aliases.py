"""Command lines of the Go program's users, typed as they stand in their scripts."""

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
from tests.cli.running import House
from tests.http.harness import ADMIN, running_api


def typed(house: House, *line: str) -> tuple[int, str]:
    """A line with all that it needs in itself."""
    house.capsys.readouterr()
    code = main(list(line))
    return code, house.capsys.readouterr().out


@pytest.mark.parametrize("name", ["--config-dir", "-config-dir", "-config", "-c"])
def test_where_the_configuration_is(house: House, name: str) -> None:
    told = (0, "hello")
    code, out = typed(house, "plugin", "list", "--json", name, str(house.root))
    assert (code, json.loads(out)["plugins"][1]["name"]) == told
    before_the_command = typed(house, name, str(house.root), "plugin", "list")
    assert before_the_command[0] == 0


def test_init_and_lock_take_the_directory_too(house: House) -> None:
    fresh = house.root / "fresh"
    assert typed(house, "config", "init", "--config-dir", str(fresh))[0] == 0
    assert typed(house, "config", "lock", "--config-dir", str(fresh))[0] == 0
    assert (fresh / ".checksums").exists()


def test_one_dash_does_for_two(house: House) -> None:
    assert house("plugin", "list", "-json").json["plugins"]
    done = house("plugin", "run", "hello", "-payload={}", "-dry-run", "-json")
    assert done.json["dry_run"] is True
    wrong = house("plugin", "run", "nobody", "-json")
    assert (wrong.code, wrong.json["code"]) == (2, "usage")


def test_short_options_stay_what_they_are(house: House) -> None:
    done = house("api", "/x", "-fjson=1", "-Xpost", "--dry-run")
    assert (done.json["method"], done.json["body"]) == ("POST", {"json": 1})


def test_no_help_and_no_hint_tells_of_them(house: House) -> None:
    api = root.get_command(click.Context(root), "api")
    assert api is not None
    help = api.get_help(click.Context(api))
    assert "--data" in help
    assert not [name for name in ("--body", "--config-dir", " -json ") if name in help]
    wrong = house("plugin", "list", "--jsno").err
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
def test_earlier_commands_still_work(house: House, alias: str, command: str) -> None:
    assert house("run", "hello").code == 0
    for form in ([], ["--json"]):
        done = house(*alias.split(), *form)
        assert (done.code, done.out) == (0, house(*command.split(), *form).out)


def test_an_alias_may_follow_the_options_of_the_program(house: House) -> None:
    code, out = typed(house, "--config", str(house.root), "system", "reset", "hello")
    assert (code, out) == (0, "hello: no breaker was open\n")


def test_earlier_commands_and_options_are_in_no_help() -> None:
    system = root.get_command(click.Context(root), "system")
    assert isinstance(system, click.Group)
    assert not {"relays", "resend", "reset", "selfcheck"} & set(system.commands)
    help = system.commands["restore"].get_help(click.Context(system))
    assert ("--allow-violations" in help, "--accept-breaches" in help) == (True, False)


def test_a_payload_in_a_file(house: House) -> None:
    given = house.write("given.json", '{"a": 1}')
    line = ("plugin", "run", "hello", "--payload-file", str(given), "--dry-run", "--json")
    assert house(*line).json["payload"] == {"a": 1}
    both = house(*line, "--payload", "{}")
    assert (both.code, both.json["code"]) == (2, "usage")
    assert house("run", "hello", "--payload-file", f"{given}.gone").code == 1


def test_skills_alone_is_the_document(house: House) -> None:
    document = house("skills", "export").out
    assert document.startswith("---\n")
    assert house("skills").out == document
    assert house("system", "skills").out == document


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("config plugin list", "plugin list"),
        ("config route list", "config show route:*"),
        ("config webhook list", "config show webhook:*"),
        ("config plugin show hello", "config show plugin:hello"),
    ],
)
def test_what_is_configured(house: House, theirs: str, ours: str) -> None:
    done = house(*theirs.split(), "--json")
    assert (done.code, done.out) == (0, house(*ours.split(), "--json").out)


def test_a_plugin_is_configured(house: House) -> None:
    line = ("config", "plugin", "set", "hello", "retry.max_attempts", "3")
    assert house(*line, "--dry-run").code == 0
    assert house("config", "get", "plugin:hello.retry.max_attempts").out == "2\n"
    assert house(*line, "--apply").code == 0
    assert house("config", "get", "plugin:hello.retry.max_attempts").out == "3\n"
    assert main(["config", "plugin", "set"]) == 2


class TestStrict:
    @pytest.fixture
    def warned(self, house: House) -> House:
        config = house.root / "config.yaml"
        config.write_text(config.read_text().replace("hello: {", "hello: {timeouts: {nope: 1s}, "))
        return house

    @pytest.mark.parametrize("name", ["--strict", "-strict", "--fail-on-warnings"])
    def test_a_warning_is_enough(self, warned: House, name: str) -> None:
        assert warned("config", "check").code == 0
        done = warned("config", "check", name)
        assert done.code == 78
        assert "has no command `nope`" in done.out
        assert "is valid" not in done.out
        told = warned("config", "check", name, "--json").json
        assert (told["ok"], len(told["warnings"])) == (False, 1)

    def test_without_any_all_is_well(self, house: House) -> None:
        assert house("config", "check", "--strict").code == 0


class TestBackup:
    @pytest.fixture
    def ran(self, house: House) -> House:
        assert house("run", "hello").code == 0
        return house

    def count(self, path: Path) -> object:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
            return db.execute("SELECT count(*) FROM job_queue").get

    def test_the_configuration_goes_with_it(self, ran: House) -> None:
        target = ran.root / "nightly.tar.gz"
        done = ran("system", "backup", "--to", str(target))
        assert done.code == 0
        assert "is one SQLite file for system restore, not an archive" in done.err
        assert self.count(target) == 1
        with tarfile.open(f"{target}.config.tar") as archive:
            assert "config.yaml" in {Path(name).name for name in archive.getnames()}
        assert ran("system", "restore", str(target), "--dry-run").code == 0

    def test_unless_told_otherwise(self, ran: House) -> None:
        target = ran.root / "copy.db"
        assert ran("system", "backup", "--to", str(target), "--scope", "db").code == 0
        assert self.count(target) == 1
        assert not Path(f"{target}.config.tar").exists()

    @pytest.mark.parametrize(
        "line", ["--to X --scope plugins", "--to X --scope all", "--scope db", "X --to X"]
    )
    def test_what_is_not_to_be_had_is_refused_before_anything_is_written(
        self, ran: House, line: str
    ) -> None:
        target = ran.root / "copy.db"
        done = ran("system", "backup", *line.replace("X", str(target)).split())
        assert (done.code, target.exists()) == (2, False)


def test_one_breaker_of_several_and_the_last_of_its_changes(house: House) -> None:
    config = house.root / "config.yaml"
    two = "schedules: [{id: a, every: 1h}, {id: b, every: 1h, command: handle}], "
    config.write_text(config.read_text().replace("hello: {", f"hello: {{{two}"))
    line = ("system", "breaker", "hello", "--limit", "1", "--json")
    both = house(*line).json["breakers"]
    assert {row["command"] for row in both} == {"poll", "handle"}
    [one] = house(*line, "--command", "poll").json["breakers"]
    assert one["command"] == "poll"
    wrong = house(*line, "--command", "health")
    assert (wrong.code, "poll, handle" in wrong.json["error"]) == (2, True)


class TestApi:
    def test_body_and_headers(self, house: House) -> None:
        with running_api() as own:
            line = ("api", "/plugin/echo/poll", "-c", str(own.root), "-H", "Idempotency-Key: once")
            first, again = (
                typed(house, *line, *body)
                for body in (("-b", '{"payload": {"a": 1}}'), ("--body", '{"payload": {"a": 1}}'))
            )
            assert first[0] == 0
            # The gateway, which is in this process, has its log there too, without spaces.
            ids = [re.findall(r'"job_id": "(.+)"', out) for _, out in (first, again)]
            assert len(ids[0]) == 1
            assert ids[0] == ids[1]
            other = typed(house, *line, "-b", '{"payload": {"a": 2}}')
            assert other[0] == 1

    def test_a_header_of_ours_is_replaced(self, house: House) -> None:
        with running_api() as own:
            url = "http://{}:{}".format(*own.address("api"))
            line = ("api", "/jobs", "--api-url", url, "--api-key", "wrong")
            assert house(*line).code == 1
            assert house(*line, "--header", f"authorization: Bearer {ADMIN}").code == 0

    def test_a_rehearsal_shows_no_header_s_value(self, house: House) -> None:
        done = house("api", "/jobs", "-H", "Authorization: Bearer hunter2", "--dry-run")
        assert done.json["headers"] == ["Authorization"]
        assert "hunter2" not in done.out

    @pytest.mark.parametrize("line", ["hunter2", ": hunter2", "a b: hunter2", "a: hunter2\r\nx: y"])
    def test_what_is_no_header(self, house: House, line: str) -> None:
        done = house("api", "/jobs", "-H", line)
        assert done.code == 2
        assert "hunter2" not in done.err
