"""Changing a gateway over HTTP: its configuration, and new plugins."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.http.harness import CONFIG, ECHO, MANIFEST, READER, plugin, running_api
from tests.waiting import until


def test_setting_is_previewed_written_and_applied_by_a_reload() -> None:
    with running_api(working=False) as api:
        file = api.root / "config.yaml"
        before = file.read_text()
        body = {"path": "service.name", "value": "renamed"}
        planned = api.ask("POST", "/config/set", {**body, "dry_run": True}).json
        assert ("renamed" in planned["diff"], file.read_text()) == (True, before)
        assert api.ask("POST", "/config/set", body).json["changed"] is True
        assert "renamed" in file.read_text()
        assert api.ask("GET", "/").json["name"] != "renamed"
        assert api.ask("POST", "/system/reload").status == 200
        assert api.ask("GET", "/").json["name"] == "renamed"
        invalid = api.ask("POST", "/config/set", {"path": "service.max_workers", "value": "x"})
        assert (invalid.status, invalid.slug) == (409, "config_invalid")
        file.write_text(file.read_text() + "nonsense: 1\n")
        checked = api.ask("GET", "/config/check")
        assert (checked.status, checked.json["ok"]) == (200, False)
        assert checked.json["problems"][0]["line"] is not None


def test_value_of_a_setting_is_not_recorded() -> None:
    with running_api(CONFIG + "plugins: {echo: {config: {}}}\n", working=False) as api:
        body = {"path": "plugins.echo.config.colour", "value": "not-for-the-log"}
        assert api.ask("POST", "/config/set", body).status == 200
        recorded = api.ask("GET", "/audit")
        assert b"plugins.echo.config.colour" in recorded.raw
        assert b"not-for-the-log" not in recorded.raw


def test_plan_accepts_a_directory_on_the_local_socket_only() -> None:
    with running_api(CONFIG + "plugins: {echo: {config: {}}}\n", working=False) as api:
        assert api.ask("GET", "/config/plan").json["changed"] is False
        (api.root / "config.yaml").write_text(CONFIG + "plugins: {echo: {parallelism: 2}}\n")
        planned = api.ask("GET", "/config/plan").json
        assert [row["differs"] for row in planned["plugins"]] == [["parallelism"]]
        refused = api.ask("GET", f"/config/plan?directory={api.root}")
        assert (refused.status, refused.slug) == (409, "refused")


def test_configuration_is_applied_as_planned_and_returns() -> None:
    with running_api(CONFIG + "plugins: {echo: {config: {}}}\n", working=False) as api:
        file = api.root / "config.yaml"
        before = file.read_bytes()
        file.write_text(CONFIG + "plugins: {echo: {parallelism: 2}}\n")
        plan = api.ask("GET", "/config/plan").json["id"]
        assert api.ask("POST", "/config/apply", {}).status == 400
        for token, path in ((READER, "/config/apply"), (READER, "/config/revert")):
            assert api.ask("POST", path, {"plan": plan}, token=token).status == 403
        changed = api.ask("POST", "/config/apply", {"plan": "another"})
        assert (changed.status, changed.slug) == (409, "plan_changed")
        applied = api.ask("POST", "/config/apply", {"plan": plan}).json
        assert api.ask("GET", f"/config/watch?plan={plan}&window=1m").json["risen"] is False
        assert api.ask("GET", f"/config/watch?plan={plan}&window=25h").status == 400
        assert api.ask("GET", "/config/watch?plan=another").status == 404
        for body in ({"directory": "/tmp"}, {"lock": True}):
            assert api.ask("POST", "/config/apply", {**body, "plan": plan}).status == 409
        planned = api.ask("POST", "/config/revert", {"dry_run": True}).json
        assert planned["returns_to"] == applied["previous_snapshot_id"]
        assert file.read_bytes() != before
        back = {"plan": planned["plan"]["id"]}
        assert api.ask("POST", "/config/revert", back).json["files"] == planned["files"]
        assert file.read_bytes() == before
        entries = api.ask("GET", "/audit").json["entries"]
        assert [(row["action"], row["actor"]) for row in entries] == [
            ("config.revert", "token:admin"),
            ("config.apply", "token:admin"),
        ]
        assert entries[0]["details"]["files"] == [str(file)]


def test_sealed_file_is_not_changed() -> None:
    with running_api(working=False, seal=True) as api:
        before = (api.root / "config.yaml").read_bytes()
        refused = api.ask("POST", "/config/set", {"path": "service.name", "value": "renamed"})
        assert (refused.status, refused.slug) == (409, "sealed")
        assert (api.root / "config.yaml").read_bytes() == before


def test_plugin_is_created_validated_and_tested_before_it_is_loaded() -> None:
    with running_api(working=False) as api:
        created = api.ask("POST", "/plugins", {"name": "fresh", "language": "sh"})
        assert created.status == 201
        assert api.ask("POST", "/plugins", {"name": "fresh"}).status == 409
        assert api.ask("POST", "/plugins", {"name": "../evil"}).status == 400
        assert api.ask("GET", "/plugins/fresh/validate").json["ok"] is True
        tried = api.ask("POST", "/plugins/fresh/test/poll", {})
        assert (tried.status, tried.json["status"]) == (200, "succeeded")
        request = {"name": "repo", "provider": "github", "headers": {"X-GitHub-Event": "push"}}
        tried = api.ask("POST", "/plugins/fresh/test/handle", {"webhook": request})
        assert tried.json["request"]["context"]["webhook"] == {"name": "repo", "event": "push"}
        both = {"webhook": request, "payload": {"a": 1}}
        assert api.ask("POST", "/plugins/fresh/test/handle", both).status == 400
        assert api.ask("GET", "/jobs").json["jobs"] == []
        missing = api.ask("GET", "/plugins/fres/validate")
        assert (missing.status, "did you mean 'fresh'" in missing.json["error"]) == (404, True)


def test_changed_plugin_is_not_tested_under_a_strict_seal() -> None:
    strict = CONFIG.replace("service: {", "service: {strict_mode: true, ")
    with running_api(strict, working=False, seal=True) as api:
        assert api.ask("POST", "/plugins/echo/test/peek", {}).status == 200
        mark = api.root / "ran"
        api.write("plugins/echo/run.sh", ECHO.replace("cat", f"touch {mark}; cat"), 0o700)
        refused = api.ask("POST", "/plugins/echo/test/peek", {})
        assert (refused.status, refused.slug) == (409, "refused")
        assert "has changed since it was sealed" in refused.json["error"]
        assert not mark.exists()


def test_read_token_tests_no_command_that_the_files_declare_as_write() -> None:
    with running_api(working=False) as api:
        made = api.ask("POST", "/tokens", {"name": "ro", "scopes": ["plugin:ro"]})
        mark = api.root / "ran"
        script = ECHO.replace("cat", f"touch {mark}; cat")
        plugin(api.root, "fresh", script)
        # The loaded manifest says that `peek` reads, and the files that it writes.
        plugin(api.root, "echo", script, MANIFEST.replace("type: read", "type: write"))
        for path in ("fresh/test/poll", "echo/test/peek"):
            refused = api.ask("POST", f"/plugins/{path}", {}, token=made.json["token"])
            assert (refused.status, refused.slug) == (403, "forbidden"), path
        assert not mark.exists()
        read = api.ask("POST", "/plugins/fresh/test/peek", {}, token=made.json["token"])
        assert (read.status, mark.exists()) == (200, True)


def test_slow_tests_are_limited_and_take_no_thread_of_other_calls() -> None:
    with running_api(working=False) as api, ThreadPoolExecutor(2) as callers:
        free = api.root / "free"
        wait = f"while [ ! -e {free} ]; do sleep 0.05; done"
        plugin(api.root, "echo", ECHO.replace("cat", f"touch {api.root}/ran.$$; {wait}; cat"))
        path = "/plugins/echo/test/poll"
        tests = [callers.submit(api.ask, "POST", path, {}) for _ in range(2)]
        try:
            until(lambda: len(list(api.root.glob("ran.*"))) == 2)
            full = api.ask("POST", "/plugins/echo/test/missing", {})
            assert (full.status, full.slug) == (503, "too_many_plugin_tests")
            assert int(full.headers["retry-after"]) > 0
        finally:
            free.touch()
        assert [test.result().status for test in tests] == [200, 200]
        assert api.ask("POST", path, {}).status == 200


def test_paused_plugin_is_not_tested() -> None:
    with running_api(working=False) as api:
        for paused in ("/plugins/echo", "/system"):
            assert api.ask("POST", f"{paused}/pause", {"reason": "it is broken"}).status == 200
            refused = api.ask("POST", "/plugins/echo/test/poll", {})
            assert (refused.status, refused.slug) == (409, "refused")
            assert "it is broken" in refused.json["error"]
            assert api.ask("POST", f"{paused}/resume", {}).status == 200
        assert api.ask("POST", "/plugins/echo/test/poll", {}).status == 200
