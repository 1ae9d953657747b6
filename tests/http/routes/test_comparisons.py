"""Comparisons over HTTP: who may start one, and what it leaves behind."""

from __future__ import annotations

from tests.http.harness import CONFIG, ECHO, MANIFEST, READER, plugin, running_api


def test_comparisons_need_every_scope_and_are_audited_first() -> None:
    with running_api(CONFIG + "plugins: {echo: {config: {}}}\n") as api:
        path = "/plugins/echo/compare"
        assert (api.ask("POST", path, {}).status, api.ask("POST", path, {}).slug) == (
            404,
            "not_found",
        )
        assert api.ask("POST", "/plugin/echo/peek?", "{}").status == 202
        [job] = api.ask("GET", "/jobs").json["jobs"]
        api.ask("GET", f"/job/{job['job_id']}?wait=20")
        compared = api.ask("POST", path, {}, token=READER)
        assert (compared.status, compared.json["summary"]["identical"]) == (200, 1)
        bundle = f"/job/{job['job_id']}/bundle"
        saved = api.ask("GET", bundle)
        assert saved.headers["content-disposition"].startswith("attachment")
        assert saved.json["job"]["id"] == job["job_id"]
        scopes = {"name": "part", "scopes": ["system:ro"]}
        part = api.ask("POST", "/tokens", scopes).json["token"]
        for token, missing in ((READER, "system:ro"), (part, "jobs:ro")):
            denied = api.ask("GET", bundle, token=token)
            assert (denied.status, denied.json["scope"]) == (403, missing)
        # The files say that the command writes, and the loaded manifest that it reads.
        plugin(api.root, "echo", ECHO, MANIFEST.replace("type: read", "type: write"))
        refused = api.ask("POST", path, {}, token=READER)
        assert (refused.status, refused.json["scope"]) == (403, "echo:rw")
        local_only = api.ask("POST", path, {"directory": str(api.root)})
        assert (local_only.status, local_only.slug) == (409, "refused")
        wrong = api.ask("POST", path, {"ignore": [1]})
        assert wrong.status == 400
        assert api.ask("POST", path, {"ignore": ["x" * 201]}).status == 400
        body = {"name": "worker", "scopes": ["jobs:ro", "plugin:rw"], "budget": {"runs": 1}}
        lease = api.ask("POST", "/tokens", {**body, "lease": True}).json["token"]
        assert api.ask("POST", path, {}, token=lease).status == 200
        assert api.ask("POST", path, {}, token=lease).status in (401, 403)
        recorded = [entry["action"] for entry in api.ask("GET", "/audit").json["entries"]]
        # Of the first caller and of the lease; the refused ones ran nothing.
        assert recorded.count("plugin.compare") == 2
        assert len(api.ask("GET", "/jobs").json["jobs"]) == 1
