"""The SDK's server, as this one needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp_types import ServerCapabilities

from toolexec.server.callers import RequestContext
from toolexec.server.kept_answers import AnswerRights
from toolexec.server.kept_sessions import KeptSessions
from toolexec.server.kept_streams import KeptStreams
from toolexec.server.task_messages import MARK, capabilities_with_tasks


class Lowlevel(Server[Any]):
    """The SDK's server, which says in every handshake, on any transport, what there is and whether it sends notices of
    changes."""

    notes_changes = False
    makes_tasks = False
    kept_sessions: KeptSessions
    kept_streams: KeptStreams
    answer_rights: AnswerRights
    describe: Callable[[], str] = str
    offered: Callable[[ServerCapabilities], ServerCapabilities]

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return what a handshake says of this server."""
        self.instructions = self.describe()
        options = notification_options or NotificationOptions(*[self.notes_changes] * 3)
        return super().create_initialization_options(options, experimental_capabilities, extensions)

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> ServerCapabilities:
        """Return what clients of a version of the protocol may ask for."""
        found = super().get_capabilities(
            notification_options, experimental_capabilities, extensions, protocol_version=protocol_version
        )
        found = self.offered(found)
        if found.resources is not None and not self.notes_changes:
            found = found.model_copy(update={"resources": found.resources.model_copy(update={"subscribe": False})})
        return capabilities_with_tasks(found, protocol_version) if self.makes_tasks else found


async def announce_task(ctx: RequestContext, call_next: CallNext) -> HandlerResult:
    """Answer a call of 2025-11-25 with its task: the SDK knows none, and takes it for the result of a call within."""
    result = await call_next(ctx)
    if ctx.method == "tools/call" and isinstance(result, dict):
        task = (result.get("_meta") or {}).get(MARK)
        if task is not None:
            return {"task": task}
    return result
