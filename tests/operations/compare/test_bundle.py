"""A bundle has everything about a job but its secrets, and is repeated without a gateway."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from ductile.clock import SystemClock, SystemEntropy
from ductile.core.values.differences import IgnoredPaths
from ductile.engine.config.compiled import build
from ductile.errors import NotFound, Refused
from ductile.operations.compare.bundle import make_bundle
from ductile.operations.compare.bundle_files import MAX_FILE_BYTES, collect_files, write_files
from ductile.operations.compare.removal import SecretRemover
from ductile.operations.compare.rerun import Bundle, Rerun, read_bundle, rerun
from ductile.operations.dry_run.plugin import unconfigured
from ductile.store.jobs.read import JobFilter, list_jobs
from tests.engine.site import Running, Site
from tests.operations.compare.scenario import SECRET, WORKER, dump_ledger, text_of

CANARIES = (SECRET, "canary-of-the-state", "canary-of-the-environment", "canary-of-the-payload")


def bundles(running: Running) -> list[dict[str, Any]]:
    """Of every job of the plugin, newest first."""
    gateway = running.gateway
    rows = gateway.ledger.read(lambda tx: list_jobs(tx, JobFilter(plugin="worker"), limit=10))
    return [make_bundle(gateway, row["id"]) for row in rows]


def repeat(bundle: Bundle, directory: Path, **more: Any) -> dict[str, Any]:
    config = bundle.request["config"]
    loaded = unconfigured(directory, "worker", config)
    compiled = build(loaded, boot_marker="", environ=os.environ)
    return rerun(compiled, bundle, Rerun("worker", **more), SystemClock().now(), SystemEntropy())


def test_bundle_has_no_secret_and_is_repeated_elsewhere(
    worked: Running, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = dump_ledger(worked.gateway)
    failed, alone, second, first = bundles(worked)
    assert dump_ledger(worked.gateway) == before
    for bundle in (failed, alone, second, first):
        text = text_of(bundle)
        for canary in CANARIES:
            assert canary not in text, (canary, bundle["job"]["command"])
        assert bundle["removed"] == text.count("[REDACTED]")
    assert failed["outcome"]["error"] == "refused by [REDACTED]"
    assert failed["attempts"][0]["stderr"] == "working with [REDACTED]\n[REDACTED]\n"
    assert first["request"]["payload"]["size"] == 3
    assert first["request"]["context"]["from_payload"] == "[REDACTED]"
    assert first["request"]["config"] == {"api_key": "[REDACTED]"}
    assert second["request"]["state"] == {
        "n": 1,
        "last": "[REDACTED]",
        "session_token": "[REDACTED]",
    }
    assert (first["plugin"]["version"], len(first["plugin"]["fingerprint"])) == ("1.0.0", 64)
    assert {"OWN", "PATH"} <= set(first["environment"])
    assert [file["path"] for file in second["workspace"]["files"]] == [
        "[REDACTED].txt",
        "note.txt",
        "plain.txt",
    ]
    assert second["workspace"]["files"][1]["text"] == "has [REDACTED]"

    file = tmp_path / "job.json"
    file.write_bytes(orjson.dumps(second))
    bundle = read_bundle(file)
    directory = shutil.copytree(site.plugins / "worker", tmp_path / "worker")
    done = repeat(bundle, directory)
    assert (done["verdict"], done["same_program"]) == ("identical", True)
    assert "[REDACTED]" in done["notes"][-1]
    (directory / "run").write_text(WORKER.replace("len(files)", "files", 1))
    changed = repeat(bundle, directory)
    assert changed["verdict"] == "different"
    assert changed["differences"] == [
        {"path": "result.files", "before": 3, "after": ["[REDACTED].txt", "note.txt", "plain.txt"]}
    ]
    assert repeat(bundle, directory, ignored=IgnoredPaths(["result"]))["verdict"] == "ignored"
    # The system's files and its own: what the user can read is not open.
    (site.folder / "private").write_text("x")
    reading = WORKER.replace(
        "files = []", f"files = open({str(site.folder / 'private')!r}).read()", 1
    )
    (directory / "run").write_text(reading.replace('if "workspace_dir" in request', "if 0", 1))
    assert repeat(bundle, directory)["verdict"] == "failed"
    assert repeat(bundle, directory, allow_files=True)["verdict"] == "different"
    assert not (tmp_path / "cache" / "ductile" / "tmp").exists()


def test_files_of_a_workspace_are_bounded_text_without_links(tmp_path: Path) -> None:
    remover = SecretRemover({SECRET}, {"API_TOKEN": "canary-of-the-environment"})
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nafter"
    texts = {
        "a/deep.txt": "https://me:canary-password@host/ canary-of-the-environment",
        "key.pem": f"before\n{key}",
        "cut.pem": key[:40],
        "data.json": '{"password": "canary-of-the-payload", "n": 1}',
        f"{SECRET}.txt": "1",
        "[REDACTED].txt": "2",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "large").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"\xff\0" + SECRET.encode())
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    found, left_out = collect_files(tmp_path, remover)
    files = {each["path"]: each["text"] for each in found}
    assert files == {
        "a/deep.txt": "https://me:[REDACTED]@host/ [REDACTED]",
        "key.pem": "before\n[REDACTED]\nafter",
        "cut.pem": "[REDACTED]",
        "data.json": '{\n  "password": "[REDACTED]",\n  "n": 1\n}',
        "[REDACTED].txt": files["[REDACTED].txt"],
        "[REDACTED].txt.2": files["[REDACTED].txt.2"],
    }
    assert {each["path"] for each in left_out} == {"large", "binary", "link", "folder", "pipe"}


def bundle_document(**changes: Any) -> dict[str, Any]:
    """A valid bundle, with some of its parts replaced."""
    return {
        "format": "ductile.job-bundle",
        "version": 1,
        "job": {"id": "1", "plugin": "worker", "command": "poll", "attempt": 1, "max_attempts": 4},
        "request": {"payload": {}, "state": {}, "context": {}, "config": {}},
        "outcome": {"status": "succeeded"},
        "plugin": {},
        "workspace": {"used": True, "files": []},
        **changes,
    }


def files_named(*paths: object) -> dict[str, Any]:
    return {"workspace": {"used": True, "files": [{"path": path, "text": ""} for path in paths]}}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"in hex {SECRET.encode().hex()}", "in hex [REDACTED]"),
        (f"in hex {SECRET.encode().hex().upper()}", "in hex [REDACTED]"),
        ("> Authorization: Bearer eyJ0.1.x_y", "> Authorization: Bearer [REDACTED]"),
        ("export API_TOKEN='abc12345' # x", "export API_TOKEN='[REDACTED]' # x"),
        ('{"password":"hunter2hunter2","n":1', '{"password":"[REDACTED]","n":1'),
        ("cookie=sid12345; colour=blue12345", "cookie=[REDACTED]; colour=blue12345"),
        ("DB_PASSWORD=Passw0rd$123 x", "DB_PASSWORD=[REDACTED] x"),
        ("password=abc1234#56", "password=[REDACTED]"),
        ("password: 'pa55 w0rdlong'", "password: '[REDACTED]'"),
        ('password: "pa\\"ss w0rd" x', 'password: "[REDACTED]" x'),
        ("<b>api_key: abcd1234<br>", "<b>api_key: [REDACTED]<br>"),
        ("token=correcthorsebatterystaple", "token=[REDACTED]"),
        ("invalid token: expired at 12:00", "invalid token: expired at 12:00"),
        ("TOKEN=$(cat secret1)", "TOKEN=$(cat secret1)"),
        ("token = request1[0]", "token = request1[0]"),
        ("password: [REDACTED]", "password: [REDACTED]"),
        ("token=" + "a1" * 100_000, "token=[REDACTED]"),
        ("token=a1(" * 100_000, "token=a1(" * 100_000),
    ],
)
def test_text_has_no_value_that_is_assigned_to_a_name_of_a_secret(text: str, shown: str) -> None:
    assert SecretRemover({SECRET}, {}).text(text) == shown


def test_bundle_of_unknown_origin_is_refused_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    job = bundle_document()["job"]
    refused: list[tuple[object, str]] = [
        ([], "not a job bundle"),
        (bundle_document(version=2), "another version"),
        (bundle_document(request=[]), "request must be an object"),
        (bundle_document(request={"state": {"a": "x" * 2**20}}), "state exceeds"),
        (bundle_document(job={**job, "plugin": "../evil"}), "not the name of a plugin"),
        (bundle_document(job={**job, "command": "a\nb"}), "command must be a text"),
        (bundle_document(job={**job, "attempt": 10**9}), "attempt must be a number"),
        (bundle_document(workspace={"files": "x"}), "must be a list"),
    ]
    unsafe = ("/etc/x", "../x", "a/../../x", "a//x", "", ".", "a\0b", "x" * 2000, 1)
    refused += [(bundle_document(**files_named(path)), "relative path") for path in unsafe]
    refused.append((bundle_document(**files_named("a", "a")), "occurs twice"))
    refused.append((bundle_document(**files_named(*map(str, range(501)))), "at most 500"))
    for document, reason in refused:
        file.write_bytes(orjson.dumps(document))
        with pytest.raises(Refused, match=f"{reason}.*`ductile job bundle ID -o FILE`"):
            read_bundle(file)
    deep = orjson.dumps(bundle_document(request={"payload": 0})).replace(
        b'"payload":0', b'"payload":' + b"[" * 400 + b"]" * 400
    )
    many = b"[" + b"{}," * 2_000_000 + b"{}]"
    for raw in (b"{", deep, many, b'"' + b"x" * (2**26) + b'"'):
        file.write_bytes(raw)
        with pytest.raises(Refused):
            read_bundle(file)
    with pytest.raises(NotFound):
        read_bundle(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(Refused):
            read_bundle(path)
    file.write_bytes(orjson.dumps(bundle_document(**files_named("a", "a/b"))))
    with pytest.raises(Refused, match="a file and a directory"):
        write_files(tmp_path / "box", read_bundle(file).files)
