"""To which origins the credentials of a provider may go."""

from __future__ import annotations

from collections.abc import Iterable

from toolexec.errors import BackendUnavailableError, ConfigurationError
from toolexec.net.hosts import origin_of


class CredentialOrigins:
    """Decides whether the credentials of *provider* may go to a URL: only to the origins in *allowed*, such as
    `https://api.example.com`.

    What adds a credential to a request asks here first. *instead* is what the operator can set, other than
    `credential_origins`, and the error says so.
    """

    def __init__(self, provider: str, allowed: Iterable[str], *, instead: str) -> None:
        self.allowed: frozenset[str] = frozenset(allowed) - {""}
        self._provider = provider
        self._instead = instead

    def check(self, url: str, what: str) -> None:
        """Raise BackendUnavailableError unless *what* may go to *url*; nothing was sent then."""
        origin = origin_of(url)
        if origin in self.allowed:
            return
        raise BackendUnavailableError(
            f"{what} may not go to {origin or 'a URL without a host'}, which is not named for credentials; "
            f"if it should go there, add {origin} to credential_origins of the provider {self._provider}, "
            f"or set {self._instead}",
            retryable=False,
            details={"origin": origin, "allowed": sorted(self.allowed)},
        )


def read_origins(where: str, origins: Iterable[str]) -> frozenset[str]:
    """Return *origins* as they are compared. Raises ConfigurationError for one that is not scheme and host."""
    found: set[str] = set()
    for text in origins:
        origin = origin_of(text)
        if not origin or text.rstrip("/").count("/") > 2 or any(mark in text for mark in "@?#"):
            raise ConfigurationError(f"{where}: {text[:200]!r} is not an origin; write it like https://api.example.com")
        found.add(origin)
    return frozenset(found)
