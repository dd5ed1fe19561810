"""Resources and prompts as tools, for programs and for clients that know only tools."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors import ToolConflictError
from toolexec.model.declare import FunctionTool, tool
from toolexec.model.handler import ToolContext
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import acting

if TYPE_CHECKING:
    from toolexec.exec.facade import Exec
    from toolexec.exec.resources import Resources
    from toolexec.model.tool import Tool

LIST_RESOURCES: Final = "resources:list"
"""The ID of the first of these tools."""


def add_resource_tools(ex: Exec) -> list[Tool]:
    """Add tools for resources and prompts; see `Exec.add_resource_tools`."""
    made = resource_tools(ex.resources)
    for each in made:
        if ex.everything.find(each.tool.id) is not None:
            raise ToolConflictError(f"there is a tool {each.tool.id} already", tool_id=each.tool.id)
    return [ex.add(each) for each in made]


def resource_tools(resources: Resources) -> list[FunctionTool[..., Any]]:
    """Return the tools that list and read *resources*, and list and get prompts.

    What they do passes the gate once more, under the ID of what is read, for the caller of the tool.
    """

    @tool(LIST_RESOURCES, read_only=True)
    async def list_resources(context: ToolContext) -> list[dict[str, Any]]:
        """Lists the resources of MCP servers, and templates of more of them: fill in a `uri_template` for a URI."""
        with acting(context.inner):
            found = [
                _listed(one.description or one.title, uri=one.uri, name=one.name, mime_type=one.mime_type)
                for one in await resources.list_resources()
            ]
            return found + [
                _listed(one.description or one.title, uri_template=one.uri_template, name=one.name)
                for one in await resources.list_templates()
            ]

    @tool("resources:read", read_only=True)
    async def read_resource(uri: str, context: ToolContext) -> Any:
        """Reads a resource of an MCP server: gives its text, or a list of its parts if it is more than one text.

        Args:
            uri: From resources:list, or of a link in a tool's result.
        """
        with acting(context.inner):
            reply = await resources.read(uri)
        if len(reply.contents) == 1 and reply.contents[0].text is not None:
            return reply.contents[0].text
        return [
            _listed("", uri=part.uri, mime_type=part.mime_type)
            | ({"text": part.text} if part.blob is None else {"base64": base64.b64encode(part.blob).decode()})
            for part in reply.contents
        ]

    @tool("prompts:list", read_only=True)
    async def list_prompts(context: ToolContext) -> list[dict[str, Any]]:
        """Lists the prompts of MCP servers: templates of messages, with their arguments."""
        with acting(context.inner):
            return [
                _listed(one.description or one.title, name=one.name)
                | ({"arguments": [_argument(each.name, each.required) for each in one.arguments]})
                for one in await resources.list_prompts()
            ]

    @tool("prompts:get", read_only=True)
    async def get_prompt(
        name: str, context: ToolContext, arguments: dict[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Gives the messages of a prompt of an MCP server, with its arguments filled in.

        Args:
            name: From prompts:list.
            arguments: Its arguments, by name.
        """
        with acting(context.inner):
            reply = await resources.get(name, arguments)
        return [{"role": message.role, "content": dict(message.content)} for message in reply.messages]

    return [list_resources, read_resource, list_prompts, get_prompt]


def _listed(description: str, **parts: str) -> JSONDict:
    data: JSONDict = {key: value for key, value in parts.items() if value}
    return data | ({"description": description} if description else {})


def _argument(name: str, required: bool) -> JSONDict:
    return {"name": name, "required": required}
