"""`GET /docs`: a page that shows the API and can call it. It loads nothing from elsewhere.

It is public because it contains nothing about this gateway: it reads `/openapi.json` with the
token that its user has pasted.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


@cache
def _page() -> tuple[str, dict[str, str]]:
    """Return the page, and headers that allow its own script and style and nothing else."""
    text = files("ductile.http").joinpath("static", "docs.html").read_text(encoding="utf-8")
    sources = {
        kind: f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"
        for kind, body in _INLINE.findall(text)
    }
    policy = (
        f"default-src 'none'; script-src {sources['script']}; style-src {sources['style']}; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-cache",
    }
    return text, headers


async def show_docs(_request: Request) -> Response:
    """`GET /docs`: Show this documentation as a page; paste a token to call the routes."""
    text, headers = _page()
    return HTMLResponse(text, headers=headers)
