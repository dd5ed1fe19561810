"""The callers who prove who they are at an identity provider, before they go on from the login page."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from toolexec.errors import ToolExecError
from toolexec.model.origin import Caller
from toolexec.net.oauth.code_flow import CodeRequest
from toolexec.server.auth.sign_in import NotAllowedError, SignIn
from toolexec.server.logins.links import SIGN_IN, LoginLinks, NoLoginError, PendingLogin, cookie_of

logger: logging.Logger = logging.getLogger(__name__)
FindSignIn: TypeAlias = Callable[[str], SignIn | None]
"""Returns where the callers of an endpoint sign in; None where they do not."""
_SECONDS: Final = 600.0
_MOST: Final = 10_000
_WHAT: Final = "a sign-in at the identity provider"


@dataclass(frozen=True, slots=True, eq=False)
class _Begun:
    nonce: str
    pending: PendingLogin
    sign_in: SignIn
    request: CodeRequest
    browser: bytes
    ends: float


class SignIns:
    """Sends callers from the links of *links* to the identity provider of their endpoint, and takes them back.

    An answer counts once, within ten minutes, and only from the browser that was sent. *clock* gives seconds.
    """

    def __init__(self, links: LoginLinks, find: FindSignIn, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._links = links
        self._find = find
        self._clock = clock
        self._begun: OrderedDict[str, _Begun] = OrderedDict()

    def of(self, pending: PendingLogin) -> SignIn | None:
        """Return where the caller of a login is to sign in; None for one that proves who it is with a key."""
        return self._find(pending.caller.endpoint) if pending.caller.method == "jwt" else None

    async def begin(self, nonce: str) -> tuple[str, str, str]:
        """Return where a browser with the link of *nonce* goes on to, the name of its cookie, and the cookie.

        Raises NoLoginError for a link that is not valid, or whose caller does not sign in, and LoginError.
        """
        pending = self._links.find(nonce)
        sign_in = self.of(pending)
        if sign_in is None:
            raise NoLoginError("The caller of this link has a key: go back, and enter it.")
        request = await sign_in.begin(f"{self._links.base}{SIGN_IN}")
        cookie, ends = secrets.token_urlsafe(32), self._clock() + _SECONDS
        self._begun[request.state] = _Begun(nonce, pending, sign_in, request, _digest(cookie), ends)
        while len(self._begun) > _MOST:
            self._begun.popitem(last=False)
        return request.link, cookie_of(request.state), cookie

    async def end(self, answer: Mapping[str, str], cookies: Mapping[str, str]) -> tuple[str, Caller]:
        """Take a browser back with the *answer* of the identity provider; return the nonce of its link, and who it is.

        Raises NoLoginError for an answer to no sign-in, from another browser, and for an account that may not sign in,
        and what `SignIn.end` does. The audit log has how each ended.
        """
        state = answer.get("state", "")
        found = self._begun.get(state)
        if found is None or found.ends <= self._clock():
            raise NoLoginError("This is not the answer to a sign-in that is waited for.")
        if not hmac.compare_digest(found.browser, _digest(cookies.get(cookie_of(state), ""))):
            logger.warning("the answer to the sign-in of %s came from another browser", found.pending.caller.id[:100])
            self._links.note("another_browser", found.pending, what=_WHAT)
            raise NoLoginError("This sign-in was begun in another browser. Do not go on: ask who sent you the link.")
        del self._begun[state]  # before anything is awaited: an answer counts once
        outcome, caller = "unknown", None
        try:
            caller = await found.sign_in.end(found.request, answer)
            endpoint = found.pending.caller.endpoint
            caller = replace(caller, endpoint=endpoint) if endpoint else caller
            outcome = "ok"
            return found.nonce, caller
        except NotAllowedError as error:
            outcome = "not_allowed"
            raise NoLoginError(str(error)) from None
        except ToolExecError as error:
            outcome = error.code
            raise
        finally:
            self._links.note(outcome, found.pending, by=caller, what=_WHAT)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
