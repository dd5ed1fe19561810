"""Requests of an MCP server with the token of its login, and what must not be shown of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx2

from toolexec.backend.secrets import Scrubber
from toolexec.errors import ToolExecError
from toolexec.net.oauth.session import OAuthSession


async def send_with_login(
    login: OAuthSession, request: httpx2.Request, send: Callable[[httpx2.Request], Awaitable[httpx2.Response]]
) -> httpx2.Response:
    """Send *request* with the token for its place, and once more where the server refuses it and there is another."""
    url = str(request.url)
    token = await _authorize(login, request, url)
    response = await send(request)
    if response.is_success:
        login.accepted()
    if response.status_code not in (401, 403):
        return response
    if not await login.refused(url, token, response.status_code, response.headers.get_list("www-authenticate")):
        return response
    await response.aclose()
    await _authorize(login, request, url)
    response = await send(request)
    if response.is_success:
        login.accepted()
    elif response.status_code == 401:
        login.refused_again()
    return response


async def _authorize(login: OAuthSession, request: httpx2.Request, url: str) -> str:
    """Add the token to a request; return it, empty where there is none. Where it cannot be had the request goes
    without, and the server's refusal has the login say why."""
    try:
        token = await login.token(url)
    except ToolExecError:
        token = ""
    if token:
        request.headers["Authorization"] = f"Bearer {token}"
    return token


class KnownSecrets:
    """Takes out of what a server says the values of *hidden*, and the tokens that *login* has by then."""

    def __init__(self, hidden: frozenset[str], login: OAuthSession | None) -> None:
        self._hidden = hidden
        self._login = login
        self._values = hidden
        self._scrubber = Scrubber(hidden)

    def __bool__(self) -> bool:
        return bool(self._now())

    def text(self, text: str) -> str:
        """*text* without the values."""
        return self._now().text(text)

    def value(self, value: Any) -> Any:
        """Return a JSON value without the values."""
        return self._now().value(value)

    def _now(self) -> Scrubber:
        values = self._hidden | self._login.secrets if self._login is not None else self._hidden
        if values != self._values:
            self._values, self._scrubber = values, Scrubber(values)
        return self._scrubber
