"""How to log in to a server: the settings of its `auth`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from toolexec.errors import ConfigurationError
from toolexec.model.declared import declared, setting
from toolexec.model.settings import checked
from toolexec.net.hosts import origin_of

__all__ = ["Flow", "OAuthSettings", "read_oauth"]

Flow: TypeAlias = Literal["code", "device", "client"]
_KIND: Final = "oauth"


@checked("auth")
@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """How to log in to a server. All of it may be left out where the server registers clients by itself.

    A `client_secret` or a `private_key` is used only at `issuer`, which must be set with it: else the server would say
    who gets it. Raises ConfigurationError for settings that cannot work together.

    >>> OAuthSettings(client_id="toolexec", scopes=["read"]).flow
    'code'
    """

    flow: Flow = setting(
        "code", "How to log in: a person in a browser (code) or on another device (device), or the client itself."
    )
    client_id: str = setting("", "The client's ID, where it is registered already.")
    client_secret: str = setting("", "The client's secret, best as a reference: secretref:env:NAME.", secret=True)
    private_key: str = setting("", "The client's private key (PEM), in place of a secret; a reference.", secret=True)
    client_metadata_url: str = setting("", "The https URL of a document that describes the client, which is its ID.")
    issuer: str = setting("", "The authorization server, as it names itself; any other is refused.")
    scopes: Sequence[str] = setting((), "The scopes to ask for; without them, those that the server names.")
    redirect_port: int = setting(0, "The port that a browser comes back to; 0 is any.", least=0, most=65535)
    allow_private: bool = setting(False, "Whether the authorization server may have a private address.")

    def __post_init__(self) -> None:
        if self.client_secret and self.private_key:
            raise ConfigurationError("auth: give client_secret or private_key, not both")
        if (self.client_secret or self.private_key) and not (self.client_id and self.issuer):
            missing = "issuer" if self.client_id else "client_id"
            raise ConfigurationError(f"auth: what proves who the client is goes to its issuer alone; set {missing}")
        if self.flow == "client" and not (self.client_secret or self.private_key):
            raise ConfigurationError("auth: the flow client needs client_id, issuer, and client_secret or private_key")
        if self.client_metadata_url and not self.client_metadata_url.startswith("https://"):
            raise ConfigurationError("auth: client_metadata_url must begin with https://")
        if self.client_metadata_url and self.client_id:
            raise ConfigurationError("auth: client_metadata_url is the client's ID; leave out client_id")
        if self.issuer and not origin_of(self.issuer):
            raise ConfigurationError("auth: issuer must be the http(s) URL of an authorization server")

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
