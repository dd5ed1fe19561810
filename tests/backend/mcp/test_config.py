"""What an MCPServer accepts, and what is read from the files of other programs."""

from __future__ import annotations

import json

import pytest

from toolexec.backend.mcp import MCPServer, read_mcp_servers
from toolexec.errors import ConfigurationError


@pytest.fixture
def read(tmp_path):
    def write_and_read(data):
        path = tmp_path / "mcp.json"
        path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
        return read_mcp_servers(path)

    return write_and_read


def test_claude_desktop(read):
    """Command, arguments and environment under `mcpServers`."""
    entry = {"command": "npx", "args": ["-y", "server", 3], "env": {"TOKEN": "abc", "PORT": 80, "DEBUG": True}}
    (server,) = read({"mcpServers": {"files": entry}, "globalShortcut": "x"})
    assert (server.name, server.command, server.args) == ("files", "npx", ("-y", "server", "3"))
    assert server.env == {"TOKEN": "abc", "PORT": "80", "DEBUG": "true"}


def test_cursor(read):
    """A URL with headers, and keys that only Cursor knows."""
    entry = {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer x"}, "alwaysAllow": ["a"]}
    (server,) = read({"mcpServers": {"web": entry}})
    assert (server.url, server.transport) == ("https://example.com/mcp", "auto")
    assert server.headers == {"Authorization": "Bearer x"}


def test_vs_code(read):
    """The map is called `servers`, and the type is given."""
    servers = read(
        {
            "inputs": [],
            "servers": {
                "a": {"type": "stdio", "command": "a"},
                "b": {"type": "http", "url": "http://localhost/mcp"},
                "c": {"type": "sse", "url": "http://localhost/sse"},
            },
        }
    )
    assert [server.transport for server in servers] == ["stdio", "http", "sse"]


def test_vs_code_user_settings(read):
    """In VS Code's settings.json the map is under `mcp`."""
    (server,) = read({"editor.fontSize": 12, "mcp": {"servers": {"a": {"command": "a"}}}})
    assert server.name == "a"


@pytest.mark.parametrize("key", ["serverUrl", "httpUrl"])
def test_other_names_for_the_url(read, key):
    """Windsurf and Gemini call the URL otherwise."""
    (server,) = read({"mcpServers": {"a": {key: "http://localhost/mcp"}}})
    assert server.url == "http://localhost/mcp"


@pytest.mark.parametrize("kind", ["http", "streamable-http", "streamableHttp", "streamable_http"])
@pytest.mark.parametrize("key", ["type", "transport", "transportType"])
def test_spellings_of_the_transport(read, key, kind):
    """Programs do not agree on what streamable HTTP is called."""
    (server,) = read({"mcpServers": {"a": {key: kind, "url": "http://localhost/mcp"}}})
    assert server.transport == "http"


@pytest.mark.parametrize("entry", [{"disabled": True}, {"enabled": False}])
def test_disabled_servers_are_read_as_disabled(read, entry):
    """A server that is switched off is known, but not enabled."""
    (server,) = read({"mcpServers": {"a": {"command": "a", **entry}}})
    assert not server.enabled


def test_names_are_made_legal(read):
    """A name that cannot be part of an ID becomes the nearest one that can."""
    (server,) = read({"mcpServers": {"@scope/my server": {"command": "a"}}})
    assert server.name == "scope-my-server"


def test_a_relative_cwd_counts_from_the_file(read, tmp_path):
    """The directory is the file's, not the one that the program happens to run in."""
    (server,) = read({"mcpServers": {"a": {"command": "a", "cwd": "sub"}}})
    assert server.cwd == tmp_path / "sub"


def test_our_own_settings_can_be_in_the_file(read):
    """Times, budget and namespace are read too."""
    entry = {"command": "a", "connect_timeout": 3, "max_restarts": 1, "stop_timeout": 0.5, "namespace": "n"}
    (server,) = read({"mcpServers": {"a": entry}})
    assert (server.connect_timeout, server.max_restarts, server.namespace) == (3, 1, "n")


def test_a_byte_order_mark_is_skipped(tmp_path):
    """Some editors put one in front."""
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "a"}}}', encoding="utf-8-sig")
    assert read_mcp_servers(path)[0].name == "a"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ([], 'no "mcpServers" object'),
        ({"mcp": 5}, 'no "mcpServers" object'),
        ({"mcpServers": []}, 'no "mcpServers" object'),
        ({"mcpServers": {"a": "npx"}}, "server 'a' must be an object"),
        ({"mcpServers": {"a": {"comand": "x"}}}, "unknown key 'comand'; did you mean 'command'?"),
        ({"mcpServers": {"a": {"command": "x", "arg": []}}}, "did you mean 'args'?"),
        ({"mcpServers": {"a": {"command": 5}}}, "command must be of type str"),
        ({"mcpServers": {"a": {"url": 5}}}, "url must be of type str"),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, "args must be of type list"),
        ({"mcpServers": {"a": {"command": "x", "args": [[]]}}}, "args must be a list of strings"),
        ({"mcpServers": {"a": {"command": "x", "env": {"A": None}}}}, "env must map names to strings"),
        ({"mcpServers": {"a": {"type": "ftp", "command": "x"}}}, "unknown type 'ftp'; use http"),
        ({"mcpServers": {"a": {"type": ["http"], "command": "x"}}}, "unknown type"),
        ({"mcpServers": {"a": {}}}, "either a command or a url"),
        ({"mcpServers": {"a": {"command": "x", "connect_timeout": "soon"}}}, "server 'a'"),
        ({"mcpServers": {"a b": {"command": "x"}, "a-b": {"command": "y"}}}, "several servers would be called a-b"),
        ({"mcpServers": {"::": {"command": "x"}}}, "name is empty"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(read, data, said):
    """The message names the file, the server and what is wrong."""
    with pytest.raises(ConfigurationError) as caught:
        read(data)
    assert said in str(caught.value)
    assert "mcp.json" in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    """A path that leads nowhere is said to."""
    with pytest.raises(ConfigurationError, match=r"cannot read .*missing\.json: No such file"):
        read_mcp_servers(tmp_path / "missing.json")


def test_keys_of_other_programs_are_ignored(read):
    """Ignores a key that is not close to any of ours."""
    (server,) = read({"mcpServers": {"a": {"command": "x", "disabledTools": [], "x-custom": 1, "timeout": 60}}})
    assert server.command == "x"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "either a command or a url"),
        ({"command": "a", "url": "http://b"}, "either a command or a url"),
        ({"command": "a", "name": "a:b"}, "its name"),
        ({"command": "a", "namespace": "a b"}, "its namespace"),
        ({"command": "a", "args": "-v"}, "args must be a list of strings"),
        ({"command": "a", "args": [1]}, "args[0] must be a string"),
        ({"command": "a", "env": {"A": 1}}, "env['A'] must be a string"),
        ({"url": "http://a", "headers": {"A": 1}}, "headers['A'] must be a string"),
        ({"command": "a", "transport": "ftp"}, "must be one of auto, stdio, http, sse"),
        ({"command": "a", "transport": "http"}, "a command speaks stdio"),
        ({"url": "http://a", "transport": "stdio"}, "the url must be"),
        ({"url": "ftp://a"}, "the url must be"),
        ({"url": "http://"}, "the url must be"),
        ({"url": "http://[::1"}, "the url must be"),
        ({"command": "a", "connect_timeout": 0}, "connect_timeout must be above 0"),
        ({"command": "a", "stop_timeout": float("nan")}, "stop_timeout must be a number"),
        ({"command": "a", "max_restarts": -1}, "max_restarts must be 0 or more"),
    ],
)
def test_a_server_that_cannot_work_is_refused(settings, said):
    """Nothing is started or connected for it."""
    with pytest.raises(ConfigurationError, match="MCP server") as caught:
        MCPServer(**{"name": "s", **settings})
    assert said in str(caught.value)


def test_the_repr_shows_no_secrets():
    """Arguments, environment, headers, passwords and queries stay out of logs."""
    servers = [
        MCPServer(name="a", command="npx", args=["--key", "secret1"], env={"KEY": "secret2"}),
        MCPServer(name="b", url="https://me:secret3@example.com:444/mcp?key=secret4#x", headers={"K": "secret5"}),
    ]
    assert "secret" not in repr(servers)
    assert repr(servers[1]) == "MCPServer(name='b', url='https://example.com:444/mcp', transport='auto')"


def test_redacting_covers_what_is_configured():
    """Values of env, headers and URL are replaced; short ones, which say nothing, are left alone."""
    server = MCPServer(
        name="b",
        url="https://u:password1@[::1]/mcp?key=querykey1",
        headers={"Authorization": "Bearer tokentoken"},
        env={"A": "1"},
    )
    text = server.redact("1 Bearer tokentoken; tokentoken at https://u:password1@[::1]/mcp?key=querykey1 or querykey1")
    assert text == "1 ***; *** at https://u:***@[::1]/mcp?*** or ***"
    assert server.location == "https://[::1]/mcp"
