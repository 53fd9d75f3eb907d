"""Pages that trainers and the monitor left in the store, kept away from the page that shows them."""

from __future__ import annotations

from fastapi.responses import Response

from dmls_core.errors import NotFoundError, ValidationIssue
from dmls_core.web.backend import open_store

POLICY = "sandbox allow-scripts; frame-ancestors 'self'"
"""Such a page runs its own scripts in an origin of its own; its own policy lets nothing else in."""


def pass_page(key: str, what: str, hint: str) -> Response:
    """Return an object of the store as a page.

    Args:
        key: of the object.
        what: it is, where it is missing.
        hint: when there is one.

    Raises:
        NotFoundError: there is none.
    """
    store = open_store()
    if store.head(key) is None:
        raise NotFoundError(ValidationIssue(f"there is no {what} (yet)", hint=hint))
    headers = {"Content-Security-Policy": POLICY}
    return Response(store.get(key), media_type="text/html; charset=utf-8", headers=headers)
