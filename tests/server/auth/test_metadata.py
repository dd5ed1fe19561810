"""How clients find out where to get a token."""

from __future__ import annotations

import pytest
from mcp.shared.auth import ProtectedResourceMetadata
from tests.server.http.conftest import Serve

from toolexec.server.auth import AuthSettings
from toolexec.server.http import HttpSettings

from .conftest import AUDIENCE, Issuer

WELL_KNOWN = "/.well-known/oauth-protected-resource"


@pytest.mark.full
@pytest.mark.parametrize("path", [WELL_KNOWN, f"{WELL_KNOWN}/mcp"])
async def test_the_metadata_are_there_for_everybody(serve: Serve, issuer: Issuer, path: str) -> None:
    """Without a key, at both places where clients look; as the official client reads them."""
    auth = AuthSettings(
        jwt=issuer.settings(),
        resource_url=AUDIENCE,
        authorization_servers=("https://issuer.example",),
        required_scopes=("tools",),
    )
    server = await serve(auth=auth)
    answer = await server.request("GET", path)
    assert answer.json() == {
        "resource": AUDIENCE,
        "authorization_servers": ["https://issuer.example"],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["tools"],
        "resource_name": "small",
    }
    assert str(ProtectedResourceMetadata.model_validate(answer.json()).resource) == AUDIENCE
    assert (await server.request("POST", path)).status_code == 405


async def test_behind_another_path(serve: Serve, issuer: Issuer) -> None:
    """The path that clients see counts, too."""
    auth = AuthSettings(
        jwt=issuer.settings(),
        resource_url="https://tools.example.com/team/mcp",
        authorization_servers=("https://issuer.example",),
    )
    server = await serve(auth=auth)
    assert (await server.request("GET", f"{WELL_KNOWN}/team/mcp")).status_code == 200
    assert (await server.request("GET", f"{WELL_KNOWN}/other")).status_code == 401


async def test_without_authorization_servers_there_are_none(serve: Serve) -> None:
    """A client is not sent anywhere."""
    server = await serve(HttpSettings(port=0))
    assert (await server.request("GET", WELL_KNOWN)).status_code == 404
