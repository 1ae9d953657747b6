"""The applications of the listeners."""

from __future__ import annotations

from ductile.engine.services import Services
from ductile.http.endpoint import bind
from ductile.http.middleware.auth import AccessControl, AuthMiddleware
from ductile.http.middleware.context import AppContext
from ductile.http.middleware.fast_path import ApiFastPath
from ductile.http.middleware.router import PathRouter
from ductile.http.route_table import ENDPOINTS, PAGES
from ductile.http.routes.relay_ingress import RelayIngress


def local_app(services: Services, app_context: AppContext | None = None) -> PathRouter:
    """Return the application of the local socket, whose file mode is the authentication."""
    app_context = app_context or AppContext(services)
    access = AccessControl(app_context, local=True)
    router = _router(app_context, access)
    router.fast_path = ApiFastPath(app_context, access, ENDPOINTS)
    return router


def api_app(app_context: AppContext) -> AuthMiddleware:
    """Return the application of the API listener: every request passes the access control."""
    access = AccessControl(app_context, local=False)
    router = _router(app_context, access)
    relay = RelayIngress(router, app_context)
    return AuthMiddleware(router, access, relay, ApiFastPath(app_context, access, ENDPOINTS))


def _router(app_context: AppContext, access: AccessControl) -> PathRouter:
    router = PathRouter((e.method, e.path, bind(e)) for e in (*ENDPOINTS, *PAGES))
    router.state.app_context = app_context
    router.state.access = access
    router.state.endpoints = ENDPOINTS
    return router
