"""The settings of authentication."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from urllib.parse import urlsplit

from toolexec.errors import ConfigurationError
from toolexec.model.declared import FileName, Seconds, about, setting
from toolexec.model.settings import checked
from toolexec.server.auth.sign_in_settings import SignInSettings

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""How a token may be signed. All have a public key: checking tokens does not enable making any."""

_OF_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@checked("ApiKey")
@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key that one caller has; `toolexec keys new ID` makes one.

    `id` names the caller, in policies and in the audit log. `sha256` is the key's hash in hexadecimal; the key itself
    is never kept. `roles`, `scopes` and `tenant` are what the caller then has. `expires` is the moment from which the
    key is refused, as `2027-01-31`, with or without a time and zone (default zone: UTC; empty: never).

    Raises ConfigurationError for an ID that is empty, longer than 128 characters or not printable, for what is not a
    SHA-256, and for an `expires` that is not a date.
    """

    id: str
    sha256: str = field(repr=False)
    roles: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    tenant: str = ""
    expires: str | date = ""

    def __post_init__(self) -> None:
        if not self.id or len(self.id) > 128 or not self.id.isprintable():
            raise ConfigurationError("the id of an API key must have 1 to 128 printable characters")
        if re.fullmatch(r"[0-9a-fA-F]{64}", self.sha256) is None:
            raise ConfigurationError(
                f"sha256 of the API key {self.id!r} must be 64 hexadecimal digits; "
                f"`toolexec keys new {self.id}` prints a key with its sha256"
            )
        if self.sha256.lower() == _OF_NOTHING:
            raise ConfigurationError(f"sha256 of the API key {self.id!r} is that of the empty text; make a real key")
        self.expires_at()

    def expires_at(self) -> float:
        """`expires` in seconds since 1970; infinite for a key that never expires."""
        moment = self.expires
        if moment == "":
            return math.inf
        try:
            moment = datetime.fromisoformat(moment if isinstance(moment, str) else moment.isoformat())
        except ValueError as error:
            raise ConfigurationError(
                f"expires of the API key {self.id!r} must be a date such as 2027-01-31, not {self.expires!r}"
            ) from error
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


@checked("JwtSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class JwtSettings:
    """Which tokens are accepted.

    `issuer` must be the token's `iss`, `audience` be in its `aud` (empty: the `resource_url` of `AuthSettings`). The
    keys come from `jwks_url` (https, or http on this machine; read again every hour, and for an unknown key at most
    once a minute) or from the file `jwks_file`. `algorithms` are those that are accepted, whatever a token says of
    itself. `leeway` is how many seconds the clocks may differ.

    `id_claim` names the claim with the caller's ID, `roles_claim`, `scopes_claim` and `tenant_claim` the ones with
    roles, scopes and tenant; dots lead into objects, as in `realm_access.roles`. Without `scope`, `scp` counts.

    Raises ConfigurationError for a missing issuer, none or two places with keys, an unsafe address, and an algorithm
    that is not one of `ALGORITHMS`.
    """

    issuer: str = field(metadata=about("Required `iss` of tokens, exactly."))
    audience: str = setting("", "Required audience of tokens; empty: auth.resource_url.")
    jwks_url: str = setting("", "URL of the issuer's public keys.")
    jwks_file: FileName = setting("", "A file with the issuer's public keys.")
    algorithms: tuple[str, ...] = setting(("RS256", "ES256"), "Accepted signing algorithms.")
    leeway: Seconds = setting(30.0, "Allowed clock difference.", least=0, most=300)
    id_claim: str = setting("sub", "The claim with the caller's ID.")
    roles_claim: str = setting("roles", "The claim with the roles.")
    scopes_claim: str = setting("scope", "The claim with the scopes.")
    tenant_claim: str = setting("tenant", "The claim with the tenant.")

    def __post_init__(self) -> None:
        if not self.issuer:
            raise ConfigurationError("jwt needs the issuer: the exact text that tokens have as iss")
        if bool(self.jwks_url) == bool(self.jwks_file):
            raise ConfigurationError("jwt needs either jwks_url or jwks_file: where the issuer's public keys are")
        if self.jwks_url:
            check_url("jwks_url", self.jwks_url)
        unknown = [name for name in self.algorithms if name not in ALGORITHMS]
        if unknown or not self.algorithms:
            said = f"{unknown[0]!r} is not accepted" if unknown else "there are none"
            raise ConfigurationError(
                f"jwt algorithms must be some of {', '.join(ALGORITHMS)}; {said} (a shared secret would let whoever "
                "checks tokens make them, and `none` would let anybody)"
            )
        if not self.id_claim:
            raise ConfigurationError("jwt id_claim must name the claim that has the caller's ID")


@checked("AuthSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    """Who may use the server.

    With `api_keys` or `jwt`, every request needs a key or a token; with `allow_anonymous`, one without any is let in
    as an anonymous caller (a wrong one is refused still). `required_scopes` are needed by every caller.
    `resource_url` is this server's address as clients know it, and `authorization_servers` are where they get tokens:
    both are published so that clients find them (RFC 9728). `max_failures` is how many wrong credentials one address
    may send in a minute. `sign_in` has callers with tokens sign in at `jwt.issuer` on the login page.

    Raises ConfigurationError for two keys with one ID or one hash, for tokens without an audience, for an unsafe
    address, for authorization servers without `jwt` or `resource_url`, and for `sign_in` without `jwt` or with an
    issuer that is not a URL.
    """

    allow_anonymous: bool = setting(False, "Accept callers without a key or token, as anonymous.")
    api_keys: tuple[ApiKey, ...] = setting(
        (), "Keys: id, sha256, roles, scopes, tenant, expires. `toolexec keys new ID` makes one.", secret=True
    )
    required_scopes: tuple[str, ...] = setting((), "Scopes that every caller needs.")
    resource_url: str = setting("", "This server's address as clients know it.")
    authorization_servers: tuple[str, ...] = setting((), "Servers that issue tokens to clients.")
    max_failures: int = setting(20, "Failed logins allowed per address and minute.", least=1)
    jwt: JwtSettings | None = None
    sign_in: SignInSettings | None = None

    def __post_init__(self) -> None:
        for what, values in (
            ("id", [key.id for key in self.api_keys]),
            ("sha256", [key.sha256.lower() for key in self.api_keys]),
        ):
            if len(set(values)) < len(values):
                raise ConfigurationError(f"two API keys have the same {what}; each needs one of its own")
        if self.resource_url:
            check_url("resource_url", self.resource_url)
        for address in self.authorization_servers:
            check_url("authorization_servers", address)
        if self.jwt is not None and not (self.jwt.audience or self.resource_url):
            raise ConfigurationError(
                "jwt needs an audience, or auth a resource_url: a token for another service must not be accepted here"
            )
        if self.authorization_servers and (self.jwt is None or not self.resource_url):
            raise ConfigurationError("authorization_servers need jwt, to check their tokens, and resource_url")
        if self.sign_in is not None:
            if self.jwt is None:
                raise ConfigurationError("sign_in needs jwt: people sign in at the issuer of their tokens")
            check_url("jwt.issuer with sign_in", self.jwt.issuer)
        if any(not re.fullmatch(r"[\x21\x23-\x5b\x5d-\x7e]+", scope) for scope in self.required_scopes):
            raise ConfigurationError("required_scopes must be words without spaces, quotes and backslashes")

    @property
    def on(self) -> bool:
        """Whether callers can prove who they are."""
        return bool(self.api_keys) or self.jwt is not None

    @property
    def audience(self) -> str:
        """What tokens must be meant for."""
        return (self.jwt.audience if self.jwt is not None else "") or self.resource_url


def check_url(what: str, address: str) -> None:
    """Raise ConfigurationError for an address that is not https, or http on this machine."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        parts, host = urlsplit(""), ""
    if not host or parts.username is not None or parts.password is not None or parts.fragment or '"' in address:
        raise ConfigurationError(f"{what} must be an address such as https://tools.example.com/mcp, without a password")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in _LOOPBACK):
        raise ConfigurationError(f"{what} must begin with https:// (http:// is for this machine only): {address}")
