"""Real servers: every tool of each of them runs, over every transport that it has."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines.programs import free_port
from tests.servers import EVERYTHING, filesystem_calls, require_npm_server, server_environment

from toolexec import Exec

pytestmark = pytest.mark.full


@pytest.fixture(params=["stdio", "streamableHttp", "sse"])
def everything(request) -> Iterator[dict[str, object]]:
    """Where server-everything is, as arguments for `add_mcp`."""
    command = require_npm_server("everything")
    if request.param == "stdio":
        yield {"command": command}
        return
    port = free_port()
    with subprocess.Popen(
        [*command, request.param],
        env=server_environment(PORT=str(port)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None, f"server-everything exited with {process.returncode}"
            assert time.monotonic() < deadline, "server-everything did not come up"
            time.sleep(0.02)
        yield {"url": f"http://127.0.0.1:{port}/{'sse' if request.param == 'sse' else 'mcp'}"}
        process.kill()


async def run(ex: Exec, tool_id: str, args: dict[str, object]):
    """Run a tool that must succeed, and whose result must fit its own schema."""
    result = await ex.run_tool(tool_id, args, timeout=60)
    assert result.ok, f"{tool_id}: {result.error}"
    assert not result.warnings, f"{tool_id}: {result.warnings}"
    return result


async def test_every_tool_of_everything(everything):
    """All tools of server-everything are listed and run."""
    async with Exec(gate=None) as ex:
        (status,) = await ex.add_mcp("all", **everything)
        assert status.available, status.reason
        tools = {tool.name for tool in await ex.backends.get("all").list_tools()}
        assert tools == EVERYTHING.keys()
        results = {name: await run(ex, f"all:{name}", args) for name, args in EVERYTHING.items()}
        assert "2" in results["get-sum"].value
        assert results["get-structured-content"].value.keys() == {"temperature", "conditions", "humidity"}
        assert [part["type"] for part in results["get-tiny-image"].content] == ["text", "image", "text"]
        assert [part["type"] for part in results["get-resource-links"].content] == [
            "text",
            "resource_link",
            "resource_link",
        ]
        assert results["get-resource-reference"].content[1]["resource"]["blob"]
        assert results["gzip-file-as-resource"].content[0]["resource"]["mimeType"] == "application/gzip"


async def test_a_tool_that_runs_as_a_task(everything):
    """A tool that answers later is waited for; its status messages are its progress."""
    async with Exec(gate=None) as ex:
        await ex.add_mcp("all", **everything)
        seen = []
        result = await ex.run_tool("all:simulate-research-query", {"topic": "tools"}, on_progress=seen.append)
        assert "Research Report: tools" in result.value
        assert [seen[0].message, seen[1].message, seen[-1].message] == ["started", "Gathering sources...", "completed"]


async def test_progress_of_everything(everything):
    """The long-running tool reports its steps."""
    async with Exec(gate=None) as ex:
        await ex.add_mcp("all", **everything)
        args = {"duration": 0.3, "steps": 3}
        events = [event async for event in ex.stream_tool("all:trigger-long-running-operation", args)]
        assert [event.kind for event in events] == ["progress"] * 3 + ["done"]
        assert [event.data["progress"] for event in events[:3]] == [1, 2, 3]


async def test_every_tool_of_filesystem(tmp_path):
    """All tools of server-filesystem are listed and run, on a directory of their own."""
    root = tmp_path.resolve()
    calls = filesystem_calls(root)
    async with Exec(gate=None) as ex:
        (status,) = await ex.add_mcp("fs", command=[*require_npm_server("filesystem"), str(root)])
        assert status.available, status.reason
        assert {tool.name for tool in await ex.backends.get("fs").list_tools()} == {name for name, _ in calls}
        results = {name: await run(ex, f"fs:{name}", args) for name, args in calls}
    b = root / "sub" / "b.txt"
    assert b.read_text() == "one\nthree\n"
    assert "three" in results["read_file"].value["content"]
    assert str(b) in results["search_files"].value["content"]


async def test_a_forbidden_path_is_the_tools_error(tmp_path):
    """A refusal of the server is the call's error, in the server's words."""
    async with Exec(gate=None) as ex:
        await ex.add_mcp("fs", command=[*require_npm_server("filesystem"), str(tmp_path.resolve())])
        result = await ex.run_tool("fs:read_text_file", {"path": "/etc/hostname"})
        assert "Access denied" in str(result.error)


@pytest.fixture
def repository(tmp_path) -> Path:
    def git(*args: str) -> None:
        identity = ["-c", "user.name=T", "-c", "user.email=t@example.com"]
        subprocess.run(["git", *identity, *args], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-b", "main")
    git("config", "user.name", "T")
    git("config", "user.email", "t@example.com")
    (tmp_path / "a.txt").write_text("one\n")
    git("add", ".")
    git("commit", "-m", "first")
    (tmp_path / "a.txt").write_text("two\n")
    return tmp_path


async def test_every_tool_of_git(repository):
    """All tools of mcp-server-git are listed and run, on a repository of their own."""
    calls: list[tuple[str, dict[str, object]]] = [
        ("git_status", {}),
        ("git_diff_unstaged", {}),
        ("git_add", {"files": ["a.txt"]}),
        ("git_diff_staged", {}),
        ("git_reset", {}),
        ("git_diff", {"target": "HEAD"}),
        ("git_log", {"max_count": 5}),
        ("git_create_branch", {"branch_name": "side"}),
        ("git_branch", {"branch_type": "local"}),
        ("git_show", {"revision": "HEAD"}),
        ("git_checkout", {"branch_name": "side"}),
        ("git_commit", {"message": "second"}),
    ]
    async with Exec(gate=None) as ex:
        (status,) = await ex.add_mcp("git", command=[sys.executable, "-m", "mcp_server_git"])
        assert status.available, status.reason
        assert {tool.name for tool in await ex.backends.get("git").list_tools()} == {name for name, _ in calls}
        for name, args in calls:
            if name == "git_commit":
                await run(ex, "git:git_add", {"repo_path": str(repository), "files": ["a.txt"]})
            await run(ex, f"git:{name}", {"repo_path": str(repository), **args})
    log = subprocess.run(["git", "log", "--format=%s", "side"], cwd=repository, capture_output=True, text=True)
    assert log.stdout.split() == ["second", "first"]


async def test_every_tool_of_time():
    """All tools of mcp-server-time are listed and run."""
    async with Exec(gate=None) as ex:
        await ex.add_mcp("time", command=[sys.executable, "-m", "mcp_server_time"])
        assert {tool.name for tool in await ex.backends.get("time").list_tools()} == {
            "get_current_time",
            "convert_time",
        }
        assert (await run(ex, "time:get_current_time", {"timezone": "UTC"})).value["timezone"] == "UTC"
        args = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert (await run(ex, "time:convert_time", args)).value["time_difference"] == "+9.0h"
