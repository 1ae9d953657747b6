"""The payload of each event: a few flat fields of limited length.

Fields that GitHub omits are null. `title` is one line and `message` a short text, so that an event
can be sent as a notification.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Fields = dict[str, Any]

MAX_LINE = 200
MAX_BODY = 4000
MAX_COMMITS = 20
MAX_LABELS = 30


def at(document: Any, *keys: str) -> Any:
    """The value at a path, or None."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def text(document: Any, *keys: str, longest: int = MAX_LINE) -> str | None:
    """One line of text at a path, or None."""
    found = at(document, *keys)
    if not isinstance(found, str):
        return None
    line = " ".join("".join(c if c.isprintable() else " " for c in found).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def number(document: Any, *keys: str) -> int | None:
    found = at(document, *keys)
    usable = isinstance(found, int) and not isinstance(found, bool) and abs(found) < 2**63
    return found if usable else None


def is_true(document: Any, *keys: str) -> bool:
    return at(document, *keys) is True


def body(document: Any, *keys: str) -> str | None:
    """A text at a path, truncated, or None."""
    found = at(document, *keys)
    if not isinstance(found, str):
        return None
    return found if len(found) <= MAX_BODY else f"{found[: MAX_BODY - 1]}…"


def ping(hook: Fields) -> Fields:
    return {"zen": text(hook, "zen"), "title": "Ping from GitHub", "message": text(hook, "zen")}


def push(hook: Fields) -> Fields:
    ref = text(hook, "ref") or ""
    branch = ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else None
    tag = ref.removeprefix("refs/tags/") if ref.startswith("refs/tags/") else None
    raw = at(hook, "commits")
    raw = raw if isinstance(raw, list) else []
    commits = [
        {
            "id": text(commit, "id"),
            "subject": text({"line": str(at(commit, "message") or "").split("\n", 1)[0]}, "line"),
            "author": text(commit, "author", "username") or text(commit, "author", "name"),
            "url": text(commit, "url", longest=500),
        }
        for commit in raw[:MAX_COMMITS]
    ]
    what = "deleted" if is_true(hook, "deleted") else f"{len(raw)} commits"
    lines = [f"- {commit['subject']} ({commit['author']})" for commit in commits]
    return {
        "ref": ref or None,
        "branch": branch,
        "tag": tag,
        "before": text(hook, "before"),
        "after": text(hook, "after"),
        "created": is_true(hook, "created"),
        "deleted": is_true(hook, "deleted"),
        "forced": is_true(hook, "forced"),
        "commits": commits,
        "commit_count": len(raw),
        "url": text(hook, "compare", longest=500),
        "title": f"{_repository(hook)}: push to {branch or tag or ref} ({what})",
        "message": "\n".join(lines) or what,
    }


def pull_request(hook: Fields) -> Fields:
    pull = at(hook, "pull_request")
    subject, author = text(pull, "title"), text(pull, "user", "login")
    action = _describe_action(hook)
    return {
        "action": text(hook, "action"),
        "number": number(pull, "number"),
        "subject": subject,
        "author": author,
        "base": text(pull, "base", "ref"),
        "head": text(pull, "head", "ref"),
        "draft": is_true(pull, "draft"),
        "merged": is_true(pull, "merged"),
        "body": body(pull, "body"),
        "url": text(pull, "html_url", longest=500),
        "title": f"{_repository(hook)}: pull request #{number(pull, 'number')} {action}",
        "message": f"{subject} ({author})",
    }


def review(hook: Fields) -> Fields:
    pull, state = at(hook, "pull_request"), text(hook, "review", "state")
    return {
        "action": text(hook, "action"),
        "number": number(pull, "number"),
        "subject": text(pull, "title"),
        "review": state,
        "body": body(hook, "review", "body"),
        "url": text(hook, "review", "html_url", longest=500),
        "title": f"{_repository(hook)}: review of pull request #{number(pull, 'number')}: {state}",
        "message": f"{text(pull, 'title')} ({_sender(hook)})",
    }


def issue(hook: Fields) -> Fields:
    found = at(hook, "issue")
    labels = at(found, "labels")
    subject, author = text(found, "title"), text(found, "user", "login")
    return {
        "action": text(hook, "action"),
        "number": number(found, "number"),
        "subject": subject,
        "author": author,
        "labels": [text(label, "name") for label in (labels or [])[:MAX_LABELS]]
        if isinstance(labels, list | None)
        else [],
        "body": body(found, "body"),
        "url": text(found, "html_url", longest=500),
        "title": f"{_repository(hook)}: issue #{number(found, 'number')} {_describe_action(hook)}",
        "message": f"{subject} ({author})",
    }


def comment(hook: Fields) -> Fields:
    found = at(hook, "issue")
    return {
        "action": text(hook, "action"),
        "number": number(found, "number"),
        "subject": text(found, "title"),
        "author": text(hook, "comment", "user", "login"),
        "on_pull_request": at(found, "pull_request") is not None,
        "body": body(hook, "comment", "body"),
        "url": text(hook, "comment", "html_url", longest=500),
        "title": f"{_repository(hook)}: comment on #{number(found, 'number')}",
        "message": body(hook, "comment", "body"),
    }


def release(hook: Fields) -> Fields:
    found = at(hook, "release")
    tag = text(found, "tag_name")
    return {
        "action": text(hook, "action"),
        "tag": tag,
        "name": text(found, "name"),
        "prerelease": is_true(found, "prerelease"),
        "body": body(found, "body"),
        "url": text(found, "html_url", longest=500),
        "title": f"{_repository(hook)}: release {tag}",
        "message": text(found, "name") or tag,
    }


def created_ref(hook: Fields) -> Fields:
    return _build_ref(hook, "created")


def deleted_ref(hook: Fields) -> Fields:
    return _build_ref(hook, "deleted")


def _build_ref(hook: Fields, done: str) -> Fields:
    kind, ref = text(hook, "ref_type"), text(hook, "ref")
    change = f"{kind} {ref} {done}"
    return {
        "ref": ref,
        "ref_type": kind,
        "url": text(hook, "repository", "html_url", longest=500),
        "title": f"{_repository(hook)}: {change}",
        "message": change,
    }


def workflow_run(hook: Fields) -> Fields:
    run = at(hook, "workflow_run")
    name, conclusion, branch = text(run, "name"), text(run, "conclusion"), text(run, "head_branch")
    return {
        "action": text(hook, "action"),
        "workflow": name,
        "branch": branch,
        "conclusion": conclusion,
        "run_number": number(run, "run_number"),
        "commit": text(run, "head_sha"),
        "url": text(run, "html_url", longest=500),
        "title": f"{_repository(hook)}: {name} completed: {conclusion}",
        "message": f"run {number(run, 'run_number')} on {branch}",
    }


def deployment_status(hook: Fields) -> Fields:
    status = at(hook, "deployment_status")
    state = text(status, "state")
    where = text(status, "environment") or text(hook, "deployment", "environment")
    return {
        "action": text(hook, "action"),
        "environment": where,
        "state": state,
        "commit": text(hook, "deployment", "sha"),
        "url": text(status, "target_url", longest=500),
        "title": f"{_repository(hook)}: deployment to {where}: {state}",
        "message": text(status, "description") or state,
    }


def star(hook: Fields) -> Fields:
    return {
        "action": text(hook, "action"),
        "url": text(hook, "repository", "html_url", longest=500),
        "title": f"{_repository(hook)}: a star",
        "message": f"from {_sender(hook)}",
    }


def fork(hook: Fields) -> Fields:
    name = text(hook, "forkee", "full_name")
    return {
        "fork": name,
        "url": text(hook, "forkee", "html_url", longest=500),
        "title": f"{_repository(hook)}: a fork",
        "message": name,
    }


def _repository(hook: Fields) -> str:
    return text(hook, "repository", "full_name") or "GitHub"


def _sender(hook: Fields) -> str | None:
    return text(hook, "sender", "login")


def _describe_action(hook: Fields) -> str:
    return name_event("pull_request", hook).rpartition(".")[2].replace("_", " ")


def name_event(event: str, hook: Fields) -> str:
    """The event's name with its action; a merge is a separate action."""
    action = text(hook, "action")
    if event == "pull_request" and action == "closed" and is_true(hook, "pull_request", "merged"):
        action = "merged"
    return f"{event}.{action}" if ACTIONS.get(event) else event


BUILDERS: dict[str, Callable[[Fields], Fields]] = {
    "ping": ping,
    "push": push,
    "pull_request": pull_request,
    "pull_request_review": review,
    "issues": issue,
    "issue_comment": comment,
    "release": release,
    "create": created_ref,
    "delete": deleted_ref,
    "workflow_run": workflow_run,
    "deployment_status": deployment_status,
    "star": star,
    "fork": fork,
}
ACTIONS: dict[str, tuple[str, ...]] = {
    "pull_request": (
        "opened",
        "closed",
        "merged",
        "reopened",
        "synchronize",
        "ready_for_review",
    ),
    "pull_request_review": ("submitted",),
    "issues": ("opened", "closed", "reopened"),
    "issue_comment": ("created",),
    "release": ("published",),
    "workflow_run": ("completed",),
    "deployment_status": ("created",),
    "star": ("created",),
}
"""Events that have actions, and the actions that are reported."""
EVENT_NAMES = tuple(
    f"{event}.{action}" if action else event
    for event in BUILDERS
    for action in ACTIONS.get(event, ("",))
)
