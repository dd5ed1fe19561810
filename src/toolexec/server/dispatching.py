"""Which tools a server lists and takes calls of: its own, and those of its `Exec` under names of their own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolexec.discovery.index import Index
from toolexec.errors import InputValidationError, InvalidCursorError, ToolExecError
from toolexec.exec.facade import Exec
from toolexec.model.arguments import without_nulls
from toolexec.model.call import ProgressCallback, ToolCall
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import Origin
from toolexec.model.schema import Schema
from toolexec.model.tool import Tool
from toolexec.model.visible import visible_line
from toolexec.run.context import Cause
from toolexec.run.results import ResultStore
from toolexec.server.direct import DirectTools, listing
from toolexec.server.durable import DurableCall
from toolexec.server.exposure import AutoExposure
from toolexec.server.kept_results import KeptResults
from toolexec.server.metering import Job
from toolexec.server.replies import failure, internal_failure, meta_result
from toolexec.server.settings import Expose, ServeSettings
from toolexec.server.tools.base import MetaCall, MetaTool
from toolexec.server.tools.catalogue import beside, room_for_tools
from toolexec.server.tools.find import FIND
from toolexec.server.tools.running import RUN_TOOL

logger: logging.Logger = logging.getLogger(__name__)
_HEADER = "x-mcp-header"


@dataclass(frozen=True, slots=True)
class How:
    """How a call is made: for clients of the protocol *version*, as the run *durable* if there is one, and with the
    idempotency key *key*."""

    version: str
    durable: DurableCall | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """The entries of `tools/list`, and a version that grows when they change."""

    entries: list[JSONDict]
    version: int


@dataclass(frozen=True, slots=True)
class _Own:
    tool: MetaTool
    takes: Schema
    gives: Schema


class Dispatcher:
    """Takes the calls of the server's own *tools* and, where they are listed, of the tools of *ex* under names of their
    own. Which those are may change with `auto`: a tool that was listed once can be called until the end. *unlisted*
    can be called, too."""

    def __init__(
        self,
        ex: Exec,
        tools: Sequence[MetaTool],
        results: ResultStore,
        settings: ServeSettings,
        unlisted: Sequence[MetaTool] = (),
        index: Callable[[], Index] | None = None,
        kept_results: KeptResults | None = None,
    ) -> None:
        expose: Expose = settings.expose
        self._ex = ex
        self._expose = expose
        self._results = results
        self._kept_results = kept_results
        self._own = {
            tool.name: _Own(tool, Schema.of(dict(tool.input_schema)), Schema.of(dict(tool.output_schema)))
            for tool in (*tools, *unlisted)
        }
        self.unlisted = [tool.name for tool in unlisted]
        self._finds_for_code = FIND.name in {tool.name for tool in tools}
        self._listed = [tool.to_mcp(whole=settings.list_all) for tool in tools]
        self._direct = DirectTools(ex, tuple(self._own), index) if expose in ("direct", "auto") else None
        room = room_for_tools(code_enabled=ex.options.enable_code_execution)
        self._auto = AutoExposure(ex, self._direct, room) if self._direct and expose == "auto" else None
        self._beside = [tool.to_mcp(whole=settings.list_all) for tool in beside((*tools, *unlisted))]

    def exposed(self) -> str:
        """Return what is listed, for `instructions`; `auto` while that depends on backends that are not there."""
        if self._auto is None:
            return self._expose
        if not self._auto.is_small():
            return "code" if self._finds_for_code else "meta"
        absent = any(status.enabled and not status.available for status in self._ex.backend_statuses())
        return "auto" if absent or not (self._direct is not None and len(self._direct.index)) else "few"

    def listing(self, version: str) -> Listed:
        """Return what the current origin may know of, for clients of the protocol *version*."""
        entries = list(self._listed)
        if self._direct is None or (self._auto is not None and not self._auto.choose()):
            return Listed(entries, 0)
        entries = entries if self._auto is None else self._beside
        number = self._direct.version
        return Listed([listing(name, tool, version) for name, tool in self._direct.visible()] + entries, number)

    def input_schema(self, name: str) -> JSONObject | None:
        """Return the input schema of a tool by its name here, for any caller; None when there is none, or it names no
        header that repeats an argument: the SDK, which looks for those at each call, has then nothing to look for."""
        tool = self._by_name(name) if name not in self._own else None
        text = tool.input_schema.text if tool is not None else ""
        if tool is None or not (_HEADER in text or "\\u" in text):
            return None
        schema = tool.input_schema.to_json()
        return schema if isinstance(schema, dict) else None

    def cause(self, name: str) -> Cause:
        """Return what the tokens of a tool's replies count for."""
        own = self._own.get(name)
        return own.tool.cause if own is not None else "results"

    def is_one(self, name: str) -> bool:
        """Return whether a call of *name* is that of one tool."""
        return name not in self._own or name == RUN_TOOL.name

    def has(self, name: str) -> bool:
        """Return whether there is a tool of that name, visible to this caller or not."""
        return name in self._own or self._by_name(name) is not None

    def _by_name(self, name: str) -> Tool | None:
        if self._direct is None or (self._auto is not None and not self._auto.was_direct):
            return None
        return self._direct.of_anybody(name)

    def kept(self, name: str, args: JSONObject) -> JSONDict | None:
        """Return what the reply of a call is made with, if the call can be a durable run; else None."""
        own = self._own.get(name)
        if own is None:
            tool = self._direct.find(name) if self._direct is not None else None
            return {} if tool is not None and tool.id in self._ex.skills else None
        try:
            can_be = own.tool.durable is not None and own.takes.conforms(args)
            return own.tool.durable(self._ex, args) if can_be and own.tool.durable is not None else None
        except ToolExecError:  # the call says it
            return None

    def job(self, name: str, args: JSONObject, how: How) -> Job:
        """Return the call of *name* by the current origin; raises MCPError for a tool that it cannot know of."""
        own = self._own.get(name)
        if own is not None:
            return partial(self._run_own, own, args, how)
        shown = self._auto is None or self._auto.was_direct or self._auto.choose()
        tool = self._direct.find(name) if self._direct is not None and shown else None
        if tool is None:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {visible_line(name, 100)}")
        return partial(self._run_direct, tool, args, how)

    async def _run_own(
        self, own: _Own, args: JSONObject, how: How, origin: Origin, on_progress: ProgressCallback | None
    ) -> JSONDict:
        tool, durable = own.tool, how.durable
        try:
            if (durable is None or not durable.resumed) and not own.takes.conforms(args):
                args = without_nulls(args, own.takes, own.takes.violations(args))
                if violations := own.takes.violations(args):
                    raise InputValidationError(violations, tool_id=tool.name, op="validate_input")
            call = MetaCall(
                ex=self._ex,
                args=args,
                origin=origin,
                results=self._results,
                on_progress=on_progress,
                durable=durable,
                idempotency_key=how.key,
                kept=self._kept_results,
            )
            return meta_result(await tool.handle(call), own.gives, how.version)
        except InvalidCursorError:
            raise MCPError(code=INVALID_PARAMS, message="invalid cursor") from None
        except ToolExecError as error:
            return failure(error, own.gives)
        except MCPError:
            raise
        except Exception:
            logger.exception("the tool %s of the server failed", tool.name)
            return failure(internal_failure(tool.name), own.gives)

    async def _run_direct(
        self, tool: Tool, args: JSONObject, how: How, origin: Origin, on_progress: ProgressCallback | None
    ) -> JSONDict:
        assert self._direct is not None
        call = ToolCall(tool.id, args, None, on_progress, False, origin)
        call.idempotency_key = how.key
        try:
            return await self._direct.call(tool, call, how.version, how.durable)
        except MCPError:
            raise
        except Exception:
            logger.exception("the call of %s failed inside of the server", tool.id)
            return failure(internal_failure(tool.id), tool.output_schema)
