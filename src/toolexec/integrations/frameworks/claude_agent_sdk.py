"""The tools of a toolset in the options of an agent of the Claude Agent SDK."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from claude_agent_sdk import (  # pyright: ignore[reportMissingImports]
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
)
from mcp.server import Server
from mcp_types import CallToolResult, ListToolsResult, Tool

from toolexec.errors import ConfigurationError
from toolexec.integrations.toolset import Answer, Face, Toolset
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.version import __version__

_MAX_APPROVALS: Final = 10_000


def with_tools(tools: Toolset, base: Any, name: str) -> Any:
    """Return *base* with these tools; see `toolexec.integrations.claude_agent_sdk.options`."""
    given = ClaudeAgentOptions() if base is None else base
    if not isinstance(given.mcp_servers, Mapping):
        raise ConfigurationError("mcp_servers of the options must be a dict, so that a server can be added")
    if name in given.mcp_servers:
        raise ConfigurationError(f"the options have an MCP server {name!r} already; give this one another name")
    served = _Served(tools, name, given.can_use_tool)
    hooks = dict(given.hooks or {})
    matcher = HookMatcher(matcher=f"mcp__{name}__.*", hooks=[served.before])
    hooks["PreToolUse"] = [*hooks.get("PreToolUse", ()), matcher]
    changes: JSONDict = {"mcp_servers": {**given.mcp_servers, name: served.config()}, "hooks": hooks}
    if given.can_use_tool is not None:
        changes["can_use_tool"] = served.can_use_tool
    return replace(given, **changes)


class _Served:
    """The tools as a server of MCP, and the approvals that the agent's user has given and no call has used."""

    def __init__(self, tools: Toolset, name: str, ask: Any) -> None:
        self._tools = tools
        self._name = name
        self._prefix = f"mcp__{name}__"
        self._ask = ask
        self._approved: Counter[str] = Counter()
        self._faces: dict[str, Face] = {}

    def config(self) -> JSONDict:
        """Return the server as the SDK takes it."""
        server: Any = Server(self._name, version=__version__, on_list_tools=self._list, on_call_tool=self._call)
        return {"type": "sdk", "name": self._name, "instance": server}

    async def before(self, given: Any, tool_use_id: str | None, context: Any) -> JSONDict:
        """Return whether the agent's permissions are to allow a call, or to ask about it."""
        face = self._face(given["tool_name"])
        asks = self._ask is not None and face is not None and self._tools.needs_approval(face, given["tool_input"])
        decision: JSONDict = {"hookEventName": "PreToolUse", "permissionDecision": "ask" if asks else "allow"}
        if asks:
            decision["permissionDecisionReason"] = "the policy asks for an approval of this call"
        return {"hookSpecificOutput": decision}

    async def can_use_tool(self, tool_name: str, given: JSONDict, context: Any) -> Any:
        """Ask the agent's user, and remember a yes for the call to come."""
        answer = await self._ask(tool_name, given, context)
        face = self._face(tool_name)
        if face is not None and isinstance(answer, PermissionResultAllow):
            meant = given if answer.updated_input is None else answer.updated_input
            if self._approved.total() < _MAX_APPROVALS:  # beyond that the gate asks
                self._approved[_key(face.name, meant)] += 1
        return answer

    async def _list(self, context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[_listed(face) for face in self._now().values()])

    async def _call(self, context: Any, params: Any) -> CallToolResult:
        args = params.arguments or {}
        face = self._face(self._prefix + params.name)
        if face is None:
            return _result(f"there is no tool {params.name}", failed=True)
        key = _key(face.name, args)
        approved = self._approved[key] > 0
        if approved:
            self._approved[key] -= 1
        self._approved = +self._approved
        return _answered(await self._tools.call(face, args, approved=approved))

    def _now(self) -> dict[str, Face]:
        self._faces = {face.name: face for face in self._tools.faces()}
        return self._faces

    def _face(self, tool_name: str) -> Face | None:
        """Return the tool that the agent calls so; None for those of others, and for one that is not there."""
        if not tool_name.startswith(self._prefix):
            return None
        name = tool_name.removeprefix(self._prefix)
        return self._faces.get(name) or self._now().get(name)


def _key(name: str, args: JSONObject) -> str:
    return json.dumps([name, dict(args)], sort_keys=True, default=str)  # whatever order the agent's process gives them


def _listed(face: Face) -> Tool:
    hints = face.annotations.to_mcp()
    return Tool.model_validate(
        {"name": face.name, "description": face.description, "inputSchema": face.schema, "annotations": hints or None}
    )


def _answered(answer: Answer) -> CallToolResult:
    return _result(answer.text, answer.images, failed=answer.error is not None)


def _result(text: str, images: tuple[tuple[str, str], ...] = (), *, failed: bool = False) -> CallToolResult:
    pictures = [{"type": "image", "data": data, "mimeType": kind} for kind, data in images]
    return CallToolResult.model_validate({"content": [{"type": "text", "text": text}, *pictures], "isError": failed})
