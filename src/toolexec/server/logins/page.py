"""The login page: a caller proves who it is, goes on to the authorization server, and comes back."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import anyio
from starlette.types import Receive, Scope, Send

from toolexec.errors import LoginError, ToolExecError
from toolexec.model.origin import Caller
from toolexec.model.redaction import redactor
from toolexec.model.visible import visible_line
from toolexec.server.auth.credentials import BadCredentialError, UncheckableError
from toolexec.server.auth.failures import TooManyFailuresError
from toolexec.server.http.replies import header, peer_of, refuse, reply
from toolexec.server.logins.links import CALLBACK, LOGIN_PATH, SIGN_IN, LoginLinks, NoLoginError, cookie_of
from toolexec.server.logins.sign_ins import FindSignIn, SignIns

logger: logging.Logger = logging.getLogger(__name__)
Prove: TypeAlias = Callable[[str, str, str], Awaitable[Caller]]
"""Returns whose a key or token is: by endpoint, the address that it comes from, and the key or token."""
_MOST_BYTES: Final = 32_768
_COOKIE_SECONDS: Final = 600
_FORM: Final = "application/x-www-form-urlencoded"
_HEADERS: Final = (
    ("content-type", "text/html; charset=utf-8"),
    (
        "content-security-policy",
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),  # with no-referrer, browsers would not say where a form comes from
)
_PAGE: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>toolexec: log in</title>'
    '<meta name="viewport" content="width=device-width">'
    "<style>body{font:1.1em/1.5 sans-serif;margin:3em auto;max-width:34em;padding:0 1em}"
    "input,button,a.go{font:inherit;padding:.4em .8em}input{width:100%;box-sizing:border-box;margin:.4em 0}</style>"
    "<h1>{title}</h1>{body}</html>"
)


class LoginPage:
    """Serves the logins of *links* below `/login/`. *prove* says whose a key or token is; *seconds* is how long the
    body of a form may take. *sign_in* says where callers with tokens sign in.

    A link alone logs no one in: the browser must send the key or token with which the caller of the link calls this
    server, from a page of this server, or sign in as that caller at the identity provider, and only that browser, by
    its cookie, is taken back. So a link that reaches another person gives the one who sent it nothing.
    """

    def __init__(
        self, links: LoginLinks, prove: Prove, seconds: float, sign_in: FindSignIn = lambda endpoint: None
    ) -> None:
        self._links = links
        self._sign_ins = SignIns(links, sign_in)
        self._prove = prove
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request below `/login/`."""
        path: str = scope["path"]
        try:
            if path.startswith(CALLBACK) and scope["method"] == "GET":
                await self._come_back(unquote(path.removeprefix(CALLBACK)), scope, send)
            elif path == SIGN_IN and scope["method"] == "GET":
                await self._signed_in(scope, send)
            elif not path.startswith(CALLBACK) and scope["method"] in ("GET", "HEAD"):
                await self._show(path.removeprefix(LOGIN_PATH), send)
            elif not path.startswith(CALLBACK) and scope["method"] == "POST":
                await self._begin(path.removeprefix(LOGIN_PATH), scope, receive, send)
            else:
                await refuse(send, 405, "this page is opened in a browser", [("allow", "GET, POST")])
        except NoLoginError as error:
            await _say(send, 403, "This cannot go on", str(error))
        except BadCredentialError as error:
            await _say(send, 403, "That is not the key", f"{error}. Go back, and try again.")
        except TooManyFailuresError as error:
            await _say(
                send, 429, "Too many wrong keys", "Wait a little.", [("retry-after", str(math.ceil(error.wait)))]
            )
        except UncheckableError as error:
            await _say(send, 503, "Try again later", str(error), [("retry-after", "60")])
        except ToolExecError as error:
            logger.warning("a login has failed: %s", redactor.text(error.message))
            why = error.message if isinstance(error, LoginError) else "The log of the server says why."
            await _say(send, 502, "The login has failed", why)

    async def _show(self, nonce: str, send: Send) -> None:
        pending = self._links.find(nonce)
        name, whose = _shown(pending.backend), _shown(pending.caller.id)
        body = (
            f"<p>The caller <b>{whose}</b> of this server is to log in to <b>{name}</b>. Calls of {whose} will be made "
            "with that login, so go on only if that is you, and you have just asked for it.</p>"
        )
        sign_in = self._sign_ins.of(pending)
        if sign_in is not None:
            where = _shown(sign_in.host)
            body += f'<form method="post"><button name="sign_in" value="1" autofocus>Sign in at {where}</button></form>'
            await _page(send, 200, f"Log in to {name}", body)
            return
        body += (
            '<form method="post" autocomplete="off"><label>The key or token with which '
            f'{whose} uses this server:<input type="password" name="proof" required autofocus></label>'
            "<button>Go on</button></form>"
        )
        await _page(send, 200, f"Log in to {name}", body)

    async def _begin(self, nonce: str, scope: Scope, receive: Receive, send: Send) -> None:
        if header(scope, b"origin") != self._links.base:
            raise NoLoginError("This form was not sent by the page of this server.")
        fields = await self._form(scope, receive)
        pending = self._links.find(nonce)
        if "sign_in" in fields:
            link, name, cookie = await self._sign_ins.begin(nonce)
            where = _shown(urlsplit(link).netloc)
            body = f'<p><a class="go" rel="noreferrer" href="{escape(link)}">Go on to {where}</a></p>'
            await _page(send, 200, f"Sign in at {where}", body, [self._cookie(name, cookie, SIGN_IN)])
            return
        proof = fields.get("proof", "").strip()
        if not proof:
            raise BadCredentialError("There was no key in the form")
        await self._go_on(send, nonce, await self._prove(pending.caller.endpoint, peer_of(scope), proof))

    async def _signed_in(self, scope: Scope, send: Send) -> None:
        answer = _fields(scope["query_string"].decode("latin-1"))
        nonce, caller = await self._sign_ins.end(answer, _cookies(scope))
        await self._go_on(send, nonce, caller, _gone(cookie_of(answer["state"]), SIGN_IN))

    async def _go_on(self, send: Send, nonce: str, caller: Caller, *headers: tuple[str, str]) -> None:
        """Send a browser, whose *caller* is proven, on to the authorization server of the backend."""
        backend = self._links.find(nonce).backend
        link, name, cookie = await self._links.begin(nonce, caller)
        where = _shown(urlsplit(link).netloc)
        body = (
            f"<p>Log in at <b>{where}</b> as the person whose account calls of <b>{_shown(caller.id)}</b> are to use."
            f'</p><p><a class="go" rel="noreferrer" href="{escape(link)}">Go on to {where}</a></p>'
        )
        await _page(send, 200, f"Log in to {_shown(backend)}", body, [self._cookie(name, cookie, CALLBACK), *headers])

    def _cookie(self, name: str, cookie: str, path: str) -> tuple[str, str]:
        secure = "; Secure" if self._links.base.startswith("https:") else ""
        value = f"{name}={cookie}; Path={path}; Max-Age={_COOKIE_SECONDS}; HttpOnly; SameSite=Lax{secure}"
        return "set-cookie", value

    async def _form(self, scope: Scope, receive: Receive) -> dict[str, str]:
        """Return the fields of a form."""
        kind = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
        body = b""
        if kind == _FORM:
            with anyio.move_on_after(self._seconds):
                body = await _read(receive)
        return _fields(body.decode(errors="replace"))

    async def _come_back(self, backend: str, scope: Scope, send: Send) -> None:
        query = scope["query_string"].decode("latin-1")
        answer = _fields(query)
        pending = await self._links.end(backend, answer, _cookies(scope))
        gone = [_gone(cookie_of(answer["state"]), CALLBACK)]
        words = (
            f"Calls of {visible_line(pending.caller.id, 100)} are made with this login now. Make the call again, if "
        )
        await _say(
            send, 200, f"Logged in to {pending.backend}", f"{words}your program does not; close this page.", gone
        )


def _gone(name: str, path: str) -> tuple[str, str]:
    """Return the header that has a browser forget a cookie."""
    return "set-cookie", f"{name}=; Path={path}; Max-Age=0; HttpOnly; SameSite=Lax"


def _fields(query: str) -> dict[str, str]:
    """Return the fields of an answer or a form, none of too many; raises NoLoginError for one that is given twice."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=50)
    except ValueError:
        pairs = []
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NoLoginError("This cannot be read: it says something twice.")
    return found


def _cookies(scope: Scope) -> dict[str, str]:
    try:
        return {name: each.value for name, each in SimpleCookie(header(scope, b"cookie") or "").items()}
    except CookieError:
        return {}


async def _read(receive: Receive) -> bytes:
    """Return the body of a request; empty for one that is too long or broken off."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        body += message.get("body", b"")
        if len(body) > _MOST_BYTES:
            return b""
        if not message.get("more_body", False):
            return body


def _shown(text: str) -> str:
    return escape(visible_line(text, 200))


async def _say(send: Send, status: int, title: str, words: str, headers: list[tuple[str, str]] | None = None) -> None:
    await _page(send, status, _shown(title), f"<p>{escape(visible_line(redactor.text(words), 1000))}</p>", headers)


async def _page(send: Send, status: int, title: str, body: str, headers: list[tuple[str, str]] | None = None) -> None:
    """Answer with a page; *title* and *body* are HTML."""
    page = _PAGE.replace("{title}", title, 1).replace("{body}", body, 1).encode()
    await reply(send, status, page, [*_HEADERS, *(headers or ())])
