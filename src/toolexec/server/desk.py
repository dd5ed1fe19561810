"""The tools that clients see, the server's own and the direct ones, and how a call of one is done."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolexec.errors import InputValidationError, InvalidCursorError, ToolExecError
from toolexec.exec.facade import Exec
from toolexec.model.call import ProgressCallback
from toolexec.model.origin import Origin
from toolexec.model.schema import Schema
from toolexec.model.tool import Tool
from toolexec.run.results import ResultStore
from toolexec.server.direct import DirectTools, listing
from toolexec.server.plain import one_line
from toolexec.server.replies import failure, internal_failure, meta_result
from toolexec.server.tools.base import MetaCall, MetaTool

__all__ = ["Desk", "Job", "Listed"]

logger: logging.Logger = logging.getLogger(__name__)
Job: TypeAlias = Callable[[Origin, ProgressCallback | None], Awaitable[dict[str, Any]]]
"""One call that has been understood: does it for an origin, tells how far it is, and gives the reply."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The entries of `tools/list`, and a version that grows when they change."""

    entries: list[dict[str, Any]]
    version: int


@dataclass(frozen=True, slots=True)
class _Own:
    tool: MetaTool
    takes: Schema
    gives: Schema


class Desk:
    """Takes the calls of the server's own *tools* and, when *direct*, of the tools of *ex* under names of their own."""

    def __init__(self, ex: Exec, tools: Sequence[MetaTool], results: ResultStore, *, direct: bool) -> None:
        self._ex = ex
        self._results = results
        self._own = {
            tool.name: _Own(tool, Schema.of(dict(tool.input_schema)), Schema.of(dict(tool.output_schema)))
            for tool in tools
        }
        self._direct = DirectTools(ex, tuple(self._own)) if direct else None

    def listing(self, version: str) -> Listed:
        """What the current origin may know of, for clients of the protocol *version*."""
        entries = [own.tool.to_mcp() for own in self._own.values()]
        if self._direct is None:
            return Listed(entries, 0)
        number = self._direct.version
        return Listed([listing(name, tool, version) for name, tool in self._direct.visible()] + entries, number)

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a tool by its name here, whoever asks; None when there is none."""
        if name in self._own:
            return self._own[name].tool.input_schema
        tool = self._direct.of_anybody(name) if self._direct is not None else None
        schema = tool.input_schema.to_json() if tool is not None else None
        return schema if isinstance(schema, dict) else None

    def has(self, name: str) -> bool:
        """Whether there is a tool of that name, whoever may know of it."""
        return name in self._own or (self._direct is not None and self._direct.of_anybody(name) is not None)

    def job(self, name: str, args: Mapping[str, Any], version: str) -> Job:
        """The call of *name* by the current origin; raises MCPError for a tool that it cannot know of."""
        own = self._own.get(name)
        if own is not None:
            return partial(self._run_own, own, args, version)
        tool = self._direct.find(name) if self._direct is not None else None
        if tool is None:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {one_line(name, 100)}")
        return partial(self._run_direct, tool, args, version)

    async def _run_own(
        self, own: _Own, args: Mapping[str, Any], version: str, origin: Origin, on_progress: ProgressCallback | None
    ) -> dict[str, Any]:
        tool = own.tool
        try:
            if not own.takes.conforms(args):
                raise InputValidationError(own.takes.violations(args), tool_id=tool.name, op="validate_input")
            call = MetaCall(ex=self._ex, args=args, origin=origin, results=self._results, on_progress=on_progress)
            return meta_result(await tool.handle(call), own.gives, version, once=tool.once)
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
        self, tool: Tool, args: Mapping[str, Any], version: str, origin: Origin, on_progress: ProgressCallback | None
    ) -> dict[str, Any]:
        assert self._direct is not None
        try:
            return await self._direct.call(tool, args, origin, on_progress, version)
        except MCPError:
            raise
        except Exception:
            logger.exception("the call of %s failed inside of the server", tool.id)
            return failure(internal_failure(tool.id), tool.output_schema)
