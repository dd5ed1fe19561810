"""Authentication that depends on the request, or on how it was answered: signatures and digests."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Protocol, TypeAlias

from toolexec.errors import Outcome, RemoteToolError
from toolexec.errors.extras import extra_needed

Received: TypeAlias = tuple[int, Sequence[tuple[str, str]]]
"""The status of a response, and its headers."""
_Headers: TypeAlias = Sequence[tuple[str, str]]


class RequestAuth(Protocol):
    """Authenticates requests to one origin; may be used by many at the same time, on one event loop."""

    def flow(
        self, method: str, url: str, headers: _Headers, body: bytes
    ) -> Generator[list[tuple[str, str]], Received, None]:
        """Yield the headers to add to a request that is otherwise sent like this, its Host among *headers*. Receives
        how it was answered, and yields once more to have it sent again, with other ones.

        Raises RemoteToolError for an answer that it cannot go on from.
        """
        ...


class Digest:
    """Answers the challenge of a server for digest authentication (RFC 7616) with a user and a password.

    Where the server accepts no other quality of protection than `auth-int`, the digest covers the body, too. The first
    request is sent without credentials; those after it with the challenge that is known by then.
    """

    def __init__(self, username: str, password: str) -> None:
        with extra_needed("http", "digest authentication"):
            from toolexec.net.digest import DigestAuth
        self._auth = DigestAuth(username, password)

    def flow(
        self, method: str, url: str, headers: _Headers, body: bytes
    ) -> Generator[list[tuple[str, str]], Received, None]:
        """Implement `RequestAuth.flow`."""
        import httpx2

        request = httpx2.Request(method, url, content=body)
        flow = self._auth.auth_flow(request)
        next(flow)
        status, received = yield _authorization(request.headers)
        challenge = [each for each in received if each[0].lower() == "www-authenticate"]
        try:
            flow.send(httpx2.Response(status, headers=challenge, request=request))
        except StopIteration:
            return
        except (httpx2.ProtocolError, ValueError) as error:
            reason = "the digest that the server asks for cannot be computed"
            raise RemoteToolError(f"{reason}: {str(error)[:300]}", outcome=Outcome.REFUSED) from error
        yield _authorization(request.headers)


def _authorization(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    value = headers.get("Authorization", "")
    return [("Authorization", value)] if value else []
