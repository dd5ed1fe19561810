"""An MCP server and its authorization server, both of the official SDK: `python sdk_login_server.py http ERA PORT`."""

from __future__ import annotations

import secrets
import sys
import time
from typing import Any

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

SECONDS = 3600


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Keeps clients and tokens in memory, and lets everyone in."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.renewals: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe()
        given = params.model_dump(exclude={"state"}) | {"scopes": params.scopes or ["notes"]}
        self.codes[code] = AuthorizationCode(
            code=code, client_id=client.client_id, expires_at=time.time() + 60, **given
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._give(client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.renewals.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.renewals[refresh_token.token]
        return self._give(client, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.pop(token.token, None)
        self.renewals.pop(token.token, None)

    def _give(self, client: OAuthClientInformationFull, scopes: list[str], resource: str | None) -> OAuthToken:
        token, renewal = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        given: dict[str, Any] = {"client_id": client.client_id, "scopes": scopes, "resource": resource}
        self.tokens[token] = AccessToken(token=token, expires_at=int(time.time()) + SECONDS, **given)
        self.renewals[renewal] = RefreshToken(token=renewal, **given)
        return OAuthToken(access_token=token, expires_in=SECONDS, refresh_token=renewal, scope=" ".join(scopes))


def main() -> None:
    port = int(sys.argv[3])
    url, provider = f"http://127.0.0.1:{port}", Provider()
    server: MCPServer[Any] = MCPServer(
        "notes",
        log_level="ERROR",
        auth_server_provider=provider,
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(url),
            resource_server_url=AnyHttpUrl(f"{url}/mcp"),
            required_scopes=["notes"],
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=["notes"], default_scopes=["notes"]
            ),
            revocation_options=RevocationOptions(enabled=True),
        ),
    )

    @server.tool()
    def expire() -> str:
        """Take no token any more that was given until now."""
        provider.tokens.clear()
        return "expired"

    @server.tool()
    def resources() -> list[str]:
        """List what the tokens are for."""
        return [token.resource or "" for token in provider.tokens.values()]

    server.run("streamable-http", host="127.0.0.1", port=port)


if __name__ == "__main__":
    main()
