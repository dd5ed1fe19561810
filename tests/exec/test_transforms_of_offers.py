"""Prompts and resources in another form than their own: what is listed, read, decided on, recorded and pinned."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.server.harness import connect
from tests.server.harness import serving as serving_tools

from toolexec import Exec, Gate, InMemoryIndex, LocalBinding, Policy, Rule, Tool
from toolexec.errors import ConfigurationError, InputValidationError, NotOfferedError, PolicyError
from toolexec.model import ToolTransform
from toolexec.run.audit import AuditLog, read_last
from toolexec.run.layers.audit import Audit
from toolexec.run.pinning import Pins
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool

SERVER = str(Path(__file__).parents[1] / "server" / "offers_server.py")
SHOWN: dict[str, Any] = {
    "docs:review:+prompt": {
        "name": "critique",
        "description": "Says what is wrong.",
        "arguments": {"code": {"name": "text", "description": "What to look at."}, "style": {"value": "short"}},
    },
    "docs:hostile:+prompt": {"hide": True},
    "docs:shared-same:+resource": {"hide": True},
    "docs:bytes-some:+resource": {"name": "numbers", "description": "All bytes."},
    "docs:user-name-profile:+resource": {"title": "Who that is"},
}


@asynccontextmanager
async def shown(transforms: dict[str, Any], gate: Gate | None = None, **settings: Any) -> AsyncGenerator[Exec]:
    """Yield an Exec with a server whose prompts and resources are shown in another form."""
    async with Exec(transforms=transforms, gate=gate) as ex:
        command = [sys.executable, SERVER, "stdio", "new", "0"]
        await ex.add_mcp("docs", command=command, stop_timeout=0.5, **settings)
        yield ex


async def test_lists_and_reads_know_the_new_form(tmp_path: Path) -> None:
    """Callers, clients, rules, records and pins see one name; the server gets its own, with what is fixed."""
    audit = AuditLog.open(tmp_path / "audit.jsonl", args="redacted", state=tmp_path)
    rules = [Rule("deny", tools="docs:critique:+prompt", when={"code": {"equals": "bad"}})]
    pins = Pins(tmp_path / "pins.db")
    async with shown(SHOWN, Gate(policy=Policy(rules), audit=Audit(audit), pinning=pins)) as ex:
        [prompt] = await ex.list_prompts()
        assert (prompt.name, prompt.description) == ("docs:critique", "Says what is wrong.")
        assert [(one.name, one.description, one.required) for one in prompt.arguments] == [
            ("text", "What to look at.", True)
        ]
        said = (await ex.get_prompt("docs:critique", {"text": "x = 1"})).messages[0].text
        assert said == "Review this in a short way: x = 1"
        with pytest.raises(PolicyError):
            await ex.get_prompt("docs:critique", {"text": "bad"})
        for args in ({"code": "x"}, {"text": "x", "style": "kind"}):
            with pytest.raises(InputValidationError):
                await ex.get_prompt("docs:critique", args)
        assert (await ex.complete(prompt, "text", "an")).values == ("ann", "anton")
        assert (await ex.complete(prompt, "style", "an")).values == ()
        [resource] = await ex.list_resources()
        assert (resource.name, resource.description) == ("numbers", "All bytes.")
        assert (await ex.read_resource(resource.uri)).contents
        [template] = await ex.list_resource_templates()
        assert (template.title, template.description) == ("Who that is", "A profile.")
        for name in ("docs:review", "docs:hostile"):
            with pytest.raises(NotOfferedError):
                await ex.get_prompt(name, {"code": "x"})
        for uri in ("shared://same", "shared://sam%65", "shared:/%2fsame"):
            with pytest.raises(NotOfferedError):
                await ex.read_resource(f"toolexec://docs/{uri}")
        async with serving_tools(ex) as server, connect(server, "auto") as client:
            [listed] = (await client.list_prompts()).prompts
            assert (listed.name, [one.name for one in listed.arguments or ()]) == ("docs:critique", ["text"])
            assert [one.name for one in (await client.list_resources()).resources] == ["numbers"]
    audit.close()
    records = [one for one in read_last(tmp_path / "audit.jsonl", 100) if one.get("tool") == "docs:critique:+prompt"]
    assert {"code": "x = 1", "style": "short"} in [one.get("args") for one in records]
    assert {"docs:critique:+prompt", "docs:bytes-some:+resource"} <= {pin.tool_id for pin in pins.statuses()}


async def test_what_does_not_fit_is_withheld() -> None:
    """Nothing is shown as it is where that was to change, and the status says why; hiding a template closes what fits it."""
    wrong: dict[str, Any] = {
        "docs:review:+prompt": {"name": "hostile"},
        "docs:bytes-some:+resource": {"arguments": {"uri": {"value": "bytes://other"}}},
        "docs:user-name-profile:+resource": {"hide": True},
    }
    async with shown(wrong) as ex:
        assert [one.name for one in await ex.list_prompts()] == ["docs:hostile"]
        assert [one.own_uri for one in await ex.list_resources()] == ["shared://same"]
        for uri in ("bytes://some", "user://ann/profile"):
            with pytest.raises(NotOfferedError):
                await ex.read_resource(f"toolexec://docs/{uri}")
        [skipped] = [one.skipped for one in ex.backend_statuses() if one.name == "docs"]
        assert "there is a docs:hostile:+prompt already" in skipped["docs:review:+prompt"]
        assert "a resource has no arguments to change" in skipped["docs:bytes-some:+resource"]


async def test_unlisted_resources_can_be_hidden_and_a_server_that_keeps_state_has_the_same_form() -> None:
    """Nothing is read that is not listed then; an instance of the server knows prompts by their new names, too."""
    hides = {"docs:unlisted:+resource": {"hide": True}, **SHOWN}
    async with shown(hides, isolation="caller") as ex:
        with pytest.raises(NotOfferedError):
            await ex.read_resource("toolexec://docs/other://thing")
        said = (await ex.get_prompt("docs:critique", {"text": "x"})).messages[0].text
        assert said == "Review this in a short way: x"


async def test_tools_can_be_hidden_as_well() -> None:
    """Those of servers and functions are not there; a transform that hides says nothing else."""
    async with Exec(transforms={"docs:touch": {"hide": True}, "own:add": {"hide": True}}) as ex:
        await ex.add_mcp("docs", command=ScriptedServer(tools=[ScriptedTool("link"), ScriptedTool("touch")]).command())
        ex.add(lambda: 1, "own:add")
        assert ex.index.find("docs:link") is not None
        assert [ex.index.find(hidden) for hidden in ("docs:touch", "own:add")] == [None, None]
    index = InMemoryIndex()
    index.register(Tool(name="kept", namespace="own", input_schema={}), LocalBinding("own:kept"))
    async with Exec(index=index, transforms={"own:kept": {"hide": True}}) as ex:
        assert ex.index.find("own:kept") is None
    with pytest.raises(ConfigurationError, match="it is hidden, so there is nothing else to say of it"):
        ToolTransform(hide=True, name="x")
