"""Tokens, sessions and the audit log; pages that are not a part of the API."""

from __future__ import annotations

from ductile.http.route_table.rows import change, delete, get, post

# fmt: off
TOKENS = (
    get("/audit", "system:ro", "audit.list_audit_entries", "AuditPage", "AuditQuery"),
    get("/tokens", "system:ro", "tokens.list_tokens", "Tokens"),
    change("/tokens", "*", "tokens.create_token", {201: "TokenCreated", 200: "TokenPlan"},
        "token.create", "NewTokenBody"),
    change("/token/{which}/revoke", "*", "tokens.revoke_token", "TokenChanged", "token.revoke"),
    change("/token/{which}/rotate", "*", "tokens.rotate_token", "TokenChanged", "token.rotate",
        "TokenRotationBody"),
)

UI = (
    get("/ui/session", "any", "pages.ui.show_session", "UiSession"),
    change("/ui/session", None, "pages.ui.open_session", "UiSession", "session.open", "LoginBody"),
    delete("/ui/session", "any", "pages.ui.close_session", "UiSessionClosed",
        audit="session.close"),
    delete("/ui/sessions", "*", "pages.ui.close_sessions", "UiSessionsClosed",
        audit="session.close_all"),
    post("/ui/code", "*", "pages.ui.create_login_code", {201: "UiCode"}, audit="session.code"),
)

PAGES = (
    get("/ui", None, "pages.ui.redirect_to_page", {}),
    get("/ui/", None, "pages.ui.show_page", {}),
    get("/ui/{page}", None, "pages.ui.show_page", {}),
    get("/ui/{page}/{id}", None, "pages.ui.show_page", {}),
    get("/ui/assets/{name}", None, "pages.ui.show_asset", {}),
    get("/approve/{token}", None, "pages.approve.show", {}),
    post("/approve/{token}", None, "pages.approve.decide", {}, raw_body=""),
    post("/mcp", "any", "agents.mcp.serve", {}, raw_body=""),
)
"""What is not a part of the API: the dashboard at each of its addresses with its files, the page
that decides an approval, and MCP, whose calls are requests to the routes above."""
