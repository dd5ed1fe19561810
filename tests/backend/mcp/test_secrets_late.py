"""Servers whose configuration refers to secrets: resolved at each connect, and passed to no other party."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import threading
from pathlib import Path

import pytest
from tests.servers import server_environment

from toolexec.backend.mcp import MCPServer, read_mcp_servers
from toolexec.backend.secrets import SecretResolver
from toolexec.errors import (
    BackendUnavailableError,
    ConfigurationError,
    ConnectionLostError,
    RemoteToolError,
    SecretError,
)
from toolexec.model.call import ToolCall
from toolexec.model.origin import Caller, Origin, acting
from toolexec.model.redaction import REDACTED, Redactor

LEAKING = str(Path(__file__).parents[2] / "exec" / "leaking_server.py")
SECRET = "p1anted+Secret/Value=="


@pytest.fixture
def environment():
    return {"GH_TOKEN": SECRET, "PROJECT": "my-project"}


@pytest.fixture
def resolver(environment):
    return SecretResolver(environment=environment, redact=Redactor())


@pytest.fixture
def leaking(connect, resolver):
    """A backend for the leaking server, with one secret in its environment."""

    def make(secrets=resolver, value="${GH_TOKEN}", **settings):
        env = server_environment() | {"PLANTED_A": value}
        return connect([sys.executable, LEAKING, "stdio"], env=env, secrets=secrets, **settings)

    return make


async def call(backend, name, args=None, **settings):
    return await backend.call(name, ToolCall(f"s:{name}", args or {}, **settings))


def digest(value: str) -> dict[str, str]:
    return {"result": hashlib.sha256(value.encode()).hexdigest()}


# -- the configuration ---------------------------------------------------------------------------------------------


def test_every_field_is_filled_in(resolver):
    """References in command, args, env, cwd, url and headers are resolved together, and kept secret where they are."""
    server = MCPServer(
        name="s",
        command="run-${PROJECT}",
        args=("--project", "${PROJECT}", "$5"),
        env={"TOKEN": "secretref:env:GH_TOKEN"},
        cwd="${userHome}/x",
        secrets=resolver,
    )
    found = server.resolved()
    assert (found.command, found.args) == ("run-my-project", ("--project", "my-project", "$5"))
    assert found.env == {"TOKEN": SECRET}
    assert found.cwd == str(Path.home() / "x")
    assert (found.secrets, found.hidden) == (None, frozenset({SECRET}))
    assert server.env == {"TOKEN": "secretref:env:GH_TOKEN"}
    assert SECRET not in repr(found)
    assert found.redact(f"key {SECRET} for my-project") == "key *** for my-project"


def test_a_url_may_wait_for_its_reference(resolver):
    """A URL made of references is accepted when there is a resolver, and checked once they are filled in."""
    server = MCPServer(
        name="s",
        url="${WHERE:-https://h.test}/mcp?key=${GH_TOKEN}",
        headers={"A": "Bearer ${GH_TOKEN}"},
        secrets=resolver,
    )
    found = server.resolved()
    assert found.location == "https://h.test/mcp"
    assert found.headers == {"A": f"Bearer {SECRET}"}
    assert (
        MCPServer(name="s", url="http://[${ADDRESS}]/x", secrets=resolver).redact("at http://[${ADDRESS}]/x")
        == "at ***"
    )
    with pytest.raises(ConfigurationError, match="the url must be"):
        MCPServer(name="s", url="${GH_TOKEN}/mcp")
    with pytest.raises(ConfigurationError, match="the url must be") as caught:
        MCPServer(name="s", url="${GH_TOKEN}/mcp", secrets=resolver).resolved()
    assert SECRET not in str(caught.value)


def test_without_a_resolver_nothing_is_filled_in():
    """Strings are taken as they are."""
    server = MCPServer(name="s", command="c", args=("${HOME}", "secretref:env:HOME"))
    assert server.resolved() is server


def test_a_header_cannot_have_a_line_break(environment, resolver):
    """A secret that would end a header early is refused, without being shown."""
    environment["GH_TOKEN"] = f"{SECRET}\r\nX-Admin: 1"
    server = MCPServer(name="s", url="http://h.test/", headers={"A": "${GH_TOKEN}"}, secrets=resolver)
    with pytest.raises(SecretError, match=r"headers\.A: what was filled in has a line break") as caught:
        server.resolved()
    assert SECRET not in str(caught.value)


def test_a_secret_in_the_arguments_is_warned_of(resolver, caplog):
    """Other users see a process's arguments, so the log says which one to move."""
    MCPServer(name="s", command="c", args=("-t", "secretref:env:GH_TOKEN"), secrets=resolver).resolved()
    assert "args[1] holds a secret" in caplog.text
    assert SECRET not in caplog.text


def test_a_file_of_servers_with_references(tmp_path, resolver):
    """`read_mcp_servers` gives each server the resolver; a directory that begins with a reference is not relative to the file."""
    path = tmp_path / "mcp.json"
    entries = {
        "a": {"url": "${URL:-http://h.test/}"},
        "b": {"command": "c", "cwd": "${userHome}/w"},
        "d": {"command": "c", "cwd": "w"},
    }
    path.write_text(json.dumps({"mcpServers": entries}))
    found = [server.resolved() for server in read_mcp_servers(path, secrets=resolver)]
    assert found[0].url == "http://h.test/"
    assert [server.cwd for server in found[1:]] == [str(Path.home() / "w"), str(tmp_path / "w")]
    with pytest.raises(ConfigurationError, match="the url must be"):
        read_mcp_servers(path)


# -- connecting ----------------------------------------------------------------------------------------------------


@pytest.mark.full
async def test_the_server_gets_the_secret(leaking):
    """The process has the value in its environment; a backend that is not connected has not looked for it."""
    backend = leaking()
    assert (await call(backend, "digest", {"name": "PLANTED_A"})).structured == digest(SECRET)
    assert (await call(backend, "digest", {"name": "GH_TOKEN"})).structured == digest("")


@pytest.mark.full
async def test_a_changed_secret_is_used_after_the_next_connect(leaking, environment):
    """Each connect resolves again, also what a provider has been asked for before."""
    values = iter(["first-secret-value", "second-secret-value"])
    resolver = SecretResolver({"vault": lambda _: next(values)}, environment=environment, redact=Redactor())
    backend = leaking(resolver, "secretref:vault:x")
    assert (await call(backend, "digest", {"name": "PLANTED_A"})).structured == digest("first-secret-value")
    with pytest.raises(ConnectionLostError):
        await call(backend, "dying")
    assert (await call(backend, "digest", {"name": "PLANTED_A"})).structured == digest("second-secret-value")


@pytest.mark.full
async def test_a_missing_secret_makes_the_backend_unavailable(leaking, environment):
    """The reason names the server, the field and the variable; it is not tried again by itself, but at the next call."""
    del environment["GH_TOKEN"]
    backend = leaking()
    await backend.start()
    reason = "MCP server s: env.PLANTED_A: the environment variable GH_TOKEN is not set"
    assert backend.status().reason == reason
    assert backend.status().info == {"transport": "stdio", "restarts_left": 5, "last_error": reason}
    with pytest.raises(BackendUnavailableError, match=r"env\.PLANTED_A"):
        await call(backend, "described")
    environment["GH_TOKEN"] = SECRET
    assert (await call(backend, "digest", {"name": "PLANTED_A"})).structured == digest(SECRET)


async def test_a_provider_that_waits_for_ever(leaking, environment):
    """A keyring that waits for its owner takes no longer than a connect may, and holds up nothing else."""
    asked, go = threading.Event(), threading.Event()

    def vault(ref):
        asked.set()
        go.wait(60)
        return SECRET

    backend = leaking(SecretResolver({"vault": vault}, redact=Redactor()), "secretref:vault:x", connect_timeout=0.3)
    try:
        await backend.start()
        assert asked.is_set()
        assert backend.status().reason == "its secrets were not there within 0.3 s"
        await backend.aclose()
    finally:
        go.set()


# -- what a server says ----------------------------------------------------------------------------------------------


@pytest.mark.full
async def test_replies_come_without_the_secret(leaking):
    """Strings, structured values, errors, progress, descriptions: all that the server says has lost its own secret."""
    backend = leaking()
    received = []
    said = [
        await call(backend, "strings"),
        await call(backend, "nested"),
        await call(backend, "failing"),
        await call(backend, "telling", on_progress=received.append),
        await backend.list_tools(),
        backend.status(),
    ]
    with pytest.raises(RemoteToolError) as caught:
        await call(backend, "refusing")
    text = repr([*said, received, caught.value.to_dict(), str(caught.value.__cause__)])
    assert text.count(REDACTED) > 10
    assert "p1anted" not in text
    assert REDACTED in received[0].message
    assert caught.value.details["data"] == {"Sent": {"Authorization": [REDACTED]}}


@pytest.mark.full
async def test_what_a_process_leaves_behind_has_no_secret(leaking, caplog):
    """Neither its stderr, nor a line that is no message, nor any log."""
    caplog.set_level(logging.DEBUG)
    backend = leaking(max_restarts=0)
    with pytest.raises(ConnectionLostError) as caught:
        await call(backend, "dying")
    shown = f"{caught.value} {backend.status()} {caplog.text}"
    assert "the process exited with 3" in shown
    assert "fatal: ***" in shown
    assert "p1anted" not in shown


async def test_a_long_stderr_is_cut_outside_of_secrets(connect, resolver):
    """The shown part of a long stderr does not begin with half a secret."""
    code = "import os, sys; sys.stderr.write('x' * 50 + os.environ['T'] * 400); sys.exit(1)"
    backend = connect([sys.executable, "-c", code], env={"T": "${GH_TOKEN}"}, secrets=resolver, max_restarts=0)
    await backend.start()
    reason = backend.status().reason
    assert "the process exited with 1" in reason
    for size in range(5, len(SECRET)):
        assert SECRET[-size:] not in reason


@pytest.mark.full
async def test_a_backend_without_secrets_says_what_it_says(leaking):
    """Values that were given as they are stay in replies: who wrote them there knows what they are."""
    backend = leaking(None, "given-as-it-is")
    assert "given-as-it-is" in repr(await call(backend, "nested"))


@pytest.mark.full
async def test_headers_and_url_over_http(http_server, connect, resolver, caplog):
    """The header arrives, and neither it nor the URL is in a reply or in a log of the SDK and its HTTP client."""
    caplog.set_level(logging.DEBUG)
    server = http_server("http", "new")
    url = f"{server.url}?key=${{GH_TOKEN}}"
    backend = connect(url, headers={"X-Token": "Bearer ${GH_TOKEN}"}, secrets=resolver)
    assert (await call(backend, "header", {"name": "x-token"})).structured == {"result": f"Bearer {REDACTED}"}
    await backend.aclose()
    assert "HTTP Request" in caplog.text
    assert "p1anted" not in caplog.text
    assert not logging.getLogger("httpx2").filters


@pytest.mark.full
async def test_nothing_of_the_caller_is_sent_on(http_server, connect, resolver):
    """A server gets the headers of its own configuration, whatever the caller has proven who it is with."""
    backend = connect(http_server("http", "new").url, headers={"X-Token": "mine"}, secrets=resolver)
    caller = Caller(id="ann", method="jwt", claims={"authorization": "Bearer of-ann", "cookie": "of-ann"})
    with acting(Origin(caller=caller)) as origin:
        for name, expected in (("x-token", "mine"), ("authorization", ""), ("cookie", "")):
            reply = await call(backend, "header", {"name": name}, origin=origin)
            assert reply.structured == {"result": expected}


@pytest.mark.full
async def test_an_answer_that_is_no_json(connect, resolver, caplog):
    """The SDK's quote of an unreadable reply is neither logged nor passed on."""
    caplog.set_level(logging.DEBUG)
    import http.server

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            body = f"<{SECRET}>".encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_DELETE = do_POST

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        try:
            backend = connect(
                f"http://127.0.0.1:{web.server_port}/", headers={"T": "${GH_TOKEN}"}, secrets=resolver, max_restarts=0
            )
            await backend.start()
            reason = backend.status().reason
            await backend.aclose()
        finally:
            web.shutdown()
            thread.join()
    assert "does not follow JSON-RPC" in reason
    assert "(ValidationError)" in caplog.text
    for part in ("p1anted", "Value=="):
        assert part not in reason + caplog.text
