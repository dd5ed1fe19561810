"""Programs as tools: what they are given, what comes back, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from toolexec.backend.providers.backend import SourceBackend
from toolexec.backend.providers.kinds import source_of
from toolexec.backend.secrets import SecretResolver
from toolexec.errors import (
    BackendUnavailableError,
    ConfigurationError,
    InputValidationError,
    InvalidResultError,
    RemoteToolError,
    ToolTimeoutError,
)
from toolexec.model.call import ToolCall

HOSTILE = ["; rm -rf /", "$(id)", "`id`", "a b", "'\"", "*", "$HOME", "a\nb", "", "{x}", "ü", "|cat", "&& id"]
SHOW = "import json, sys; print(json.dumps(sys.argv[1:]))"


def python(code: str, *argv: Any, **settings: Any) -> dict[str, Any]:
    """Settings of a tool that runs Python."""
    braced = code.replace("{", "{{").replace("}", "}}")
    return {"argv": [sys.executable, "-c", braced, *argv], **settings}


@asynccontextmanager
async def backend(tools: Mapping[str, Any], **settings: Any) -> AsyncIterator[SourceBackend]:
    """A started backend with these tools."""
    secrets = settings.pop("secrets", None)
    made = SourceBackend("cmd", source_of("command", "cmd", {"tools": tools, **settings}, secrets=secrets))
    await made.start()
    try:
        yield made
    finally:
        await made.aclose()


async def run(tool: Mapping[str, Any], args: Mapping[str, Any] | None = None, **settings: Any) -> Any:
    """Call one tool once."""
    async with backend({"t": tool}, **settings) as made:
        assert made.status().skipped == {}
        return await made.call("t", ToolCall("cmd:t", args))


async def stream(tool: Mapping[str, Any], args: Mapping[str, Any] | None = None) -> list[tuple[str, Any]]:
    """Stream one tool once."""
    async with backend({"t": tool}) as made:
        return [(event.kind, event.data) async for event in made.stream("t", ToolCall("cmd:t", args))]


async def test_arguments_arrive_literally() -> None:
    """Whatever a shell would make of them, each is one argument, in the place of its placeholder."""
    tool = python(SHOW, "--", "{text}", "x={text}", "{more...}", output="json")
    for text in HOSTILE:
        assert await run(tool, {"text": text, "more": HOSTILE}) == ["--", text, f"x={text}", *HOSTILE]


async def test_git_and_jq_get_them_literally(tmp_path: Path) -> None:
    """Real programs take them for names and values."""
    tools = {
        "init": {"argv": ["git", "init", "-q", "."]},
        "grep": {
            "argv": ["git", "grep", "--no-index", "-F", "-e", "{text}", "--", "."],
            "dashes": ["text"],
            "output": "lines",
            "exit_codes": {"1": "empty"},
        },
        "pick": {
            "argv": ["jq", "-c", "--arg", "name", "{name}", ".[$name]"],
            "stdin": "{document}",
            "output": "json",
            "dashes": ["name"],
            "parameters": {"document": {"type": "object"}},
        },
    }
    (tmp_path / "notes").write_text("a; rm -rf /\nb $(id)\n")
    async with backend(tools, cwd=tmp_path) as made:
        if "pick" in made.status().skipped:
            pytest.skip("jq is not here")
        await made.call("init", ToolCall("cmd:init"))
        found = await made.call("grep", ToolCall("cmd:grep", {"text": "; rm -rf /"}))
        assert found == ["notes:a; rm -rf /"]
        assert await made.call("grep", ToolCall("cmd:grep", {"text": "$(id)"})) == ["notes:b $(id)"]
        assert await made.call("grep", ToolCall("cmd:grep", {"text": "--not-there"})) == []
        document = {"$(id)": 1, "; rm -rf /": [2]}
        assert await made.call("pick", ToolCall("cmd:pick", {"name": "$(id)", "document": document})) == 1
        assert await made.call("pick", ToolCall("cmd:pick", {"name": "; rm -rf /", "document": document})) == [2]


async def test_a_value_cannot_become_an_option() -> None:
    """A value like that is refused before the program starts, unless it stands after `--` or is allowed."""
    for argv in (["{text}"], ["{text...}"], ["{text}x"], [["-o", "{text}"]]):
        with pytest.raises(InputValidationError, match="would read it as an option"):
            await run(python(SHOW, *argv), {"text": ["-rf"] if argv == ["{text...}"] else "-rf"})
    assert await run(python(SHOW, "--", "{text}", output="json"), {"text": "-rf"}) == ["--", "-rf"]
    assert await run(python(SHOW, "--o={text}", output="json"), {"text": "-rf"}) == ["--o=-rf"]
    assert await run(python(SHOW, "{text}", output="json", dashes=["text"]), {"text": "-rf"}) == ["-rf"]


async def test_a_negative_number_is_not_an_option() -> None:
    """A number may stand anywhere; a string that looks like one may not, nor a number with other text after it."""
    for value in (-5, -1.5):
        assert await run(python(SHOW, "{n}", "-n", "{n}", output="json"), {"n": value}) == [
            str(value),
            "-n",
            str(value),
        ]
        assert await run(python(SHOW, "{n...}", output="json"), {"n": [value, 7]}) == [str(value), "7"]
    for argv, given in ((["{n}"], "-5"), (["{n...}"], ["-5"]), (["{n}x"], -5), (["{n}{m}"], -5)):
        with pytest.raises(InputValidationError, match="would read it as an option"):
            await run(python(SHOW, *argv), {"n": given, "m": "x"})


async def test_what_no_argument_can_have_is_refused() -> None:
    """NUL, half characters and arguments that are too long never start a program."""
    with pytest.raises(InputValidationError, match="NUL"):
        await run(python(SHOW, "--", "{text}"), {"text": "a\0b"})
    with pytest.raises(InputValidationError, match="half of a character"):
        await run(python(SHOW, "--", "{text}"), {"text": "\ud800"})
    with pytest.raises(InputValidationError, match="too long"):
        await run(python(SHOW, "--", "{text}"), {"text": "x" * 3_000_000})


async def test_elements_are_dropped_with_their_arguments() -> None:
    """Groups, flags, lists and defaults; null is the same as an argument that is not there."""
    tool = python(
        SHOW, ["-n", "{count}"], "{all?--all}", "{plain?--plain}", "{size}", "{files...}", output="json",
        parameters={"count": {"type": "integer"}, "size": {"default": "big"}},
    )  # fmt: skip
    assert await run(tool) == ["big"]
    given = {"count": 3, "all": True, "plain": False, "size": "s", "files": ["a", "b"]}
    assert await run(tool, given) == ["-n", "3", "--all", "s", "a", "b"]
    assert await run(tool, {"count": None, "files": []}) == ["big"]


async def test_the_schema_comes_from_the_placeholders() -> None:
    """With the parameters' own words, and what the program cannot do without as required."""
    parameters = {"count": {"type": "integer", "minimum": 1}, "ref": {"description": "Which commit."}}
    tool = {"argv": ["git", ["-n", "{count}"], "{all?--all}", "{ref}", "{files...}"], "parameters": parameters,
            "dry_run": "-n", "read_only": True, "description": "Log."}  # fmt: skip
    async with backend({"log": tool}) as made:
        (found,) = await made.list_tools()
    assert found.id == "cmd:log"
    assert found.input_schema.to_json() == {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 1},
            "all": {"type": "boolean"},
            "ref": {"type": "string", "description": "Which commit."},
            "files": {"type": "array", "items": {"type": "string"}},
            "dry_run": {"type": "boolean", "description": "Only say what would be done.", "default": False},
        },
        "additionalProperties": False,
        "required": ["ref"],
    }
    assert found.annotations.read_only
    assert found.meta == {"toolexec/dry_run": {"args": {"dry_run": True}}}


async def test_a_dry_run_is_an_option() -> None:
    """The option stands before the `--`, or at the end."""
    assert await run(python(SHOW, "--", "{f}", dry_run="-n", output="json"), {"f": "x", "dry_run": True}) == [
        "-n",
        "--",
        "x",
    ]
    assert await run(python(SHOW, "a", dry_run="-n", output="json"), {"dry_run": True}) == ["a", "-n"]
    assert await run(python(SHOW, "a", dry_run="-n", output="json")) == ["a"]


async def test_what_a_program_reads() -> None:
    """A template, an argument as JSON, or all arguments; a program that does not read does not fail."""
    cat = "import sys; sys.stdout.write(sys.stdin.read())"
    assert await run(python(cat, stdin="Dear {name},\n{{ok}}"), {"name": "$(id)"}) == "Dear $(id),\n{ok}"
    tool = python(cat, stdin="{*}", output="json", parameters={"a": {"type": "integer"}, "b": {"type": "string"}})
    assert await run(tool, {"a": 1, "b": "x"}) == {"a": 1, "b": "x"}
    assert await run(python("print('done')", stdin="{text}"), {"text": "x" * 5_000_000}) == "done"
    big = "y" * 3_000_000
    assert await run(python(cat, stdin="{text}"), {"text": big}) == big


async def test_outputs() -> None:
    """Text without its last newline, lines, JSON; bytes that are not UTF-8 are replaced."""
    write = "import sys; sys.stdout.buffer.write({!r})".format
    assert await run(python(write(b"a\nb\n"))) == "a\nb"
    assert await run(python(write(b"a\r\nb\n\nc"), output="lines")) == ["a", "b", "", "c"]
    assert await run(python(write(b""), output="lines")) == []
    assert await run(python(write(b"\xff\xfe"))) == "��"
    assert await run(python(write(b'{"a": [1]}'), output="json")) == {"a": [1]}
    with pytest.raises(InvalidResultError, match="not JSON"):
        await run(python(write(b"oops"), output="json"))
    with pytest.raises(InvalidResultError):
        await run(python("print('[' * 200_000)", output="json"))


async def test_a_flood_is_stopped() -> None:
    """A program that writes more than it may is ended, and the error has the beginning."""
    with pytest.raises(RemoteToolError, match="wrote more than 1000 bytes") as caught:
        await run({"argv": ["yes"], "max_output": 1000})
    assert caught.value.details["output"].startswith("y\ny\n")


async def test_exit_codes() -> None:
    """Each is what its author says; an unknown one is an error with the end of stderr."""
    fail = "import sys; sys.stderr.write('no ' * 3); sys.exit(int(sys.argv[1]))"
    codes = {1: "empty", "2": "the file is locked", "3": {"error": "busy", "retryable": True}, 4: "ok"}
    tool = python(fail, "{code}", exit_codes=codes, output="lines")
    assert await run(tool, {"code": "1"}) == []
    assert await run(tool, {"code": "4"}) == []
    for code, message, retryable in (("2", "the file is locked", False), ("3", "busy", True), ("5", "no no no", False)):
        with pytest.raises(RemoteToolError, match=message) as caught:
            await run(tool, {"code": code})
        assert caught.value.retryable is retryable
        assert caught.value.outcome != "not_sent"
        assert caught.value.details == {"exit_code": int(code), "stderr": "no no no"}
    with pytest.raises(RemoteToolError, match="killed by SIGTERM"):
        await run(python("import os; os.kill(os.getpid(), 15)"))


async def test_nothing_is_inherited_but_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PATH, HOME, LANG, and what the author names."""
    monkeypatch.setenv("WANTED", "w")
    monkeypatch.setenv("PRIVATE", "p")
    tool = python(
        "import os, json; print(json.dumps(dict(os.environ)))", output="json", inherit=["WANTED"], env={"B": "2"}
    )
    found = await run(tool, env={"A": "1"})
    assert {"A": "1", "B": "2", "WANTED": "w"}.items() <= found.items()
    assert found.keys() - {"A", "B", "WANTED", "LC_CTYPE", "TOOLEXEC_RUN"} <= {"PATH", "HOME", "LANG"}


async def test_secrets_reach_the_program_and_nothing_else() -> None:
    """Secrets are in its environment, and taken out of output, lines and errors."""
    secrets = SecretResolver(environment={"TOKEN": "s3cret-value"})
    code = (
        "import os, sys; t = os.environ['API_TOKEN']; print(len(t), t); sys.stderr.write(t); sys.exit(int(sys.argv[1]))"
    )
    tool = python(code, "{code}", env={"API_TOKEN": "secretref:env:TOKEN"})
    value = await run(tool, {"code": "0"}, secrets=secrets)
    assert value.startswith("12 ")
    assert "s3cret" not in value
    with pytest.raises(RemoteToolError) as caught:
        await run(tool, {"code": "1"}, secrets=secrets)
    assert "s3cret" not in str(caught.value.to_dict())
    async with backend({"t": tool}, secrets=SecretResolver(environment={})) as made:
        assert "TOKEN" in (made.status().reason or "")
    with pytest.raises(ConfigurationError, match="env only"):
        await run({"argv": ["echo", "secretref:env:TOKEN"]}, secrets=secrets)


async def test_lines_are_streamed() -> None:
    """Each is a chunk as it comes; the value of `done` is that of a call."""
    code = "import sys\nfor n in range(3): print(n, flush=True)\nsys.stdout.write('end')"
    chunks = [("chunk", "0"), ("chunk", "1"), ("chunk", "2"), ("chunk", "end")]
    assert await stream(python(code, output="lines")) == [*chunks, ("done", ["0", "1", "2", "end"])]
    assert await stream(python(code)) == [*chunks, ("done", "0\n1\n2\nend")]
    with pytest.raises(RemoteToolError, match="exit code 3"):
        await stream(python("print(1); raise SystemExit(3)"))


async def test_a_line_is_streamed_before_the_program_ends(tmp_path: Path) -> None:
    """A program that waits for the consumer of its lines gets on."""
    go = tmp_path / "go"
    code = "import os, sys, time\nprint('ready', flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\nprint('done')"
    async with backend({"t": python(code, str(go))}) as made, asyncio.timeout(60):
        seen = []
        async for event in made.stream("t", ToolCall("cmd:t")):
            seen.append(event.data)
            go.touch()
    assert seen == ["ready", "done", "ready\ndone"]


async def test_a_timeout_kills_the_whole_tree(tmp_path: Path) -> None:
    """Children in sessions of their own go, too; the error says how long it took."""
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "open(sys.argv[1], 'w').write(f'{os.getpid()} {child.pid}')\n"
        "time.sleep(600)"
    )
    with pytest.raises(ToolTimeoutError, match="within 2 s") as caught:
        await run(python(code, str(pids), timeout=2))
    assert caught.value.details == {"timeout": 2}
    assert caught.value.outcome != "not_sent"
    assert not any(alive(int(pid)) for pid in pids.read_text().split())


async def test_a_cancelled_call_leaves_nothing(tmp_path: Path) -> None:
    """Nor does a stream that is left early."""
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "print(os.getpid(), child.pid, flush=True)\n"
        "open(sys.argv[1], 'w').write(f'{os.getpid()} {child.pid}')\n"
        "time.sleep(600)"
    )
    async with backend({"t": python(code, str(pids))}) as made, asyncio.timeout(60):
        task = asyncio.create_task(made.call("t", ToolCall("cmd:t")))
        await until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        first = pids.read_text().split()
        assert not any(alive(int(pid)) for pid in first)
        events = made.stream("t", ToolCall("cmd:t"))
        second = (await anext(events)).data.split()
        await events.aclose()
        assert not any(alive(int(pid)) for pid in second)


async def test_what_a_program_leaves_behind_does_not_hold_up_the_call() -> None:
    """A child that keeps the output open is ended after its parent."""
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print(child.pid)"
    )
    async with asyncio.timeout(60):
        pid = int(await run(python(code)))
    assert not alive(pid)


async def test_what_cannot_run_is_skipped_or_refused(tmp_path: Path) -> None:
    """A program that is not there is not a tool; one that goes away later is unavailable, and nothing has run."""
    program = tmp_path / "here"
    program.write_text("#!/bin/sh\necho hi\n")
    program.chmod(0o755)
    tools = {
        "gone": {"argv": ["no-such-program"]},
        "lost": {"argv": ["git"], "cwd": str(tmp_path / "no")},
        "odd": {"argv": ["git"], "input_schema": {"type": "objekt"}},
        "here": {"argv": [str(program)]},
    }
    async with backend(tools) as made:
        status = made.status()
        assert [tool.name for tool in await made.list_tools()] == ["here"]
        assert "no program no-such-program on PATH" in status.skipped["gone"]
        assert "no directory" in status.skipped["lost"]
        assert "objekt" in status.skipped["odd"]
        assert await made.call("here", ToolCall("cmd:here")) == "hi"
        program.unlink()
        with pytest.raises(BackendUnavailableError, match="cannot start") as caught:
            await made.call("here", ToolCall("cmd:here"))
        assert caught.value.outcome == "not_sent"


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ({}, "it needs argv"),
        ({"argv": []}, "begin with the name of a program"),
        ({"argv": "git log"}, "argv must be a list"),
        ({"argv": ["git", "{a b}"]}, "placeholders are"),
        ({"argv": ["git", "x{a...}"]}, "must be the whole element"),
        ({"argv": ["git", "{*}"]}, "placeholders are"),
        ({"argv": ["{program}"]}, "must not depend on arguments"),
        ({"argv": ["sh", "-c", "ls {path}"]}, "would be code for sh"),
        ({"argv": ["/bin/bash", "-ec", "{script}"]}, "would be code"),
        ({"argv": ["git"], "outptu": "json"}, "did you mean output"),
        ({"argv": ["git"], "output": "xml"}, "output must be one of"),
        ({"argv": ["git"], "timeout": -1}, "timeout must be 0 or more"),
        ({"argv": ["git"], "exit_codes": {"x": "ok"}}, "is not an exit code"),
        ({"argv": ["git"], "exit_codes": {"1": {"eror": "x"}}}, "must be ok, empty"),
        ({"argv": ["git"], "env": {"A B": "x"}}, "is not the name of an environment variable"),
        ({"argv": ["git", "{ref}"], "parameters": {"reff": {}}}, "did you mean ref"),
        ({"argv": ["git", "{ref}"], "input_schema": {"type": "object"}}, "has no property 'ref'"),
        ({"argv": ["git", "${HOME}"]}, "in env only"),
    ],
)  # fmt: skip
def test_wrong_tools_are_refused(tool: dict[str, Any], said: str) -> None:
    """Each mistake is named at the door."""
    with pytest.raises(ConfigurationError, match=said):
        source_of("command", "cmd", {"tools": {"t": tool}})


async def test_a_file_has_tools(tmp_path: Path) -> None:
    """TOML, YAML and JSON say the same; directories count from the file, and settings beside it have precedence."""
    (tmp_path / "sub").mkdir()
    tool = python("import os; print(os.getcwd(), os.environ['A'])", cwd="sub")
    argv = json.dumps(tool["argv"])
    (tmp_path / "t.toml").write_text(f'env = {{A = "1"}}\n[tools.where]\nargv = {argv}\ncwd = "sub"\n')
    (tmp_path / "t.yaml").write_text(f"env: {{A: '1'}}\ntools:\n  where:\n    argv: {argv}\n    cwd: sub\n")
    (tmp_path / "t.json").write_text(json.dumps({"env": {"A": "1"}, "tools": {"where": tool}}))
    for name in ("t.toml", "t.yaml", "t.json"):
        made = SourceBackend("cmd", source_of("command", "cmd", {"file": str(tmp_path / name), "env": {"A": "2"}}))
        assert await made.call("where", ToolCall("cmd:where")) == f"{tmp_path / 'sub'} 2"
        await made.aclose()
    for text, said in (("tools: [", "t.yaml"), ("- 1", "mapping at its top"), ("tols: {}", "did you mean tools")):
        (tmp_path / "t.yaml").write_text(text)
        with pytest.raises(ConfigurationError, match=said):
            source_of("command", "cmd", {"file": str(tmp_path / "t.yaml")})
    with pytest.raises(ConfigurationError, match="cannot read"):
        source_of("command", "cmd", {"file": str(tmp_path / "no.toml")})


async def test_many_calls_at_once() -> None:
    """Calls do not disturb each other, and no process is left."""
    async with backend({"t": python("import sys; print(sys.argv[1])", "{n}")}) as made:
        answers = await asyncio.gather(*(made.call("t", ToolCall("cmd:t", {"n": str(n)})) for n in range(20)))
    assert answers == [str(n) for n in range(20)]


def alive(pid: int) -> bool:
    """Return whether a process runs; one that only waits to be reaped does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def test_the_repr_shows_no_environment() -> None:
    """Nor does that of the source's provider."""
    source = source_of("command", "cmd", {"tools": {"t": {"argv": ["git"]}}, "env": {"TOKEN": "s3cret-value"}})
    assert "s3cret" not in repr(vars(source))
