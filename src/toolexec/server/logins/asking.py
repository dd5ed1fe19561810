"""What one request says to its client of the logins that its calls want."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp_types import (
    ElicitCompleteNotification,
    ElicitCompleteNotificationParams,
    ElicitRequest,
    ElicitRequestURLParams,
    ElicitResult,
)

from toolexec.model.json_value import JSONDict
from toolexec.model.origin import Caller
from toolexec.model.visible import visible_line
from toolexec.server.callers import RequestContext, connection_of
from toolexec.server.logins.links import LoginLinks, PendingLogin
from toolexec.server.questions import Ask

logger: logging.Logger = logging.getLogger(__name__)
_SEND_SECONDS: Final = 5.0
_sending: Final[set[asyncio.Task[None]]] = set()


def takes_links(ctx: RequestContext) -> bool:
    """Return whether the client said that it opens links before a person (elicitation of the mode `url`)."""
    has = ctx.session.client_capabilities
    return has is not None and has.elicitation is not None and has.elicitation.url is not None


@dataclass(slots=True, eq=False)
class LoginAsk:
    """The logins at *links* that calls of one request of *caller* want: `wanted`, by backend."""

    links: LoginLinks
    caller: Caller
    wanted: dict[str, PendingLogin] = field(default_factory=dict[str, PendingLogin])

    def link(self, backend: str, scopes: tuple[str, ...]) -> str:
        """Return where the caller logs in; see `LoginLink`."""
        pending = self.links.ask(self.caller, backend, scopes)
        if pending is None:
            return ""
        self.wanted[backend] = pending
        return self.links.link(pending)

    def failed(self, reply: JSONDict) -> bool:
        """Return whether *reply* says that a call was not made for want of a login."""
        return bool(self.wanted) and reply.get("isError") is True

    def error(self, ctx: RequestContext) -> MCPError:
        """Return the error that has a client of 2025-11-25 open the links; it is notified when that is done."""
        connection = connection_of(ctx)
        for pending in self.wanted.values():
            _notify_once(connection, pending)
        return UrlElicitationRequiredError([self._params(each) for each in self.wanted.values()])

    async def asked(self, ask: Ask, seconds: float) -> bool:
        """Have a client of the newer era open the links, and wait at most *seconds* for each login; return whether all
        were made, or refused, so that the call is to be made again."""
        for pending in [*self.wanted.values()]:
            reply = await ask(ElicitRequest(params=self._params(pending)))
            if not isinstance(reply, ElicitResult) or reply.action != "accept":
                return False
            with anyio.move_on_after(seconds) as limit:
                await pending.done.wait()
            if limit.cancelled_caught:
                return False
        self.wanted.clear()
        return True

    def _params(self, pending: PendingLogin) -> ElicitRequestURLParams:
        message = (
            f"Log in to {visible_line(pending.backend, 100)}: calls of {visible_line(self.caller.id, 100)} need it."
        )
        return ElicitRequestURLParams(message=message, url=self.links.link(pending), elicitation_id=pending.id)


def _notify_once(connection: Connection, pending: PendingLogin) -> None:
    """Have the client of *connection* notified at the end of a login, while the connection lasts."""
    known: set[str] = connection.state.setdefault("toolexec.logins", set())
    if pending.id in known:
        return
    known.add(pending.id)

    def listener() -> None:
        known.discard(pending.id)
        task = asyncio.get_running_loop().create_task(_complete(connection, pending.id))
        _sending.add(task)
        task.add_done_callback(_sending.discard)

    pending.listeners.append(listener)

    def forget() -> None:
        if listener in pending.listeners:
            pending.listeners.remove(listener)

    connection.exit_stack.callback(forget)


def _complete(connection: Connection, login: str) -> Coroutine[Any, Any, None]:
    async def send() -> None:
        note = ElicitCompleteNotification(params=ElicitCompleteNotificationParams(elicitation_id=login))
        data = note.model_dump(by_alias=True, mode="json", exclude_none=True)
        try:
            with anyio.move_on_after(_SEND_SECONDS):
                await connection.outbound.notify(data["method"], data.get("params"))
        except Exception as error:
            logger.debug("a client was not notified of the end of a login: %s", type(error).__name__)

    return send()
