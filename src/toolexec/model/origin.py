"""Where a call comes from: who makes it, on which path, and how that person can be asked."""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from toolexec.model.bound import Bound
from toolexec.model.json_value import JSONDict, JSONObject

if TYPE_CHECKING:
    from toolexec.model.questions import ClientAnswerer

__all__ = [
    "ANYONE",
    "CURRENT",
    "HERE",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approver",
    "CallPath",
    "Caller",
    "Lasting",
    "LogListener",
    "LoginLink",
    "Origin",
    "acting",
    "current_origin",
    "new_run_id",
]

CallPath: TypeAlias = Literal["direct", "chain", "code"]
"""How a call came: by itself, as a step of a chain, or from code."""
Lasting: TypeAlias = Literal["once", "session", "always"]
"""How long an approval may last, the shortest first."""
ApprovalAnswer: TypeAlias = Literal["no", "once", "session", "always"]
"""`once` is for this call, `session` for calls like it in this session, `always` for calls like it from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a tool, to the extent that it is authenticated.

    `id` is empty for an anonymous caller. `roles` and `scopes` are what policies speak of; `method` says how
    the caller was identified (`api_key`, `jwt`; empty: not at all); `claims` are facts that came with the proof.
    `endpoint` names the endpoint of a server that the caller came to; empty is the main one, or none. The same ID of
    another tenant, or at another endpoint, is another caller: `realm` distinguishes those.
    """

    id: str = ""
    roles: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    tenant: str = ""
    method: str = ""
    claims: JSONObject = field(default_factory=JSONDict, hash=False, repr=False)
    endpoint: str = ""

    @property
    def realm(self) -> str:
        """Within what the ID is that of one caller: the tenant, at the endpoint. No two pairs of them have the same."""
        if self.endpoint:  # its name has no slash
            return f"/{self.endpoint}/{self.tenant}"
        return f"/{self.tenant}" if self.tenant.startswith("/") else self.tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """What an approver is asked to approve: this tool with these arguments (already without secrets), and why it is
    asked. `caller` wants it, by way of `path`. `backend` is where the call would go, as `mcp:github`, and empty for a
    tool of this program. An answer that would last longer than `longest` counts as that.

    `changed` are the names of the arguments that differ from those with which this tool was last approved in the
    session, `required` those that the tool requires. `digest` distinguishes the exact arguments, secrets included, from
    others within this process. To show arguments to a person, use `toolexec.model.approval_text.argument_lines`.
    """

    tool_id: str
    args: JSONObject
    reason: str
    description: str = ""
    caller: Caller = field(default_factory=Caller)
    path: CallPath = "direct"
    run_id: str = ""
    longest: Lasting = "always"
    required: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    backend: str = ""
    digest: str = field(default="", repr=False, compare=False)


Approver: TypeAlias = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer] | ApprovalAnswer]
"""Asks for an approval. Any answer but those above counts as no, and so does whatever it raises: TimeoutError says that
no answer came, ApprovalRequiredError that there was no approver to ask, and why."""

LogListener: TypeAlias = Callable[[str, str], None]
"""Receives a log message of a tool: one of MCP's levels (`debug` ... `emergency`), and the message."""

LoginLink: TypeAlias = Callable[[str, tuple[str, ...]], str]
"""Gives the link at which the caller logs in to a backend, by its name, with these scopes beside the usual ones; empty
where there is none."""

ANYONE = Caller()
"""The caller of calls that no one has identified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a call comes from.

    `session` groups the calls of one conversation; `path` says whether the call is made for itself, as a step of a
    chain or by code, and `parent` is the ID of that chain's or code's run. `client` names the program that asks. `ask`
    is how this caller can be asked for approval, if at all. `hear` takes the log messages of tools, a level and a
    message each; it is called on the event loop. `approvals` is the longest that an approval of its calls may last:
    less than `always` for callers that cannot be distinguished from others. `answer` puts questions of MCP servers to
    the caller's client, if it can be asked. `on_effect` is called, in any thread, before each attempt and each run of
    code, which waits for what it returns on the event loop; what it raises ends the call. `used_tools` gets the ID of
    each tool of which the rules have let a call pass, in any thread: what an answer may come of. `login_link` gives the
    link at which its caller logs in.
    """

    caller: Caller = ANYONE
    session: str = ""
    path: CallPath = "direct"
    parent: str = ""
    client: str = ""
    ask: Approver | None = None
    hear: LogListener | None = None
    approvals: Lasting = "always"
    answer: ClientAnswerer | None = None
    on_effect: Callable[[], Awaitable[None] | None] | None = field(default=None, repr=False, compare=False)
    used_tools: set[str] | None = field(default=None, repr=False, compare=False)
    login_link: LoginLink | None = field(default=None, repr=False, compare=False)

    def within(self, path: CallPath, run_id: str) -> Origin:
        """Return the origin of calls that a chain or code with the ID *run_id* makes."""
        return replace(self, path=path, parent=run_id)


HERE = Origin()
"""The origin of calls that this very program makes for itself."""

CURRENT: ContextVar[Origin] = ContextVar("toolexec_origin", default=HERE)
"""Holds the origin of the current work; change it with `acting` only."""

_prefix = os.urandom(6).hex()  # as `secrets` would: its import, with the hashes of OpenSSL, takes 2 ms
_numbers = itertools.count(1)


def current_origin() -> Origin:
    """Return the origin of what is done just now: the one of the innermost `acting`."""
    return CURRENT.get()


@contextmanager
def acting(origin: Origin) -> Generator[Origin, None, None]:
    """Have all that an `Exec` does in the block done for *origin*: `with acting(Origin(caller=Caller(id="ann"))):`."""
    with Bound(CURRENT, origin):
        yield origin


def new_run_id() -> str:
    """Return an ID that no other run has, in this process or another; later ones of a process have higher numbers."""
    return f"{_prefix}-{next(_numbers):x}"
