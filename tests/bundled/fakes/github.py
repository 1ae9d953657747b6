"""A fake of GitHub that sends webhooks.

- https://docs.github.com/en/webhooks/webhook-events-and-payloads#delivery-headers: POST with
  `X-GitHub-Event`, `X-GitHub-Delivery` (a GUID, the same when a delivery is sent again),
  `X-Hub-Signature-256` and a `User-Agent` that begins with `GitHub-Hookshot/`.
- https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries:
  `sha256=` and the hex HMAC-SHA256 of the body as it is sent.
- .../webhook-events-and-payloads (push, pull_request, issues, release, ping, ...): the fields of
  each payload; `repository`, `sender` and, where there are activity types, `action` in all.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import uuid
from typing import Any
from urllib.parse import urlencode

from tests.waiting import WAIT_LIMIT

SECRET = "canary-github-webhook-secret"
REPOSITORY = {
    "id": 35129377,
    "full_name": "octo/engine",
    "html_url": "https://github.com/octo/engine",
    "private": True,
    "owner": {"login": "octo"},
}
SENDER = {"login": "mona", "id": 1, "type": "User"}


def deliver(
    address: tuple[str, int],
    path: str,
    event: str,
    payload: dict[str, Any],
    *,
    delivery: str | None = None,
    form: bool = False,
    secret: str = SECRET,
) -> tuple[int, dict[str, Any]]:
    """Send a delivery; returns status and body."""
    raw = json.dumps(payload).encode()
    body = urlencode({"payload": raw.decode()}).encode() if form else raw
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    kind = "application/x-www-form-urlencoded" if form else "application/json"
    headers = {
        "Accept": "*/*",
        "Content-Type": kind,
        "User-Agent": "GitHub-Hookshot/044aadd",
        "X-GitHub-Delivery": delivery or str(uuid.uuid4()),
        "X-GitHub-Event": event,
        "X-GitHub-Hook-ID": "292430182",
        "X-GitHub-Hook-Installation-Target-Type": "repository",
        "X-Hub-Signature-256": f"sha256={digest}",
    }
    connection = http.client.HTTPConnection(*address, timeout=WAIT_LIMIT)
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"{}")
    finally:
        connection.close()


def _whole(**fields: Any) -> dict[str, Any]:
    return {**fields, "repository": REPOSITORY, "sender": SENDER}


def push(branch: str = "main", count: int = 2) -> dict[str, Any]:
    commits = [
        {
            "id": f"{number:040x}",
            "message": f"Fix part {number}\n\nAt length.",
            "timestamp": "2026-02-08T10:00:00Z",
            "url": f"https://github.com/octo/engine/commit/{number:040x}",
            "author": {"name": "Mona", "email": "mona@example.org", "username": "mona"},
        }
        for number in range(1, count + 1)
    ]
    return _whole(
        ref=f"refs/heads/{branch}",
        before="0" * 40,
        after=f"{count:040x}",
        created=False,
        deleted=False,
        forced=False,
        compare="https://github.com/octo/engine/compare/a...b",
        commits=commits,
        head_commit=commits[-1] if commits else None,
        pusher={"name": "mona", "email": "mona@example.org"},
    )


def pull_request(action: str = "opened", *, merged: bool = False) -> dict[str, Any]:
    pull = {
        "number": 7,
        "title": "A better engine",
        "body": "It is faster.",
        "html_url": "https://github.com/octo/engine/pull/7",
        "user": {"login": "hubot"},
        "draft": False,
        "merged": merged,
        "base": {"ref": "main"},
        "head": {"ref": "faster"},
    }
    return _whole(action=action, number=7, pull_request=pull)


def issues(action: str = "opened") -> dict[str, Any]:
    issue = {
        "number": 12,
        "title": "It smokes",
        "body": None,
        "html_url": "https://github.com/octo/engine/issues/12",
        "user": {"login": "hubot"},
        "labels": [{"name": "bug", "color": "d73a4a"}],
    }
    return _whole(action=action, issue=issue)


def issue_comment() -> dict[str, Any]:
    comment = {
        "body": "Mine too.",
        "html_url": "https://github.com/octo/engine/issues/12#issuecomment-1",
        "user": {"login": "hubot"},
    }
    return _whole(action="created", issue=issues()["issue"], comment=comment)


def review() -> dict[str, Any]:
    found = {
        "state": "approved",
        "body": "Good.",
        "html_url": "https://github.com/octo/engine/pull/7#pullrequestreview-1",
        "user": {"login": "mona"},
    }
    pull = pull_request()["pull_request"]
    return _whole(action="submitted", review=found, pull_request=pull)


def release() -> dict[str, Any]:
    found = {
        "tag_name": "v1.2.0",
        "name": "Spring",
        "body": "News.",
        "prerelease": False,
        "html_url": "https://github.com/octo/engine/releases/tag/v1.2.0",
    }
    return _whole(action="published", release=found)


def ref() -> dict[str, Any]:
    return _whole(ref="v1.2.0", ref_type="tag", master_branch="main", pusher_type="user")


def workflow_run() -> dict[str, Any]:
    run = {
        "name": "CI",
        "head_branch": "main",
        "head_sha": "a" * 40,
        "run_number": 562,
        "conclusion": "failure",
        "html_url": "https://github.com/octo/engine/actions/runs/1",
    }
    return _whole(action="completed", workflow_run=run)


def deployment_status() -> dict[str, Any]:
    status = {"state": "success", "environment": "production", "target_url": "https://e.example"}
    deployment = {"sha": "b" * 40, "environment": "production"}
    return _whole(action="created", deployment_status=status, deployment=deployment)


def star() -> dict[str, Any]:
    return _whole(action="created", starred_at="2026-02-08T10:00:00Z")


def fork() -> dict[str, Any]:
    made = {"full_name": "hubot/engine", "html_url": "https://github.com/hubot/engine"}
    return _whole(forkee=made)


def ping() -> dict[str, Any]:
    return _whole(zen="Less is fine.", hook_id=1, hook={"type": "Repository"})
