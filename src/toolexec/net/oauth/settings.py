"""How to log in to a server: the settings of its `auth`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from toolexec.errors import ConfigurationError
from toolexec.model.declared import declared, setting
from toolexec.model.settings import checked
from toolexec.net.hosts import origin_of

Flow: TypeAlias = Literal["code", "device", "client"]
LoginPer: TypeAlias = Literal["server", "caller"]
_KIND: Final = "oauth"


@checked("auth")
@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """How to log in to a server. All of it may be left out where the server registers clients by itself.

    A `client_secret` or a `private_key` is used only at `issuer` or at `token_url`, one of which must be set with it:
    else the server would say who gets it. With `token_url`, nothing is asked of the authorization server about itself:
    it is where these settings say. With `per="caller"` each call is made with the login of its caller, and with no
    other. Raises ConfigurationError for settings that cannot work together.

    >>> OAuthSettings(client_id="toolexec", scopes=["read"]).flow
    'code'
    """

    flow: Flow = setting(
        "code", "How to log in: a person in a browser (code) or on another device (device), or the client itself."
    )
    per: LoginPer = setting("server", "Whose login calls are made with: one of the server for all, or their caller's.")
    client_id: str = setting("", "The client's ID, where it is registered already.")
    client_secret: str = setting("", "The client's secret, best as a reference: secretref:env:NAME.", secret=True)
    private_key: str = setting("", "The client's private key (PEM), in place of a secret; a reference.", secret=True)
    client_metadata_url: str = setting("", "The https URL of a document that describes the client, which is its ID.")
    issuer: str = setting("", "The authorization server, as it names itself; any other is refused.")
    token_url: str = setting(
        "", "Where tokens are asked for, at an authorization server that does not describe itself."
    )
    authorization_url: str = setting("", "Where a person logs in in a browser; beside token_url.")
    device_url: str = setting("", "Where codes for other devices are asked for; beside token_url.")
    audience: str = setting("", "The API that tokens are for, where the authorization server wants to know.")
    scopes: Sequence[str] = setting((), "The scopes to ask for; without them, those that the server names.")
    redirect_port: int = setting(0, "The port that a browser comes back to; 0 is any.", least=0, most=65535)
    allow_private: bool = setting(False, "Whether the authorization server may have a private address.")

    def __post_init__(self) -> None:
        if self.client_secret and self.private_key:
            raise ConfigurationError("auth: give client_secret or private_key, not both")
        named = self.issuer or self.token_url
        if (self.client_secret or self.private_key) and not (self.client_id and named):
            missing = "issuer" if self.client_id else "client_id"
            raise ConfigurationError(f"auth: what proves who the client is goes to its issuer alone; set {missing}")
        if self.flow == "client" and not (self.client_secret or self.private_key):
            raise ConfigurationError("auth: the flow client needs client_id, issuer, and client_secret or private_key")
        if self.flow == "client" and self.per == "caller":
            raise ConfigurationError("auth: with the flow client no person logs in, so per must be server")
        if self.client_metadata_url and not self.client_metadata_url.startswith("https://"):
            raise ConfigurationError("auth: client_metadata_url must begin with https://")
        if self.client_metadata_url and self.client_id:
            raise ConfigurationError("auth: client_metadata_url is the client's ID; leave out client_id")
        if (self.authorization_url or self.device_url) and not self.token_url:
            raise ConfigurationError("auth: authorization_url and device_url go with token_url; set it, too")
        if self.token_url and not self.client_id:
            raise ConfigurationError("auth: with token_url no client is registered; set client_id")
        for name in ("issuer", "token_url", "authorization_url", "device_url"):
            if getattr(self, name) and not origin_of(getattr(self, name)):
                raise ConfigurationError(f"auth: {name} must be an http(s) URL of an authorization server")

    @property
    def secrets(self) -> set[str]:
        """What must not be shown."""
        return {each for each in (self.client_secret, self.private_key) if each}


def read_oauth(value: object) -> OAuthSettings | None:
    """Return the settings in an entry of a server: `"oauth"`, or a mapping of kind `oauth`; None for the values that
    other programs have there. A mapping with settings of ours and no kind is one of these.

    Raises ConfigurationError for an unknown or invalid setting.
    """
    if value == _KIND:
        return OAuthSettings()
    if not isinstance(value, Mapping):
        return None
    data: dict[str, Any] = dict(cast("Mapping[str, Any]", value))
    kind = data.pop("kind", None)
    if kind is None and not declared(OAuthSettings).keys() & data.keys():
        return None
    if kind not in (None, _KIND):
        raise ConfigurationError(f"auth: the kind {str(kind)[:60]!r} is unknown; use {_KIND}")
    return OAuthSettings(**data)
