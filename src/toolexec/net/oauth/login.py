"""Log a person in to a server: in a browser of this machine, or on another device."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolexec.net.oauth.clients import client_of, is_registered
from toolexec.net.oauth.code_flow import CodeRequest
from toolexec.net.oauth.device_flow import ask_device_code, await_device
from toolexec.net.oauth.loopback import comeback
from toolexec.net.oauth.metadata import Found
from toolexec.net.oauth.session import LoginStatus, OAuthSession, wanted_scopes
from toolexec.net.oauth.store import Login
from toolexec.net.oauth.tokens import TokenClient

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
    scope = await _scope(session, found, scopes)
    if session.settings.flow == "client":
        await session.request_as_client(found, scope)
    elif device or session.settings.flow == "device":
        await _on_device(session, found, scope, show, sleep)
    else:
        await _in_browser(session, found, scope, show, seconds)
    return await _status(session)


async def _in_browser(
    session: OAuthSession, found: Found, scope: str, show: Callable[[str, str], Awaitable[object]], seconds: float
) -> Login:
    fixed = is_registered(session.settings, found.server)
    async with comeback(session.settings.redirect_port, fixed=fixed) as place:
        login = await _code_login(session, found, scope, place.url)
        place.is_ours = login.request.is_ours
        await show(login.request.link, "")
        answer = await place.wait(seconds)
        code = login.request.code(answer)
    return await _change(session, login, code)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLogin:
    """A login in a browser that has begun: what is asked of the authorization server, as which client."""

    found: Found
    client: TokenClient
    request: CodeRequest


async def begin_code_login(session: OAuthSession, redirect: str, scopes: Sequence[str] = ()) -> CodeLogin:
    """Begin a login of *session* in a browser that comes back to *redirect*; its `request.link` is what to open there.
    *scopes* are asked for as by `log_in`. Raises LoginError and what the store does."""
    await session.probe()
    found = await session.discover()
    return await _code_login(session, found, await _scope(session, found, scopes), redirect)


async def end_code_login(session: OAuthSession, login: CodeLogin, answer: Mapping[str, str]) -> LoginStatus:
    """Keep what comes of a login, by the *answer* that the browser came back with. Raises LoginError for one that is
    not the answer to this login, or a refusal, and what the store does; then the login that was there stays."""
    await _change(session, login, login.request.code(answer))
    return await _status(session)


async def _code_login(session: OAuthSession, found: Found, scope: str, redirect: str) -> CodeLogin:
    client = await client_of(session.reach, found.server, session.settings, redirects=[redirect], scope=scope)
    request = CodeRequest(
        server=found.server,
        client_id=client.client_id,
        redirect=redirect,
        scope=scope,
        resource=found.resource,
        audience=session.settings.audience,
    )
    return CodeLogin(found=found, client=client, request=request)


async def _change(session: OAuthSession, login: CodeLogin, code: str) -> Login:
    """Change the code for tokens, and keep them."""
    server, request = login.found.server, login.request
    reply = await session.request(server.token_endpoint, login.client, request.fields(code), server.issuer)
    request.check(reply, session.clock())
    return await session.keep(login.found, login.client, reply, request.scope)


async def _scope(session: OAuthSession, found: Found, scopes: Sequence[str]) -> str:
    before = await session.store.load(session.name, session.server)
    kept = before.asked if before is not None and scopes else ""
    return wanted_scopes(session.settings, session.challenge, found, more=" ".join((kept, *scopes)))


async def _status(session: OAuthSession) -> LoginStatus:
    status = await session.status()
    assert status is not None
    return status


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
