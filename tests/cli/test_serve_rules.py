"""A running server says which of its rules mean no tool."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from tests.cli.live_server import LiveServer, live_server, write

from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool

pytestmark = [pytest.mark.full, pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")]
_BASE = "[audit]\nenabled = false\n[pinning]\nenabled = false\n"


def server(name: str, *tools: str) -> str:
    """Return the table of a server with these tools."""
    command, *args = ScriptedServer(tools=[ScriptedTool(tool, "Echo.") for tool in tools]).command()
    return f"[mcpServers.{name}]\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n"


def rule(*tools: str) -> str:
    """Return a rule that denies these tools."""
    return f'[[policy.rules]]\neffect = "deny"\ntools = {json.dumps(tools)}\n'


async def named(served: LiveServer, pattern: str) -> str:
    """Wait until the server has said, at any time, that no tool is named so, and return the line."""
    served.read = 0
    return await served.said(f"no tool is named {pattern},")


async def test_a_rule_in_another_spelling_is_named_at_the_start_and_after_a_reload(tmp_path: Path) -> None:
    """Each rule that means no tool is named once, with the tool that is nearest, also those of endpoints, of the cache
    and of fallbacks; a server that is away holds back what may be about its tools until it is there."""
    file = tmp_path / "toolexec.toml"
    files, away = server("files", "delete_file"), '[mcpServers.late]\ncommand = "no-such-command"\n'
    others = (
        '[[cache.rules]]\ntools = "file:delete_file"\nttl = 5\n[[resilience.fallbacks]]\ntools = "files:*"\nto = ["a:*"]\n'
        '[endpoints.team]\n[[endpoints.team.policy.rules]]\neffect = "deny"\ntools = "files:delete"\n'
    )
    first = rule("Files:Delete_*", "files:*", "late:dorp") + rule("*:+prompt")
    write(file, _BASE + files + away + first + others)
    async with live_server(file) as served:
        spelled = await named(served, "Files:Delete_*")
        assert "toolexec.toml" in spelled
        assert "so it has no effect; did you mean files:delete_file?" in spelled
        assert "toolexec.toml" in await named(served, "file:delete_file")
        assert "rule 1 of the endpoint team" in await named(served, "files:delete")
        write(file, _BASE + files + server("late", "drop") + first + others + rule("files.delete_file"))
        served.process.send_signal(signal.SIGHUP)
        assert "did you mean files:delete_file?" in await named(served, "files.delete_file")
        assert "did you mean late:drop?" in await named(served, "late:dorp")
    said = [line.partition("no tool is named ")[2].split(",")[0] for line in served.lines if "no tool is" in line]
    assert sorted(said) == ["Files:Delete_*", "file:delete_file", "files.delete_file", "files:delete", "late:dorp"]


async def test_nothing_is_said_of_rules_about_tools_that_there_are(tmp_path: Path) -> None:
    """A rule that means tools is not named, nor is one without tools, or one about the tools of a server that is
    away."""
    file = tmp_path / "toolexec.toml"
    away = '[mcpServers.gone]\ncommand = "no-such-command"\nnamespace = "lost-ns"\n'
    rules = rule("files:*", "lost_ns:*", "*:drop") + '[[policy.rules]]\neffect = "deny"\nnamespaces = "x"\n'
    write(file, _BASE + server("files", "read") + away + rules)
    async with live_server(file) as served:
        write(file, _BASE + server("files", "read") + away + rules + rule("files:raed"))
        served.process.send_signal(signal.SIGHUP)
        await named(served, "files:raed")
    assert [each for each in served.lines if "no tool is named" in each and "raed" not in each] == []
