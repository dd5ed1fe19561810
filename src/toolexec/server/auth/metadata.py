"""What a server says of how to get tokens for it (RFC 9728)."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from toolexec.server.auth.settings import AuthSettings
from toolexec.server.http.replies import get_only, reply_json

WELL_KNOWN = "/.well-known/oauth-protected-resource"


def metadata_address(auth: AuthSettings) -> str:
    """Return the address of the metadata; empty when none are published."""
    if not auth.authorization_servers:
        return ""
    parts = urlsplit(auth.resource_url)
    return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path.rstrip('/')}"


def metadata_app(auth: AuthSettings, name: str) -> ASGIApp:
    """Answers with the metadata; *name* is the server's."""
    document = {
        "resource": auth.resource_url,
        "authorization_servers": [*auth.authorization_servers],
        "bearer_methods_supported": ["header"],
        **({"scopes_supported": [*auth.required_scopes]} if auth.required_scopes else {}),
        **({"resource_name": name} if name else {}),
    }

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await reply_json(send, 200, document)

    return answer


def metadata_paths(auth: AuthSettings, name: str, path: str) -> dict[str, ASGIApp]:
    """Return where the metadata of a server at *path* are read; nothing where none are published."""
    if not metadata_address(auth):
        return {}
    app = get_only(metadata_app(auth, name))
    own = metadata_address(auth).partition("/.well-known/")[2]
    return {f"{WELL_KNOWN}{path}": app, f"/.well-known/{own}": app}
