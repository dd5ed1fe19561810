"""What a backend, a place that hosts tools, promises."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from toolexec.backend.attempt import Attempt
from toolexec.model.binding import Binding, BindingKind
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.tool import Tool

if TYPE_CHECKING:
    from toolexec.model.events import StreamEvent
    from toolexec.net.oauth.session import LoginStatus, OAuthSession


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendStatus:
    """How a backend is: `reason` says why it is not `available`, `skipped` which of its tools could not be taken and
    why, `info` whatever else is worth showing (transport, protocol version, process ID, restarts; the `login`, or the
    `login_command` where one is missing)."""

    name: str
    kind: BindingKind
    enabled: bool = True
    available: bool = True
    reason: str | None = None
    tools: int = 0
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])
    info: JSONObject = field(default_factory=JSONDict)

    def to_dict(self) -> JSONDict:
        """Return the status as JSON-able data, without what is empty."""
        data: JSONDict = {
            "name": self.name,
            "kind": self.kind,
            "enabled": self.enabled,
            "available": self.available,
            "tools": self.tools,
        }
        optional = {"reason": self.reason, "skipped": dict(self.skipped), "info": dict(self.info)}
        return data | {key: value for key, value in optional.items() if value}


class Backend(Protocol):
    """Hosts tools and calls them. Its name is unique in a registry; calls may run concurrently."""

    @property
    def name(self) -> str:
        """The backend's name; bindings refer to it."""
        ...

    @property
    def kind(self) -> BindingKind:
        """Which kind of binding leads here."""
        ...

    @property
    def enabled(self) -> bool:
        """Whether calls are accepted at all."""
        ...

    def status(self) -> BackendStatus:
        """Return how the backend is just now, without waiting or asking anyone."""
        ...

    async def start(self) -> None:
        """Get ready: connect, start processes. Starting twice does nothing. Raises when it cannot ever work; a backend
        that may recover by itself returns and reports through `status`."""
        ...

    async def aclose(self) -> None:
        """Stop and free everything, also when called twice or without a start."""
        ...

    async def list_tools(self) -> Sequence[Tool]:
        """Return the tools hosted here, in a stable order; the caller must not get the backend's own list."""
        ...

    def bind(self, tool: Tool) -> Binding:
        """Return the binding of a tool that `list_tools` gave."""
        ...

    async def call(self, name: str, call: Attempt) -> Any:
        """Call the tool that is *name* here and return its raw answer: a JSON value, or a ToolReply.

        *call* is a ToolCall that the gate has decided on; its arguments are read-only. Raises BackendDisabledError,
        BackendNotFoundError or BackendUnavailableError when the call could not be made, InputValidationError when the
        arguments cannot be converted, ExecutionError (or a subclass) when it was made and failed, with what became of
        it as its `outcome`. Cancelling stops the work where that is possible.
        """
        ...


@runtime_checkable
class StreamingBackend(Protocol):
    """A backend that can also answer piece by piece."""

    def stream(self, name: str, call: Attempt) -> AsyncGenerator[StreamEvent, None]:
        """Progress and chunks as they come, and last a `done` event with the raw answer.

        Raises as `call` does, and StreamNotSupportedError for a tool that answers in one piece (unless
        `call.fallback`). Closing the iterator stops the work.
        """
        ...


ToolsListener: TypeAlias = Callable[[Sequence[Tool]], None]


@runtime_checkable
class LiveBackend(Protocol):
    """A backend whose tools come and go."""

    def on_tools(self, listener: ToolsListener) -> Callable[[], None]:
        """Have *listener* called with all tools whenever the list was read again, and now if it was read; returns
        how to stop that."""
        ...


@runtime_checkable
class RefreshableBackend(Protocol):
    """A backend whose tools can be read again on demand."""

    async def refresh(self) -> BackendStatus:
        """Read the tools again, connecting first if need be, and return the status after it.

        Raises nothing for one that cannot be read: its tools stay, and the status has the reason.
        """
        ...


@runtime_checkable
class KeepsSessions(Protocol):
    """A backend that keeps something for each session of callers."""

    def end_session(self, session: str) -> None:
        """Close what is kept for a session that is over; on the event loop of the backend. Raises nothing."""
        ...


@runtime_checkable
class LoginBackend(Protocol):
    """A backend that a person may have to log in to."""

    async def log_in(
        self,
        show: Callable[[str, str], Awaitable[object]],
        *,
        device: bool = False,
        scopes: Sequence[str] = (),
        caller: str = "",
    ) -> LoginStatus:
        """Log in, as the settings say or on another *device*, and keep what comes of it for this user of the machine.

        *show* is called with the link to open, and a code to type in there, which may be empty. *scopes* are asked for
        beside the usual ones. *caller* is whose login it is, where each caller has one; see `known_caller` for what it
        is called. Raises LoginError where the login is refused or cannot be trusted, ConfigurationError as `login_of`
        does, and SecretError where it cannot be kept.
        """
        ...

    async def log_out(self, *, caller: str = "") -> bool:
        """Forget the login, that of *caller* where each has one; return whether there was one. Raises as `log_in`
        does."""
        ...

    async def login_of(self, caller: str) -> OAuthSession:
        """Return the login of *caller*, empty for the one that belongs to no caller.

        Raises ConfigurationError where there is none to have: the settings have no login, or not one of each caller,
        or only those; and what filling in the settings does.
        """
        ...


BackendFactory: TypeAlias = Callable[[str, JSONObject], Backend]
"""Makes a backend from its name and a mapping with its configuration."""
