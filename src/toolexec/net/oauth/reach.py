"""Requests of a login: which places they may go to. What a server or its metadata names is not to be trusted."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlencode, urlsplit

from toolexec.errors import LoginError, ToolExecError
from toolexec.model.json_value import JSONDict
from toolexec.net.address import refusal
from toolexec.net.hosts import DEFAULT_PORTS, is_address, is_local_name, read_authority, written_authority
from toolexec.net.http import HTTPClient, HTTPRequest, HTTPResponse

_SECONDS: Final = 30.0
_MOST_BYTES: Final = 1 << 20
_FORM: Final = "application/x-www-form-urlencoded"


class Client(Protocol):
    """What is needed of an `HTTPClient`."""

    async def send(self, request: HTTPRequest) -> HTTPResponse:
        """Send a request and return its response."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class Reach:
    """Sends the requests of a login to *server_url*: over https, or over http on this machine alone.

    A place at a private address is refused, unless *allow_private*, or the server itself is written with such an
    address. Redirects are never followed. *client* has further settings of each `HTTPClient`, such as a proxy.
    """

    def __init__(
        self, server_url: str, *, allow_private: bool = False, client: Mapping[str, Any] | None = None
    ) -> None:
        found = _place(server_url)
        self._own = written_authority(*found) if found is not None else ""
        self._settings = client or {}
        self._near = allow_private or (found is not None and _is_private(found[1]))

    def check(self, url: str, what: str) -> None:
        """Raise LoginError, which names *what*, unless *url* may be reached, by what it says itself."""
        self._host(url, what)

    async def get(self, url: str, what: str) -> HTTPResponse:
        """Return what *url* answers; raises LoginError where it cannot be reached, or must not."""
        return await self._send(HTTPRequest("GET", url, [("Accept", "application/json")]), what)

    async def post(
        self, url: str, fields: Mapping[str, str], what: str, headers: Mapping[str, str] | None = None
    ) -> HTTPResponse:
        """Send a form; see `get`."""
        head = [("Content-Type", _FORM), ("Accept", "application/json"), *(headers or {}).items()]
        return await self._send(HTTPRequest("POST", url, head, urlencode(fields).encode()), what)

    async def post_json(self, url: str, data: JSONDict, what: str) -> HTTPResponse:
        """Send JSON; see `get`."""
        head = [("Content-Type", "application/json"), ("Accept", "application/json")]
        return await self._send(HTTPRequest("POST", url, head, json.dumps(data).encode()), what)

    async def _send(self, request: HTTPRequest, what: str) -> HTTPResponse:
        host = self._host(request.url, what)
        client = HTTPClient(
            hosts=[host],
            allow_private=self._near or host == self._own,  # the operator wrote where the server itself is
            timeout=_SECONDS,
            max_response_bytes=_MOST_BYTES,
            max_redirects=0,
            **self._settings,
        )
        try:
            response = await _sent(client, request, what)
        finally:
            await client.aclose()
        if 300 <= response.status < 400:
            raise LoginError(f"{what}: it redirects (HTTP {response.status}), which is not followed")
        return response

    def _host(self, url: str, what: str) -> str:
        """Return the host of a place that may be reached, as a list of hosts has it."""
        found = _place(url)
        if found is None:
            raise LoginError(f"{what}: it is not a plain https URL")
        scheme, host, port = found
        if scheme == "http" and not is_loopback(host):
            raise LoginError(f"{what}: http is for this machine only, and {host} is another one; it must be https")
        private = is_local_name(host) or (is_address(host) and bool(refusal(host, allow_private=self._near)))
        if private and not (self._near and not (is_address(host) and refusal(host, allow_private=True))):
            raise LoginError(
                f"{what}: {host} has a private address, which a server elsewhere must not lead to; set allow_private "
                "in its auth if it shall"
            )
        return written_authority(scheme, host, port)


class ClientReach(Reach):
    """Sends the requests of a login over *client*, whose own rules say which places may be reached."""

    def __init__(self, client: Client, server_url: str) -> None:
        super().__init__(server_url)
        self.client = client

    def check(self, url: str, what: str) -> None:
        """Leave it to the client."""

    async def _send(self, request: HTTPRequest, what: str) -> HTTPResponse:
        return await _sent(self.client, request, what)


async def _sent(client: Client, request: HTTPRequest, what: str) -> HTTPResponse:
    try:
        return await client.send(request)
    except ToolExecError as error:
        raise LoginError(f"{what}: {error.message}", retryable=error.retryable) from error


def json_object(response: HTTPResponse) -> JSONDict | None:
    """Return the JSON object that was answered; None for anything else."""
    try:
        data = json.loads(response.body)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def is_loopback(host: str) -> bool:
    """Return whether *host* is written as this machine."""
    return is_local_name(host) or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_private(host: str) -> bool:
    return is_local_name(host) or (is_address(host) and bool(refusal(host)) and not refusal(host, allow_private=True))


def _place(url: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of a URL without user and fragment; None for any other text."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme not in DEFAULT_PORTS or "@" in parts.netloc or parts.fragment or not url.isprintable():
        return None
    found = read_authority(parts.netloc, DEFAULT_PORTS[parts.scheme])
    return (parts.scheme, *found) if found is not None else None
