"""Where the requests of an OpenAPI provider go, and which of these origins its operator has named."""

from __future__ import annotations

from dataclasses import dataclass

from toolexec.backend.providers.openapi.document import Document
from toolexec.backend.providers.openapi.operations import Operation
from toolexec.backend.providers.openapi.security import Schemes
from toolexec.backend.providers.openapi.servers import Servers
from toolexec.backend.providers.openapi.settings import OpenAPIProvider
from toolexec.backend.secrets.origins import CredentialOrigins, read_origins
from toolexec.net.hosts import origin_of


@dataclass(frozen=True, slots=True)
class NamedOrigins:
    """The origins that credentials may go to: with `calls`, and to get `tokens`."""

    calls: CredentialOrigins
    tokens: CredentialOrigins


def named_origins(provider: OpenAPIProvider, document: Document, servers: Servers, schemes: Schemes) -> NamedOrigins:
    """Return the origins that the operator has named, by the settings or with the document.

    What a document from a URL names does not count, but the origin of that URL does. A document that the operator gives
    as a file or as data counts as it is now: its own server, not those of single operations, and its token URLs.
    """
    named = read_origins("credential_origins", provider.credential_origins)
    named |= {origin_of(provider.base_url), origin_of(document.location)}
    own = origin_of(servers.own_url())
    tokens = set(named)
    if not origin_of(document.location):
        named |= {own}
        tokens |= {origin_of(url) for _, url, _ in schemes.token_places()}
        if provider.login is not None:
            name, login = provider.login
            tokens |= {origin_of(url) for url in schemes.login_places(name, login.flow).values()}
    elif isinstance(provider.server, str) and origin_of(provider.server) == own:
        named |= {own}
    return NamedOrigins(
        CredentialOrigins(provider.name, named, instead="its base_url"),
        CredentialOrigins(provider.name, tokens | named, instead="the token_url of the credential"),
    )


def destination_of(operation: Operation, schemes: Schemes) -> str:
    """Return the origins that a call of an operation goes to: that of its server, then those of its tokens."""
    urls = [operation.server, *schemes.token_urls(operation.security)]
    return ", ".join(dict.fromkeys(filter(None, map(origin_of, urls))))
