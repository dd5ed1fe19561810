"""The settings of people who sign in at an identity provider."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.model.declared import about, setting
from toolexec.model.settings import checked

_DOMAIN: Final = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


@checked("SignInSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class SignInSettings:
    """How callers with tokens say at the login page who they are: at the issuer of these, with OpenID Connect.

    `client_id` and `client_secret` (a secret reference; empty for a public client) are what the issuer knows this
    server by. `scopes` are asked for; `openid` is one of them. Only those with a verified mail address in one of
    `domains`, and with one of `groups` among their roles, may sign in; without any, every account of the issuer may.
    The caller's ID, roles and tenant are read from the claims that `JwtSettings` names.

    Raises ConfigurationError for a missing client, scopes without `openid`, and what is not a domain.
    """

    client_id: str = field(metadata=about("This server's client ID at the identity provider (jwt.issuer)."))
    client_secret: str = setting("", "The secret of that client, best as a reference: secretref:env:NAME.", secret=True)
    scopes: tuple[str, ...] = setting(("openid", "email", "profile"), "The scopes to ask for.")
    domains: tuple[str, ...] = setting(
        (), "Mail domains whose verified addresses may sign in: example.com. Empty: all."
    )
    groups: tuple[str, ...] = setting(
        (), "Roles (jwt.roles_claim), one of which is required. Empty: no role is required."
    )

    def __post_init__(self) -> None:
        if not self.client_id:
            raise ConfigurationError("sign_in needs the client_id that this server has at the identity provider")
        if "openid" not in self.scopes or not all(map(_SCOPE.fullmatch, self.scopes)):
            raise ConfigurationError("sign_in scopes must be words without spaces and quotes, and openid one of them")
        if not all(map(_DOMAIN.fullmatch, self.domains)):
            raise ConfigurationError("sign_in domains must be names such as example.com, in lower case")
