"""A server made with toolexec that has the tools which the conformance suite asks for: `python server.py PORT`."""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path
from typing import Any

from tests.servers import TINY_PNG

from toolexec import Exec, Tool, ToolContext, ToolReply
from toolexec.run.gate import Gate
from toolexec.run.layers.approval import Approval
from toolexec.run.policy import Policy
from toolexec.run.policy_rules import Rule
from toolexec.server.app import ToolServer
from toolexec.server.auth import AuthSettings
from toolexec.server.http import HttpSettings, serve_http
from toolexec.server.settings import ServeSettings

OFFERS = str(Path(__file__).parents[1] / "server" / "offers_server.py")
"""A server with resources and prompts, which this one passes on."""
PNG = base64.b64encode(TINY_PNG).decode()
WAV = base64.b64encode(
    b"RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00\x80>\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00"
).decode()
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def test_simple_text() -> str:
    """Some text."""
    return "This is a simple text response for testing."


def test_image_content() -> ToolReply:
    """An image."""
    return ToolReply(content=[IMAGE])


def test_audio_content() -> ToolReply:
    """A sound."""
    return ToolReply(content=[{"type": "audio", "data": WAV, "mimeType": "audio/wav"}])


def test_embedded_resource() -> ToolReply:
    """A resource in the reply."""
    return ToolReply(
        content=[_resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]
    )


def test_multiple_content_types() -> ToolReply:
    """Text, an image and a resource."""
    return ToolReply(
        content=[
            {"type": "text", "text": "Multiple content types test:"},
            IMAGE,
            _resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ]
    )


async def test_tool_with_logging(context: ToolContext) -> str:
    """Tells what it does while it does it."""
    context.log("info", "Tool execution started")
    await asyncio.sleep(0.05)
    context.log("info", "Tool processing data")
    await asyncio.sleep(0.05)
    context.log("info", "Tool execution completed")
    return "It has logged."


def test_error_handling() -> str:
    """Always fails."""
    raise RuntimeError("This tool intentionally returns an error for testing")


async def test_tool_with_progress(context: ToolContext) -> str:
    """Reports how far it is."""
    for done in (0, 50, 100):
        context.report(done, 100)
        await asyncio.sleep(0.05)
    return "It has reported."


def _resource(uri: str, mime: str, text: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": text}}


TOOLS = (
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_multiple_content_types,
    test_tool_with_logging,
    test_error_handling,
    test_tool_with_progress,
)

GUARDED = (
    "test_missing_capability",
    "test_elicitation",
    "test_input_required_result_elicitation",
    "test_input_required_result_request_state",
    "test_input_required_result_tampered_state",
    "test_streaming_elicitation",
)


def make_exec() -> Exec:
    policy = Policy([Rule("ask", tools=GUARDED, reason="The suite wants to see a question.")])
    ex = Exec(gate=Gate(policy=policy, approval=Approval(policy.decide)))
    for function in TOOLS:
        ex.add(function)
    for name in GUARDED:
        ex.add(test_simple_text, name)
    ex.add(test_tool_with_logging, "test_logging_tool")
    schema_tool = Tool(name="json_schema_2020_12_tool", description="A schema of many words.", input_schema=SCHEMA)
    ex.add(schema_tool, handler=lambda args: args)
    header = {"region": {"type": "string", "x-mcp-header": "Region"}}
    headers_tool = Tool(
        name="test_header_tool",
        description="An argument that clients send as a header, too.",
        input_schema={"type": "object", "properties": header},
    )
    ex.add(headers_tool, handler=lambda args: args.get("region"))
    return ex


async def main(port: int) -> None:
    async with make_exec() as ex:
        await ex.add_mcp("offers", command=[sys.executable, OFFERS, "stdio", "new", "0"])
        server = ToolServer(ex, ServeSettings(expose="direct"))
        await serve_http(server, HttpSettings(port=port), AuthSettings(), ready=lambda url: print(url, flush=True))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[-1])))
