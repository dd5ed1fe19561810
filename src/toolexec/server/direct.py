"""The tools of the catalogue as tools of the server itself: what clients call them, and how they are called."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolexec.adapter.mcp import listed_schema
from toolexec.discovery.index import Index, Registered
from toolexec.errors import ApprovalRequiredError, LimitExceededError, OutputValidationError, ToolExecError
from toolexec.exec.facade import Exec
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONDict
from toolexec.model.schema import Schema
from toolexec.model.tool import Tool
from toolexec.model.visible import visible, visible_json, visible_line
from toolexec.model.visible_schema import visible_schema
from toolexec.run.framing import Framed, framed_parts, note
from toolexec.run.types import Result
from toolexec.server.durable import DurableCall
from toolexec.server.replies import content_for, failure, published_output, success
from toolexec.server.tools.errors import error_object

MAX_NAME: Final = 64
_HASH = 8
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]")
_DESCRIPTION = 4000


@dataclass(frozen=True, slots=True)
class _Names:
    """Which name is which tool's, in one version of an index."""

    index: Index | None
    version: int
    taken: frozenset[str]
    tool_ids: Mapping[str, str]
    names: Mapping[str, str]


class DirectTools:
    """The tools of *ex* under names that every client accepts: `github__create_issue` for `github:create_issue`.

    A name that would be too long, or that two tools would share, ends in a hash of the tool's ID, so it does not depend
    on which other tools are there at the moment, unless one of them has just that name. *taken* names are never used.
    *index* gives the tools that there are for any caller, where those are not all of *ex*.
    """

    def __init__(self, ex: Exec, taken: Sequence[str] = (), index: Callable[[], Index] | None = None) -> None:
        self._ex = ex
        self._chosen = index
        self._known = _Names(None, -1, frozenset(taken), {}, {})

    @property
    def index(self) -> Index:
        """The tools that there are, for one caller or another."""
        return self._chosen() if self._chosen is not None else self._ex.index

    @property
    def version(self) -> int:
        """Grows when any tool changes."""
        return self.index.version

    def visible(self) -> list[tuple[str, Tool]]:
        """Name and tool, for all that the current origin may know of, by ID."""
        names = self._names()
        index, _ = self._ex.visible()
        return [(names.names[entry.tool.id], entry.tool) for entry in index.tools() if entry.tool.id in names.names]

    def every(self) -> list[tuple[str, Tool]]:
        """Return name and tool of all of them, visible to this caller or not, by ID."""
        names = self._names().names
        return [(names[e.tool.id], e.tool) for e in self.index.tools() if e.tool.id in names]

    def find(self, name: str) -> Tool | None:
        """Return the tool of that name, or None when there is none that the current origin may know of."""
        tool_id = self._names().tool_ids.get(name)
        index, _ = self._ex.visible()
        entry = index.find(tool_id) if tool_id is not None else None
        return entry.tool if entry is not None else None

    def of_anybody(self, name: str) -> Tool | None:
        """Return the tool of that name, or None, visible to this caller or not."""
        tool_id = self._names().tool_ids.get(name)
        entry = self.index.find(tool_id) if tool_id is not None else None
        return entry.tool if entry is not None else None

    def _names(self) -> _Names:
        known = self._known
        index = self.index
        if known.index is not index or known.version != index.version:
            version = index.version
            known = self._known = _name_all(index, version, known.taken)
        return known

    async def call(self, tool: Tool, call: ToolCall, version: str, durable: DurableCall | None = None) -> JSONDict:
        """Make a call of the tool, on the path that all calls take, and return its reply for clients of *version*. That
        of a skill may be the run *durable*.

        Raises MCPError where the protocol wants one: the call needs approval, and the client did not say that it can
        ask its user.
        """
        schema = tool.output_schema

        def begin() -> Awaitable[Result]:
            return self._ex.runner.run(call)

        try:
            result = await (begin() if durable is None else durable.result_of_skill(tool.id, begin))
        except ApprovalRequiredError as error:
            if version not in MODERN_PROTOCOL_VERSIONS or error.retryable:
                return failure(error, schema)
            data = {"requiredCapabilities": {"elicitation": {"form": {}}}, **error_object(error)}
            raise MCPError(code=MISSING_REQUIRED_CLIENT_CAPABILITY, message=error.message, data=data) from None
        except ToolExecError as error:
            return failure(error, schema)
        if result.error is not None:
            return failure(result.error, schema, content_for(framed_parts(result.content), version))
        if schema is not None and (result.handle or not schema.conforms(result.value)):
            # Published schemas hold: a client would throw the whole reply away, so it is an error that can be read.
            return failure(_misfit(schema, tool, result), schema)
        if result.handle:
            part = {"type": "text", "text": Framed(note(_cut_note(result)))}
            return success(result.value, None, [part], False, version)
        structured = result.reply is None or result.reply.has_structured
        return success(result.value, schema, result.content, structured, version)


def listing(name: str, tool: Tool, version: str) -> JSONDict:
    """Return the tool's entry in `tools/list` for clients of *version*; its strings come from strangers and are
    cleaned.
    """
    annotations = tool.annotations.to_mcp()
    if tool.annotations.title:
        annotations["title"] = visible_line(tool.annotations.title, 200)
    data: JSONDict = {"name": name, "inputSchema": listed_schema(visible_schema(tool.input_schema.to_json()))}
    if tool.title:
        data["title"] = visible_line(tool.title, 200)
    if tool.description:
        data["description"] = visible(tool.description, _DESCRIPTION)
    if (output := published_output(tool.output_schema, version)) is not None:
        data["outputSchema"] = output
    if annotations:
        data["annotations"] = annotations
    return data


def _misfit(schema: Schema, tool: Tool, result: Result) -> ToolExecError:
    if result.handle:
        return LimitExceededError(_cut_note(result), tool_id=tool.id, op="reply", details={"handle": result.handle})
    violations = schema.violations(result.value)
    return OutputValidationError(violations, tool_id=tool.id, op="validate_output", value=result.value)


def _cut_note(result: Result) -> str:
    outline = visible_json(result.value)
    return f"too long for one reply; read_result reads the whole with the handle {result.handle}. Outline: {outline}"


def _name_all(index: Index, version: int, taken: frozenset[str]) -> _Names:
    entries = sorted(index.tools(), key=lambda entry: entry.tool.id)
    wanted: dict[str, list[Registered]] = {}
    for entry in entries:
        wanted.setdefault(_plain_name(entry.tool), []).append(entry)
    tool_ids: dict[str, str] = {}
    for name, sharing in wanted.items():
        fits = len(sharing) == 1 and len(name) <= MAX_NAME and name not in taken
        for entry in sharing:
            tool_ids[name if fits else _hashed_name(name, entry.tool.id)] = entry.tool.id
    return _Names(index, version, taken, tool_ids, {tool_id: name for name, tool_id in tool_ids.items()})


def _plain_name(tool: Tool) -> str:
    parts = [part for part in (tool.namespace, tool.name, tool.version) if part]
    return _NOT_ALLOWED.sub("_", "__".join(parts))


def _hashed_name(name: str, tool_id: str) -> str:
    digest = hashlib.sha256(tool_id.encode(errors="surrogatepass")).hexdigest()[:_HASH]
    return f"{name[: MAX_NAME - _HASH - 1]}_{digest}"
