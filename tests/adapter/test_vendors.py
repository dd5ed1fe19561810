"""What is exported is valid for the vendors' own validators: their packages' types and their clients' schemas."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp_types import Tool as MCPTool
from pydantic import TypeAdapter
from tests.adapter.vendors.environment import ROOT, vendor_python
from tests.adapter.vendors.tools import TOOLS
from tests.servers import npm_directory, require_modern_node, require_npm_entry

from toolexec.adapter import AnthropicAdapter, FormOptions, MCPAdapter, OpenAIAdapter
from toolexec.errors import ConversionError
from toolexec.model import Tool
from toolexec.server.direct import listing

HERE = Path(__file__).parent / "vendors"
each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
strict_or_not = pytest.mark.parametrize("strict", [True, False])


@strict_or_not
@each_tool
def test_openai(tool: Tool, strict: bool) -> None:
    """Both forms are of the types of openai, and its own rules for strict schemas change nothing in a strict one."""
    chat = pytest.importorskip("openai.types.chat")
    responses = pytest.importorskip("openai.types.responses")
    module: Any = pytest.importorskip("openai.lib._pydantic")
    done = OpenAIAdapter().from_tool(tool, FormOptions(strict=strict))
    TypeAdapter(chat.ChatCompletionToolParam).validate_python(done.form)
    if done.strict:
        schema = done.form["function"]["parameters"]
        assert module._ensure_strict_json_schema(copy.deepcopy(schema), path=(), root=schema) == schema
    form = OpenAIAdapter("responses").from_tool(tool, FormOptions(strict=strict)).form
    TypeAdapter(responses.FunctionToolParam).validate_python(form)
    responses.FunctionTool.model_validate(form)


@pytest.mark.full
@strict_or_not
@each_tool
def test_anthropic(tool: Tool, strict: bool) -> None:
    """The form is of the type of anthropic."""
    types = pytest.importorskip("anthropic.types")
    TypeAdapter(types.ToolParam).validate_python(AnthropicAdapter().from_tool(tool, FormOptions(strict=strict)).form)


@each_tool
def test_mcp(tool: Tool) -> None:
    """The form is MCP's `Tool`, its roots are objects, and the tool that is read from it is the one that was written."""
    form = MCPAdapter().from_tool(tool).form
    MCPTool.model_validate(form, by_name=False)
    for key in ("inputSchema", "outputSchema"):
        if key in form:
            assert form[key]["type"] == "object"
            assert all(isinstance(part, dict) for part in form[key].get("properties", {}).values())
    assert MCPAdapter().to_tool(form) == tool


@each_tool
def test_mcp_accepts_the_same(tool: Tool) -> None:
    """The schema that is written accepts the objects that the tool's own schema accepts, and no others."""
    written = Tool(name="written", input_schema=MCPAdapter().from_tool(tool).form["inputSchema"]).input_schema
    for value in ({}, {"a": "x"}, {"a": 1}, {"yes": 1}, {"no": 1}, {"name": "n", "below": [{"name": 5}]}):
        assert written.accepts(value) == tool.input_schema.accepts(value)


def test_mcp_refuses_what_no_object_fits() -> None:
    """A schema whose root takes no object cannot be written."""
    with pytest.raises(ConversionError, match="array"):
        MCPAdapter().from_tool(Tool(name="t", input_schema={"type": "array"}))


@pytest.mark.full
def test_typescript_clients_of_mcp() -> None:
    """The official TypeScript clients accept every exported tool, and every one that the server lists as it is."""
    require_npm_entry("@modelcontextprotocol/client/package.json")
    forms = [MCPAdapter().from_tool(tool).form for tool in TOOLS]
    forms += [listing(tool.name, tool, version) for tool in TOOLS for version in ("2025-11-25", "2025-06-18")]
    done = subprocess.run(
        [require_modern_node(), str(HERE / "check_mcp.mjs"), str(npm_directory() / "node_modules")],
        input=json.dumps([{"tools": [form]} for form in forms]),
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    problems = json.loads(done.stdout)
    assert len(problems) == len(forms)
    assert [(form, found) for form, found in zip(forms, problems, strict=True) if found] == []


@pytest.mark.full
@pytest.mark.parametrize("vendor", ["google", "a2a", "llamaindex"])
def test_packages_in_an_environment_of_their_own(vendor: str) -> None:
    """google-genai and a2a-sdk take and give the same forms, and tools of LlamaIndex are called as they are."""
    # No cache and no coverage of this run: the packages there are others than here.
    arguments = ["-q", "-c", os.devnull, "--noconftest", "--import-mode=importlib", "-p", "no:cacheprovider", "-rs"]
    done = subprocess.run(
        [str(vendor_python()), "-m", "pytest", *arguments, f"--rootdir={HERE}", str(HERE / f"check_{vendor}.py")],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
