"""Log a person in to a server: in a browser of this machine, or on another device."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from toolexec.net.oauth.clients import client_of, is_registered
from toolexec.net.oauth.code_flow import CodeRequest
from toolexec.net.oauth.device_flow import ask_device_code, await_device
from toolexec.net.oauth.loopback import comeback
from toolexec.net.oauth.metadata import Found
from toolexec.net.oauth.session import LoginStatus, OAuthSession, wanted_scopes
from toolexec.net.oauth.store import Login

__all__ = ["LOGIN_SECONDS", "log_in"]

LOGIN_SECONDS: Final = 300.0
"""How long a person has to log in."""


async def log_in(
    session: OAuthSession,
    show: Callable[[str, str], Awaitable[object]],
    *,
    device: bool = False,
    scopes: Sequence[str] = (),
    seconds: float = LOGIN_SECONDS,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> LoginStatus:
    """Log in, and keep the tokens. *show* is called with the link that a person is to open, and the code to type in
    there (empty in a browser of this machine). *scopes* are asked for beside those that are usual, and beside those of
    the login that is there already.

    Raises LoginError where the login is refused, cannot be trusted, or takes more than *seconds*, and what `LoginStore`
    does; then the login that was there stays.
    """
    found = await session.discover()
    before = await session.store.load(session.name, session.server)
    kept = before.asked if before is not None and scopes else ""
    scope = wanted_scopes(session.settings, session.challenge, found, more=" ".join((kept, *scopes)))
    if session.settings.flow == "client":
        await session.request_as_client(found, scope)
    elif device or session.settings.flow == "device":
        await _on_device(session, found, scope, show, sleep)
    else:
        await _in_browser(session, found, scope, show, seconds)
    status = await session.status()
    assert status is not None
    return status


async def _in_browser(
    session: OAuthSession, found: Found, scope: str, show: Callable[[str, str], Awaitable[object]], seconds: float
) -> Login:
    fixed = is_registered(session.settings, found.server)
    async with comeback(session.settings.redirect_port, fixed=fixed) as place:
        client = await client_of(session.reach, found.server, session.settings, redirects=[place.url], scope=scope)
        request = CodeRequest(
            server=found.server,
            client_id=client.client_id,
            redirect=place.url,
            scope=scope,
            resource=found.resource,
            audience=session.settings.audience,
        )
        place.is_ours = request.is_ours
        await show(request.link, "")
        code = request.code(await place.wait(seconds))
    reply = await session.request(found.server.token_endpoint, client, request.fields(code), found.server.issuer)
    request.check(reply, session.clock())
    return await session.keep(found, client, reply, scope)


async def _on_device(
    session: OAuthSession,
    found: Found,
    scope: str,
    show: Callable[[str, str], Awaitable[object]],
    sleep: Callable[[float], Awaitable[object]],
) -> Login:
    client = await client_of(session.reach, found.server, session.settings, redirects=(), scope=scope)
    more = {"resource": found.resource, "audience": session.settings.audience}
    code = await ask_device_code(session.reach, found.server, client, scope=scope, more=more)
    await show(code.link, code.user_code)
    reply = await await_device(session.reach, found.server, client, code, sleep)
    return await session.keep(found, client, reply, scope)
