"""Where the credentials of an HTTP provider may go."""

from __future__ import annotations

from toolexec.backend.providers.http.config import HTTPProvider
from toolexec.backend.secrets.origins import CredentialOrigins, read_origins
from toolexec.net.hosts import origin_of

__all__ = ["named_origins"]


def named_origins(provider: HTTPProvider) -> CredentialOrigins:
    """Return the origins that are named for credentials: that of `base_url`, and `credential_origins`.

    Without a `base_url` the origin of the tools counts, if all of them have the same: with several ones nothing says
    to which of them the credentials belong.
    """
    own = {origin_of(provider.base_url or tool.origin) for tool in provider.tools} - {""}
    named = read_origins("credential_origins", provider.credential_origins)
    return CredentialOrigins(provider.name, named | (own if len(own) == 1 else set()), instead="its base_url")
