"""From settings to an Exec with its tools and its gate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec
from toolexec.config.build import Built, build, state_directory
from toolexec.config.load import load_settings
from toolexec.errors import (
    ApprovalDeniedError,
    ApprovalRequiredError,
    ConfigurationError,
    PolicyError,
    RateLimitedError,
)
from toolexec.model.origin import ApprovalRequest, Origin, acting
from toolexec.run.tokens import exact

TOOLS = "from toolexec import tool\n@tool(namespace='own')\ndef add(a: int, b: int = 1) -> int:\n    return a + b\n"
OWN_EXEC = "from toolexec import Exec\nex = Exec(default_timeout=7)\nex.add(lambda a: a, 'own:same')\n"
OWN_GATE = """
from toolexec import Exec
from toolexec.run.gate import Gate
from toolexec.run.policy import Policy
ex = Exec(gate=Gate(policy=Policy(default="deny")))
ex.add(lambda a: a, 'own:same')
"""


def built(text: str, *, python: str = TOOLS, **more: Any) -> Built:
    """Build an Exec of these settings, with a Python file of tools."""
    Path("mine_for_build.py").write_text(python)
    Path("a.toml").write_text(text)
    return build(load_settings(["a.toml", "mine_for_build.py"], environment=more.pop("environment", {})), **more)


def parts(result: Built) -> list[str]:
    """The parts of the gate that are there."""
    names = ("telemetry", "audit", "budget", "policy", "pinning", "approval", "rate_limit")
    return [name for name in names if getattr(result.gate, name, None) is not None]


def test_without_settings_there_is_no_gate() -> None:
    """A command other than serve is as free as before."""
    assert built("").gate is None
    assert not state_directory().exists()


def test_a_server_has_a_gate_without_any_settings() -> None:
    """Policy, approval, audit, pins and a budget; the files are for their owner alone."""
    result = built("", serving=True)
    assert parts(result) == ["audit", "budget", "policy", "pinning", "approval"]
    assert result.gate is not None
    assert result.gate.policy.remote_destructive == "ask"  # type: ignore[union-attr]
    assert state_directory().stat().st_mode & 0o077 == 0
    assert (state_directory() / "audit.jsonl").stat().st_mode & 0o077 == 0
    assert result.gate.budget.store is result.results  # type: ignore[union-attr]
    result.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[policy]\ndefault = 'deny'", ["policy", "approval"]),
        ("[approval]\ntimeout = 5", ["policy", "approval"]),
        ("[audit]\npath = 'log.db'", ["audit", "policy", "approval"]),
        ("[pinning]\naccept_first = false", ["policy", "pinning", "approval"]),
        ("[results]\nmax_bytes = 2000", ["budget", "policy", "approval"]),
        ("[context]\nmax_result_tokens = 2000", ["budget", "policy", "approval"]),
        ("[context]\nmax_session_tokens = 2000", []),
        ("[limits]\nrate_per_tool = '5/min'", ["policy", "approval", "rate_limit"]),
        ("[telemetry]\nenabled = true", ["telemetry", "policy", "approval"]),
        ("[audit]\nenabled = false\n[pinning]\nenabled = false\n[telemetry]\nrecord_args = true", []),
    ],
)
def test_a_block_brings_its_part(text: str, expected: list[str]) -> None:
    """A block brings its part for commands other than serve, too."""
    result = built(text)
    assert parts(result) == expected
    result.close()


def test_budgets_of_tokens_reach_what_holds_them() -> None:
    """The limit of a result is that of the store, which counts as conversations are counted; the others are the
    meter's."""
    text = (
        "[context]\ncount = 'exact'\nmax_session_tokens = 9\nmax_caller_tokens = 8\nmax_result_tokens = 7\nidle = '5m'"
    )
    result = built(text, serving=True)
    assert (result.results.max_tokens, result.results.tokens) == (7, exact)
    settings = result.ex.meter.settings
    assert (settings.count, settings.max_session_tokens, settings.max_caller_tokens) == ("exact", 9, 8)
    assert settings.idle == 300
    result.close()


def test_a_server_can_have_parts_switched_off() -> None:
    """By any layer."""
    off = {"TOOLEXEC_AUDIT__ENABLED": "false", "TOOLEXEC_PINNING__ENABLED": "no"}
    result = built("", serving=True, environment=off)
    assert parts(result) == ["budget", "policy", "approval"]
    assert result.audit is None


def test_settings_become_options() -> None:
    """Zero means no limit."""
    text = "[limits]\ncall_timeout = 0\nmax_tool_calls = 7\nmemory = '64M'\ncpus = 1.5\n[code]\nprofile = 'hardened'\nenabled = false"
    options = built(text).ex.options
    assert options.default_timeout is None
    assert options.max_tool_calls == 7
    assert options.code_limits.memory_bytes == 64 * 1024**2
    assert options.code_limits.cpus == 1.5
    assert (options.security_profile, options.enable_code_execution) == ("hardened", False)


@pytest.mark.parametrize(
    ("text", "calls", "ceiling"),
    [
        ("", 100, 0),
        ("[limits]\ndefault_tool_calls = 5", 5, 0),
        ("[limits]\nmax_tool_calls = 500", 500, 500),
        ("[limits]\ndefault_tool_calls = 5\nmax_tool_calls = 500", 5, 500),
    ],
)
def test_a_default_of_calls_is_no_ceiling(text: str, calls: int, ceiling: int) -> None:
    """The number for runs that ask for none, and the most that may be asked for, are two settings."""
    options = built(text).ex.options
    assert (options.tool_calls, options.max_tool_calls) == (calls, ceiling)


async def test_a_rule_holds_and_is_audited() -> None:
    """The whole way from a file to a refused call and its line in the log."""
    result = built(
        '[[policy.rules]]\neffect = "deny"\ntools = ["own:add"]\nwhen = { a = { above = 5 } }\n[audit]\npath = "log.jsonl"\nargs = "redacted"'
    )
    async with result.ex as ex:
        assert (await ex.run_tool("own:add", {"a": 5})).value == 6
        with pytest.raises(PolicyError):
            await ex.run_tool("own:add", {"a": 6})
    result.close()
    records = [json.loads(line) for line in Path("log.jsonl").read_text().splitlines()]
    outcomes = [record["outcome"] for record in records if "outcome" in record]
    assert outcomes == ["ok", "policy_denied"]


async def test_a_rate_holds() -> None:
    """Written as a text with its burst."""
    async with built("[limits]\nrate = '1/hour burst 2'").ex as ex:
        for _ in range(2):
            await ex.run_tool("own:add", {"a": 1})
        with pytest.raises(RateLimitedError):
            await ex.run_tool("own:add", {"a": 1})


ASK = '[policy]\ndefault = "ask"\n[approval]\n'


async def ask_in(result: Built) -> tuple[list[str], Any]:
    """Return who was asked for approval, and the outcome, for a caller that could be asked."""
    asked: list[str] = []

    def client(request: ApprovalRequest) -> str:
        asked.append("client")
        return "once"

    async with result.ex as ex:
        with acting(Origin(ask=client)):  # type: ignore[arg-type]
            value = (await ex.run_tool("own:add", {"a": 1})).value
    return asked, value


async def test_the_client_is_asked() -> None:
    """That is the usual way of a server."""
    assert await ask_in(built(ASK)) == (["client"], 2)
    assert await ask_in(built(ASK + 'mode = "client"')) == (["client"], 2)


async def test_with_mode_terminal_only_the_terminal_is_asked() -> None:
    """Whatever the client offers: it is not the one that is trusted."""
    shown: list[str] = []

    def terminal() -> Any:
        def ask(request: ApprovalRequest) -> str:
            shown.append(request.tool_id)
            return "once"

        return ask

    asked, value = await ask_in(built(ASK + 'mode = "terminal"', terminal=terminal))
    assert (asked, value, shown) == ([], 2, ["own:add"])


async def test_with_mode_none_nobody_is_asked() -> None:
    """With mode none there is no question, and the answer is no."""
    with pytest.raises(ApprovalRequiredError):
        await ask_in(built(ASK + 'mode = "none"', terminal=lambda: lambda _: "once"))


@pytest.mark.parametrize("terminal", [None, lambda: None])
def test_mode_terminal_needs_one(terminal: Any) -> None:
    """Rather than to refuse every call later."""
    with pytest.raises(ConfigurationError, match="there is no terminal"):
        built(ASK + 'mode = "terminal"', terminal=terminal)


async def test_answers_for_good_are_kept_in_the_file() -> None:
    """The one that the settings name."""
    result = built(ASK + 'remember = "kept.json"')
    async with result.ex as ex:
        with acting(Origin(ask=lambda _: "always")):
            await ex.run_tool("own:add", {"a": 1})
    assert "own:add" in Path("kept.json").read_text()


async def test_an_exec_of_a_file_keeps_its_options_and_gets_the_gate() -> None:
    """An option that the file's author has set wins over the configuration."""
    result = built("[policy]\ndefault = 'deny'", python=OWN_EXEC)
    assert result.ex.options.default_timeout == 7
    async with result.ex as ex:
        with pytest.raises(PolicyError):
            await ex.run_tool("own:same", {"a": 1})
    assert built("[limits]\ncall_timeout = 3", python=OWN_EXEC).ex.options.default_timeout == 3


def test_an_exec_of_a_file_is_used_as_it_is_without_settings() -> None:
    """The very object, so that what its file does with it later is seen."""
    import sys

    result = built("", python=OWN_EXEC)
    assert result.ex is sys.modules["mine_for_build"].ex  # type: ignore[attr-defined]


async def test_an_exec_with_a_gate_of_its_own_keeps_it() -> None:
    """An Exec keeps its own gate even where it is served."""
    result = built("", python=OWN_GATE, serving=True)
    assert result.gate is result.ex.options.gate
    assert result.audit is None
    async with result.ex as ex:
        with pytest.raises(PolicyError):
            await ex.run_tool("own:same", {"a": 1})


def test_two_gates_are_refused() -> None:
    """The message names what is in the way."""
    with pytest.raises(
        ConfigurationError, match=r"mine_for_build\.py has an Exec with a gate of its own.*\[policy\], \[limits\.rate\]"
    ):
        built("[policy]\ndefault = 'deny'\n[limits]\nrate = 5", python=OWN_GATE)


async def test_every_call_is_received() -> None:
    """By the hook of the file's own Exec, too."""
    python = (
        "from toolexec import Exec\nreceived = []\nex = Exec(trace=received.append)\nex.add(lambda a: a, 'own:same')\n"
    )
    for source, tool in ((TOOLS, "own:add"), (OWN_EXEC, "own:same"), (python, "own:same")):
        import sys

        sys.modules.pop("mine_for_build", None)
        received: list[Any] = []
        result = built("", python=source, trace=received.append)
        async with result.ex as ex:
            await ex.run_tool(tool, {"a": 1})
        assert len(received) == 2
        assert len(getattr(sys.modules["mine_for_build"], "received", received)) == 2


def test_servers_are_added_with_their_place() -> None:
    """A name that a Python file has already is told with the line of the file."""
    python = "from toolexec import Exec\nex = Exec()\nex.add_mcp('x', command='nothing')\n"
    result = built("[mcpServers.y]\ncommand = 'z'", python=python)
    assert set(result.ex.backends.names()) == {"local", "x", "y"}
    with pytest.raises(ConfigurationError, match=r"a\.toml:1: a backend named x"):
        built(
            "[audit]\npath = 'log.jsonl'\n[mcpServers.x]\ncommand = 'z'".replace("[audit]\npath = 'log.jsonl'\n", ""),
            python=python,
        )


def test_a_log_is_closed_when_building_fails() -> None:
    """Nothing is left open."""
    python = "from toolexec import Exec\nex = Exec()\nex.add_mcp('x', command='nothing')\n"
    with pytest.raises(ConfigurationError, match="a backend named x"):
        built("[audit]\npath = 'log.jsonl'\n[mcpServers.x]\ncommand = 'z'", python=python)


def test_the_settings_of_the_server_are_made() -> None:
    """With those of HTTP and of authentication in them."""
    text = """
    [server]
    transport = "sse"
    port = 0
    name = "mine"
    [auth]
    api_keys = [{ id = "a", sha256 = "%s", roles = ["r"], expires = 2100-01-31 }]
    resource_url = "https://x.example.com/mcp"
    [auth.jwt]
    issuer = "me"
    jwks_file = "keys.json"
    """ % ("ab" * 32)
    serve = built(text).serve
    assert (serve.name, serve.transport, serve.http.sse, serve.http.port) == ("mine", "sse", True, 0)
    assert serve.auth.api_keys[0].roles == ("r",)
    assert serve.auth.jwt.jwks_file == "keys.json"
    assert serve.auth.audience == "https://x.example.com/mcp"


def test_python_modules_are_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and modules, together; what cannot be imported is told."""
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("tools_of_a_module.py").write_text("from toolexec import tool\n@tool\ndef one() -> int:\n    return 1\n")
    Path("broken_module.py").write_text("import no_such_thing_at_all\n")
    Path("stopping_module.py").write_text("raise KeyboardInterrupt\n")
    result = built('[sources]\npython = ["tools_of_a_module"]')
    assert {entry.tool.id for entry in result.ex.index.tools()} == {"own:add", "one"}
    with pytest.raises(ConfigurationError, match="there is no Python module nothing_here"):
        built('[sources]\npython = ["nothing_here.at_all"]')
    with pytest.raises(ConfigurationError, match=r"broken_module: ModuleNotFoundError: .*no_such_thing"):
        built('[sources]\npython = ["broken_module"]')
    with pytest.raises(ConfigurationError, match=r"ValueError|TypeError|ImportError"):
        built('[sources]\npython = [".relative"]')
    with pytest.raises(KeyboardInterrupt):
        built('[sources]\npython = ["stopping_module"]')


def test_the_state_directory_follows_the_convention() -> None:
    """$XDG_STATE_HOME where that is a whole path, else the usual place in the home directory."""
    assert state_directory({"XDG_STATE_HOME": "/x"}) == Path("/x/toolexec")
    for environment in ({}, {"XDG_STATE_HOME": "relative"}):
        assert state_directory(environment) == Path.home() / ".local/state/toolexec"


def test_a_plain_exec_stays_light() -> None:
    """An Exec without settings for a gate has the default one only."""
    assert Exec().options.own_gate is None


def test_the_audit_log_has_a_key(tmp_path: Path) -> None:
    """`audit.key_file` names a file with the key; one that is not there is a mistake."""
    from toolexec.config.load import load_settings
    from toolexec.run.audit.verify import verify

    config = tmp_path / "toolexec.json"
    (tmp_path / "key").write_text(" 0123456789abcdef0123456789abcdef \n")
    settings = {"audit": {"path": str(tmp_path / "audit.jsonl"), "key_file": str(tmp_path / "key")}}
    config.write_text(json.dumps(settings))
    built = build(load_settings([config]), state=tmp_path)
    built.close()
    assert verify(tmp_path / "audit.jsonl", b"0123456789abcdef0123456789abcdef").problems == ()
    assert verify(tmp_path / "audit.jsonl", b"another key of 16 bytes or more").problems
    (tmp_path / "key").unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        build(load_settings([config]), state=tmp_path)


def test_where_tasks_are_kept(tmp_path: Path) -> None:
    """Tasks are kept in the state directory, or in the file that the settings name."""
    assert built("", state=tmp_path).serve.tasks.path == str(tmp_path / "tasks.db")
    assert built('[tasks]\npath = "/x/own.db"\nmode = "never"\n', state=tmp_path).serve.tasks.path == "/x/own.db"


DELETING = '[providers.shop]\nkind = "http"\nbase_url = "http://127.0.0.1:9"\n[providers.shop.tools.clear]\npath = "/items"\nmethod = "DELETE"\n'


@pytest.mark.parametrize("more", ["", "[audit]\npath = 'log.jsonl'\n", "[limits]\nrate = '9/s'\n"])
async def test_commands_ask_at_the_terminal_before_they_destroy(more: str) -> None:
    """Whatever else is configured, a marked tool is not called unasked: without a terminal it is refused."""
    shown: list[str] = []

    def terminal() -> Any:
        def ask(request: ApprovalRequest) -> str:
            shown.append(request.tool_id)
            return "no"

        return ask

    async with built(DELETING + more).ex as ex:
        with pytest.raises(ApprovalRequiredError, match=r'effect = "allow" and tools = \["shop:clear"\]'):
            await ex.run_tool("shop:clear")
    async with built(DELETING + more, terminal=terminal).ex as ex:
        with pytest.raises(ApprovalDeniedError):
            await ex.run_tool("shop:clear")
    assert shown == ["shop:clear"]


async def test_a_file_may_switch_the_default_off() -> None:
    """gate=None of an Exec in a Python file stays, but not where it is served."""
    python = "from toolexec import Exec\nex = Exec(gate=None)\n"
    assert built("", python=python).ex.options.gate is None
    assert built("", python=python, serving=True).gate is not None
