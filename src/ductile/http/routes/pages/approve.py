"""The page behind the link of a notification: it shows an approval and decides it.

The token in the URL is the only credential. A GET changes nothing, because mail scanners and chat
programs open links; the form sends a POST. The page has no script and no style of its own.
"""

from __future__ import annotations

import re
from html import escape
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ductile.clock import from_text
from ductile.core.waits.decision import MAX_COMMENT, WaitStatus
from ductile.engine.ingress.authenticator import hash_token
from ductile.errors import Refused
from ductile.http.middleware.audit import log_entry
from ductile.http.middleware.caller import address_of
from ductile.http.middleware.context import app_context_of
from ductile.http.requests import read_body
from ductile.http.responses import read_ledger, services_of, write_ledger
from ductile.http.routes.pages.ui import HEADERS
from ductile.operations.waits.approvals import ApprovalDecision
from ductile.store.access import audit
from ductile.store.access.audit import AuditEntry
from ductile.store.engines.api import Tx
from ductile.store.waits import wait_rows
from ductile.store.waits.wait_rows import WaitRow

LINK = "link"
"""Who has decided, where a link was used: the token names no person."""
MAX_FORM = 64 * 1024
MAX_FIELDS = 10
DECISIONS = {"approve": WaitStatus.APPROVED, "reject": WaitStatus.REJECTED}
_TOKEN = re.compile("[A-Za-z0-9_-]{43}")
"""The form of a token: 32 bytes in base64."""
# A form that is sent without a referrer has no Origin either, and would be refused.
_HEADERS = {**HEADERS, "Referrer-Policy": "same-origin", "Cache-Control": "no-store"}


async def show(request: Request) -> Response:
    """`GET /approve/{token}`: Show the approval that a link is for; changes nothing."""
    row = await _find(request)
    return _unknown() if row is None else _page(_describe(row) + _form(row))


async def decide(request: Request) -> Response:
    """`POST /approve/{token}`: Approve or reject with the form of the page."""
    row = await _find(request)
    if row is None:
        return _unknown()
    form = await _read_form(request)
    status = DECISIONS.get(form.get("decision", ""))
    if status is None:
        return _page(_describe(row) + _form(row), 400)
    comment = form.get("comment", "").strip()[:MAX_COMMENT] or None
    services, name = services_of(request), form["decision"]
    decision = ApprovalDecision(services, row.id, status, LINK, comment)
    # Not by the route table, whose entries name the path: it contains the token.
    entry = AuditEntry(LINK, address_of(request.scope), f"approval.{name}", row.id, None)

    def work(tx: Tx) -> WaitRow | None:
        decision(tx)
        audit.append(tx, entry, services.clock.now())
        return wait_rows.find_wait(tx, row.id)

    try:
        ended = await write_ledger(services, work)
    except Refused as error:
        return _page(f"<p>{escape(error.message)}</p>", 409)
    log_entry(entry)
    return _page(_describe(ended or row) + _form(ended or row))


async def _find(request: Request) -> WaitRow | None:
    """The approval of the token; a wrong token counts as a failed login."""
    services, context = services_of(request), app_context_of(request)
    token = request.path_params["token"]
    row = None
    if _TOKEN.fullmatch(token):
        hash = hash_token(token)
        row = await read_ledger(services, lambda tx: wait_rows.find_by_token(tx, hash))
    context.logins.judge(address_of(request.scope), token, valid=row is not None)
    return row


async def _read_form(request: Request) -> dict[str, str]:
    raw = (await read_body(request, MAX_FORM)).decode("utf-8", "replace")
    try:
        fields = parse_qs(raw, max_num_fields=MAX_FIELDS)
    except ValueError:
        return {}
    # PostgreSQL stores no NUL, which may be written as %00.
    return {name: values[0].replace("\0", "\ufffd") for name, values in fields.items()}


def _unknown() -> Response:
    text = "<p>This link is not valid. The approval may have been deleted since.</p>"
    return _page(text, 404)


def _describe(row: WaitRow) -> str:
    until = f"<p>Until {_time(row.due_at)}.</p>" if row.due_at else ""
    description = "".join(f"<p>{escape(part)}</p>" for part in row.description.splitlines())
    since = _time(row.created_at)
    place = f"Pipeline {row.pipeline}, step {row.step_path}, waiting since {since}."
    return f"<h1>{escape(row.title)}</h1>{description}<p>{escape(place)}</p>{until}"


def _time(text: str) -> str:
    return f"{from_text(text):%Y-%m-%d %H:%M:%S} UTC"


def _form(row: WaitRow) -> str:
    if row.status != WaitStatus.WAITING:
        by = f" by {row.ended_by}" if row.ended_by else ""
        comment = f": {row.comment}" if row.comment else "."
        at = f" at {_time(row.ended_at)}" if row.ended_at else ""
        return f"<p><strong>{escape(f'{row.status}{by}{at}{comment}')}</strong></p>"
    return (
        '<form method="post"><p><label>Comment <br>'
        f'<textarea name="comment" rows="3" cols="32" maxlength="{MAX_COMMENT}"></textarea>'
        '</label></p><p><button name="decision" value="approve">Approve</button> '
        '<button name="decision" value="reject">Reject</button></p></form>'
    )


def _page(body: str, status: int = 200) -> Response:
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Approval</title>'
        '<meta name="viewport" content="width=device-width"><meta name="robots" content="noindex">'
        f"</head><body>{body}</body></html>"
    )
    return HTMLResponse(text, status, _HEADERS)
