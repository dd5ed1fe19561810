"""`toolexec serve` as a process: what it says where, how it ends, and that nothing holds it up."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.models
from tests.config.commands import COMMAND, call
from tests.servers import server_environment

from toolexec.cli import serve as module
from toolexec.cli.serve import FLAGS, load_for_serving, serve
from toolexec.config.blocks import KEYS
from toolexec.config.template import toml_value
from toolexec.errors import ConfigurationError

TOOLS = "import os\nfrom toolexec import tool\nprint('printed while loading')\nos.system('echo from a child')\n"
TOOLS += "@tool\ndef one() -> int:\n    print('printed while running')\n    return 1\n"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written outside of the test's directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@contextmanager
def serving(*words: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A server as a process; it is stopped at the end if it still runs."""
    process = subprocess.Popen(
        [*COMMAND, "serve", *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=server_environment(**environment),
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


def first_line(process: subprocess.Popen[str]) -> str:
    """Wait for the line of stderr that says what is served; a server that ends before it is a failure."""
    assert process.stderr is not None
    before: list[str] = []
    while line := process.stderr.readline():
        if "serving" in line:
            return line
        before.append(line)
    raise AssertionError(f"the server ended: {''.join(before)}")


def ask(process: subprocess.Popen[str], message: dict[str, Any]) -> dict[str, Any]:
    """Send a request over stdin and read lines of stdout up to its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()
    while True:
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr is not None else ""
        answer = json.loads(line)
        if answer.get("id") == message["id"]:
            return answer


def tool_call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.full
def test_stdout_has_the_protocol_and_nothing_else(tmp_path: Path) -> None:
    """Whatever tools, their files and their children print; closing stdin ends it with 0."""
    file = tmp_path / "app_that_prints.py"
    file.write_text(TOOLS)
    with serving("-c", file) as process:
        assert ask(process, HELLO)["result"]["serverInfo"]["name"] == "toolexec"
        answer = ask(process, tool_call("run_tool", tool_id="one"))
        assert '"structured":1' in json.dumps(answer, separators=(",", ":"))
        code, out, err = finish(process)
    assert code == 0
    assert [line for line in out.splitlines() if "jsonrpc" not in line] == []
    for text in ("printed while loading", "from a child", "printed while running", "serving 1 tool over stdio"):
        assert text in err
    assert (tmp_path / "state/toolexec/audit.jsonl").read_text().count('"tool":"one"') >= 1


@pytest.mark.full
def test_dead_backends_hold_nothing_up(tmp_path: Path) -> None:
    """Answers at once, and names the dead backends on stderr; the others work."""
    dead = {f"dead{n}": {"command": f"no-such-command-{n}"} for n in range(4)}
    dead["dead4"] = {"url": "http://127.0.0.1:9/mcp"}  # type: ignore[dict-item]
    live = {"time": {"command": sys.executable, "args": ["-P", "-m", "mcp_server_time"]}}
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {**dead, **live}}))
    with serving("-c", file) as process:
        ask(process, HELLO)
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(6)]
        answer = ask(process, tool_call("list_backends"))
        code, _, _ = finish(process)
    assert lines[0] == "serving 6 MCP servers over stdio (--expose auto)\n"
    told = sorted(match[1] for line in lines[1:] if (match := re.match(r"warning: (\w+) is unavailable: ", line)))
    assert told == sorted(dead)
    states = {each["name"]: each["available"] for each in answer["result"]["structuredContent"]["backends"]}
    assert states == {"local": True, "time": True, **dict.fromkeys(dead, False)}
    assert code == 0


@pytest.mark.full
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_signal_ends_it_in_good_order(tools_file: Path, number: int, code: int, transport: str) -> None:
    """With the exit code of a signal, without a traceback."""
    with serving("-c", tools_file, "--transport", transport, "--port", "0") as process:
        first_line(process)
        if transport == "stdio":
            ask(process, HELLO)
        process.send_signal(number)
        found, out, err = finish(process)
    assert (found, out) == (code, "")
    assert "Traceback" not in err


def test_http_is_served_with_health_and_metrics(tools_file: Path) -> None:
    """The address, with the port that was free, is on stderr; stdout stays empty."""
    with serving("-c", tools_file, "-t", "http", "-p", "0", "--set", "server.path=/tools") as process:
        line = first_line(process)
        address = re.search(r"at (http://127\.0\.0\.1:\d+)/tools ", line)
        assert address is not None, line
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        request = urllib.request.Request(f"{address[1]}/tools", json.dumps(HELLO).encode(), headers)
        with urllib.request.urlopen(request) as reply:
            assert b'"protocolVersion":"2025-11-25"' in reply.read()
        for path, text in (("/healthz", b"OK"), ("/readyz", b"OK"), ("/metrics", b"toolexec_calls_total")):
            with urllib.request.urlopen(address[1] + path) as reply:
                assert text in reply.read()
        process.terminate()
        _, out, _ = finish(process)
    assert out == ""


@pytest.mark.full
def test_a_missing_required_backend_shows(tools_file: Path) -> None:
    """As the settings name it."""
    with serving("-c", tools_file, "-t", "http", "-p", "0", "--set", 'http.required_backends=["gone"]') as process:
        line = first_line(process)
        address = re.search(r"http://[\d.:]+", line)
        assert address is not None
        with pytest.raises(urllib.error.HTTPError, match="503") as caught:
            urllib.request.urlopen(f"{address[0]}/readyz")
        caught.value.close()
        process.terminate()
        finish(process)


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-t", "http", "--host", "0.0.0.0"], "without authentication would let anybody run your tools"),
        (
            ["--set", "limits.max_tol_calls=1"],
            "--set limits.max_tol_calls: unknown key limits.max_tol_calls; did you mean max_tool_calls?",
        ),
        (["--port", "70000"], "--port: server.port must be an integer, 0 to 65535, not 70000"),
        (["--set", "x"], "write it as KEY=VALUE"),
        (["-t", "http", "--tls-cert", "gone.pem", "--port", "0"], "tls_cert or tls_key cannot be used"),
        (["--set", "audit.path=."], "audit"),
    ],
)
def test_what_makes_no_sense_is_refused(tools_file: Path, words: list[str], message: str) -> None:
    """On stderr, before anything is served."""
    with serving("-c", tools_file, *words) as process:
        code, out, err = finish(process)
    assert message in err
    assert code in (2, 3)
    assert code == 2 or "audit" in words[1]
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.full
def test_without_tools_it_says_where_they_could_come_from() -> None:
    """As every command does; a variable may bring some."""
    with serving() as process:
        code, out, err = finish(process)
    assert (code, out) == (2, "")
    assert "no tools: say where they come from" in err
    with serving(TOOLEXEC_MCPSERVERS__DEAD='{"command": "no-such-command"}') as process:
        ask(process, HELLO)
        code, _, err = finish(process)
    assert code == 0
    assert "serving 1 MCP server" in err


@pytest.mark.full
def test_a_default_file_is_named(tmp_path: Path) -> None:
    """Names the default file, so that it is clear where the tools come from."""
    (tmp_path / "toolexec.toml").write_text('[server]\nexpose = "code"\n')
    with serving() as process:
        tools = ask(process, HELLO) and ask(process, {"jsonrpc": "2.0", "id": 3, "method": "tools/list"})
        _, _, err = finish(process)
    assert {tool["name"] for tool in tools["result"]["tools"]} == {"find", "execute"}
    assert "using toolexec.toml (override with -c)" in err


@pytest.mark.full
def test_a_bug_is_told_as_one(tmp_path: Path) -> None:
    """With its traceback, and the exit code of what could not be run."""
    (tmp_path / "app.py").write_text(
        "from toolexec.config import build\nbuild.Built.serve = property(lambda _: 1 / 0)\nfrom toolexec import tool\n@tool\ndef f() -> int:\n    return 1\n"
    )
    with serving("-c", "app.py") as process:
        code, out, err = finish(process)
    assert (code, out) == (3, "")
    assert "ZeroDivisionError" in err
    assert "this is a bug of toolexec" in err


# -- in this process ---------------------------------------------------------------------------------------------------


def test_the_options_say_what_the_settings_say() -> None:
    """Their help and defaults are those of the one list of settings."""
    hints = inspect.get_annotations(serve, eval_str=True, globals=vars(module))
    parameters = inspect.signature(serve).parameters
    assert set(FLAGS) <= set(parameters)
    for option, path in FLAGS.items():
        assert parameters[option].default is None  # else a flag could not be told from its absence
        info = next(each for each in get_args(hints[option]) if isinstance(each, typer.models.OptionInfo))
        assert info.help == KEYS[path].help
        if isinstance(info.show_default, str):
            assert info.show_default == toml_value(KEYS[path].default).strip('"')


def test_a_named_option_counts_also_with_its_default(tmp_path: Path) -> None:
    """More than the file, the variable and `--set`."""
    (tmp_path / "a.toml").write_text('[server]\ntransport = "http"\nport = 1\n[http]\nbehind_proxy = true\n')
    given = dict.fromkeys(FLAGS) | {"transport": "stdio", "port": 8080, "behind_proxy": False}
    loaded = load_for_serving((tmp_path / "a.toml",), given, ["server.port=5", "server.name=x"])
    assert (loaded.settings.server.transport, loaded.settings.server.port, loaded.settings.server.name) == (
        "stdio",
        8080,
        "x",
    )
    assert loaded.origins["http.behind_proxy"] == "--behind-proxy"
    assert loaded.origins["server.name"] == "--set server.name"


def test_tools_are_needed_only_to_serve() -> None:
    """To show settings, none are."""
    assert load_for_serving((), {}, [], tools_needed=False).files == ()
    with pytest.raises(ConfigurationError, match="no tools"):
        load_for_serving((), {}, [])


def test_log_lines_are_clean(capsys: pytest.CaptureFixture[str]) -> None:
    """Log lines are without secrets, and show escape sequences as such, of the level that was chosen; afterwards all is as before."""
    from toolexec.model.redaction import redactor

    redactor.add("hush-hush-hush")
    logger = logging.getLogger("toolexec.test")
    parent = logging.getLogger("toolexec")
    before = (parent.level, parent.propagate, list(parent.handlers))
    with module.logged("info"):
        logger.info("token hush-hush-hush \x1b[31mred\nsecond")
        logger.debug("not this")
    assert capsys.readouterr().err == "info: token [REDACTED] \\x1b[31mred second\n"
    assert (parent.level, parent.propagate, list(parent.handlers)) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_ends_the_work(number: int, code: int) -> None:
    """Afterwards signals do again what they did before."""

    async def work() -> None:
        os.kill(os.getpid(), number)
        await asyncio.sleep(60)

    before = signal.getsignal(number)
    assert asyncio.run(module._until_signal(work())) == code
    assert signal.getsignal(number) == before


def test_how_the_work_ends_is_told() -> None:
    """By itself, with one error in a group, with several, or cancelled by another task."""

    async def fail(*errors: Exception) -> None:
        if errors:
            raise ExceptionGroup("several", errors)

    async def cancelled() -> None:
        raise asyncio.CancelledError

    assert asyncio.run(module._until_signal(fail())) == 0
    with pytest.raises(ConfigurationError, match="no such address"):
        asyncio.run(module._until_signal(fail(ConfigurationError("no such address"))))
    with pytest.raises(ExceptionGroup):
        asyncio.run(module._until_signal(fail(ValueError(), ValueError())))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(module._until_signal(cancelled()))


@pytest.mark.full
@pytest.mark.parametrize(("transport", "code"), [("http", 143), ("sse", 143), ("stdio", 0)])
def test_a_whole_run(
    tools_file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], transport: str, code: int
) -> None:
    """From the command to the end of the server: by a signal, or because stdin has ended."""
    say = module._Report.say

    def say_and_stop(self: Any, where: str) -> None:
        say(self, where)
        if transport != "stdio":
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(module._Report, "say", say_and_stop)
    gone = json.dumps({"command": "no-such-command"})
    done = call("serve", "-c", tools_file, "-t", transport, "-p", 0, TOOLEXEC_MCPSERVERS__GONE=gone)
    assert done.exit_code == code, done.output
    assert (
        f"serving 1 MCP server and 10 tools {'over stdio' if transport == 'stdio' else 'at http://127.0.0.1:'}"
        in done.stderr
    )
    assert "closed" not in done.stderr
    if transport != "stdio":  # there, stdout itself is not the one of this process
        assert "printed while loading" in capfd.readouterr().err + done.stderr


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConfigurationError("nothing fits"), 2, "error: nothing fits"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 3, ""),
        (ValueError("odd"), 3, "error: ValueError: odd; this is a bug of toolexec"),
    ],
)
def test_whatever_happens_has_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    """Every outcome has an exit code, and a message on stderr where the user can act on it."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(module, "load_for_serving", fail)
    done = call("serve")
    assert (done.exit_code, done.stdout) == (code, "")
    assert message in done.stderr


def test_a_usage_error_is_one() -> None:
    """The parser's own."""
    assert call("serve", "--transport", "carrier-pigeon").exit_code == 2
