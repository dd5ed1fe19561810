"""Who makes a request: the caller that was proven, the client, the conversation, and what the client can do."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolexec.backend.mcp.backend import IDEMPOTENCY_KEY
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import ANYONE, Approver, Caller, Lasting, Origin
from toolexec.model.visible import visible_line
from toolexec.server.http.replies import peer_of

RequestContext: TypeAlias = ServerRequestContext[Any, Any]
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
TASKS_ERA: Final = "2025-11-25"
"""The version of the protocol in which a client asks for a task with its call."""
_CLIENT_NAME = 64
_KEY_LENGTH = 500
_SESSION_KEY = "toolexec.session"
_PROCESS = f"process-{secrets.token_hex(8)}"


def is_modern(ctx: RequestContext) -> bool:
    """Return whether the request is of the era without a handshake, in which each request says all about itself."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def connection_of(ctx: RequestContext) -> Connection:
    """Return the connection that the request came on: it keeps state for its client, and says when it ends."""
    # The SDK documents `Connection.state` and `exit_stack` for handlers, but gives handlers no other way to get there.
    # This is the only place that reads a private attribute of the SDK; a test fails as soon as there is a public one.
    return ctx.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def can_elicit(ctx: RequestContext) -> bool:
    """Return whether the client said that it can put a form before a person, and this request has a way to ask for
    it.
    """
    capabilities = ctx.session.client_capabilities
    offered = capabilities.elicitation if capabilities is not None else None
    if offered is None or (offered.form is None and offered.url is not None):
        return False
    return is_modern(ctx) or ctx.session.can_send_request


def can_be_asked(ctx: RequestContext) -> bool:
    """Return whether the client said that it answers any question at all: of a person, of its model, or of its
    roots."""
    has = ctx.session.client_capabilities
    return has is not None and (has.sampling is not None or has.roots is not None or has.elicitation is not None)


def offers_tasks(ctx: RequestContext) -> bool:
    """Return whether the client of a request of the newer era takes a task for an answer."""
    capabilities = ctx.session.client_capabilities
    return is_modern(ctx) and capabilities is not None and TASKS_EXTENSION in (capabilities.extensions or {})


def asks_for_task(ctx: RequestContext, task: object) -> bool:
    """Return whether *task*, of the parameters of a call, asks for one: it means that only in 2025-11-25."""
    return task is not None and ctx.protocol_version == TASKS_ERA


@dataclass(frozen=True, slots=True)
class Requester:
    """Who makes a request. `key` is the same for all requests of one proven caller, and empty for an anonymous one.
    `source` is whom limits count for: the proven caller, else the address, else the connection. `approvals` is the
    longest that an approval may last: a caller over HTTP that was not proven is known by its session at most.
    `is_known_again` says that another process would take it for the same one."""

    caller: Caller
    client: str
    session: str
    source: str
    approvals: Lasting
    is_known_again: bool = True

    @classmethod
    def of(cls, ctx: RequestContext) -> Requester:
        """Return the one who made this request."""
        caller = _caller(ctx)
        params = ctx.session.client_params
        client = _client_name(params.client_info.name) if params is not None else ""
        session = _session(ctx, caller)
        lasting: Lasting = "always"
        if ctx.request is not None and not caller.id:
            lasting = "once" if is_modern(ctx) else "session"
        peer = peer_of(scope) if (scope := _scope(ctx)) is not None else ""
        known = bool(caller.id) or (ctx.request is not None and not is_modern(ctx))
        return cls(caller, client, session, _key(caller) or peer or session, lasting, known)

    @property
    def key(self) -> str:
        """What state that must not pass from one caller to another is bound to."""
        return _key(self.caller)

    def idempotency_key(self, ctx: RequestContext) -> str:
        """Return the idempotency key of a call, made different from those of all other callers; empty for none."""
        given: object = dict(ctx.meta or {}).get(IDEMPOTENCY_KEY)
        if not isinstance(given, str) or not 0 < len(given) <= _KEY_LENGTH:
            return ""
        scope = _scope(ctx)
        whose = self.key or (peer_of(scope) if scope is not None else "")
        return hashlib.blake2b(json.dumps([whose, given]).encode(), digest_size=16).hexdigest()

    def origin(self, ask: Approver | None) -> Origin:
        """Return the origin of the calls that this request makes."""
        return Origin(caller=self.caller, session=self.session, client=self.client, ask=ask, approvals=self.approvals)


@lru_cache(maxsize=256)
def _client_name(name: str) -> str:
    return visible_line(name, _CLIENT_NAME)


def _key(caller: Caller) -> str:
    return f"{caller.method}\0{caller.realm}\0{caller.id}" if caller.id else ""


def _scope(ctx: RequestContext) -> JSONDict | None:
    """Return the ASGI scope of a request over HTTP."""
    scope = getattr(ctx.request, "scope", None)
    return scope if isinstance(scope, dict) else None


def _caller(ctx: RequestContext) -> Caller:
    scope = _scope(ctx)
    caller = scope.get("toolexec.caller") if scope is not None else None
    return caller if isinstance(caller, Caller) else ANYONE


def _session(ctx: RequestContext, caller: Caller) -> str:
    """Return the conversation: of the connection where there is one, else all requests of the caller."""
    if is_modern(ctx):
        if caller.id:
            return f"caller-{_digest(f'{caller.realm}/{caller.id}')}"
        return f"{_PROCESS}-{caller.endpoint}" if caller.endpoint else _PROCESS
    connection = connection_of(ctx)
    known = connection.state.get(_SESSION_KEY)
    if known is None:
        # The transport's own ID gives access to the session, so it does not belong in audit logs.
        own = (_scope(ctx) or {}).get("toolexec.session") or connection.session_id
        known = connection.state[_SESSION_KEY] = f"session-{_digest(own) if own else secrets.token_hex(8)}"
    return known


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
