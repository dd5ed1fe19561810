"""Resources and prompts of servers that mean no good: what they list and answer is bounded, and stays their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from toolexec import Exec
from toolexec.backend.mcp.offers import MAX_OFFERS
from toolexec.backend.mcp.secret_forms import asks_for_secret
from toolexec.backend.offers import fits_template
from toolexec.errors import ExecutionError, NotOfferedError, RemoteToolError
from toolexec.model.resources import gateway_uri, split_uri

SERVER = str(Path(__file__).with_name("hostile_server.py"))


@asynccontextmanager
async def hostile(behaviour: str, *others: str) -> AsyncIterator[Exec]:
    async with Exec() as ex:
        for name in ("bad", *others):
            command = [sys.executable, SERVER, behaviour]
            await ex.add_mcp(name, command=command, stop_timeout=0.2, connect_timeout=20)
        yield ex


@pytest.mark.parametrize(("behaviour", "number"), [("endless", MAX_OFFERS), ("repeats", 2)])
async def test_a_list_without_end_is_cut(behaviour: str, number: int):
    """As many are taken as are allowed, and the status says what is missing and why."""
    async with hostile(behaviour) as ex:
        assert len(await ex.list_resources()) == number
        [status] = [status for status in ex.backend_statuses() if status.name == "bad"]
        assert "after that are missing" in status.skipped["(resources)"]


async def test_a_resource_of_a_gigabyte_is_refused():
    """The call fails with the reason, and takes no memory for it; what is smaller and still too long is refused, too."""
    async with hostile("plain") as ex:
        with pytest.raises(RemoteToolError, match="too long: it has 346"):
            await ex.read_resource("toolexec://bad/unlisted://large")
        with pytest.raises(ExecutionError, match="more than 67108864 bytes"):
            await ex.read_resource("toolexec://bad/huge://")


async def test_a_gigabyte_over_http_is_refused():
    """A body that is longer than an event may be is not read to its end, and the server can be used afterwards."""
    async with boundless() as url, Exec() as ex:
        await ex.add_mcp("bad", url=url)
        with pytest.raises(ExecutionError, match="more than 67108864 bytes"):
            await ex.read_resource("toolexec://bad/huge://")
        assert await ex.list_resources() == []


@asynccontextmanager
async def boundless() -> AsyncIterator[str]:
    """Yield the URL of a server whose resources have a gigabyte."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                await respond(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = re.search(rb"content-length: (\d+)", head)
    message = json.loads(await reader.readexactly(int(length[1]))) if length is not None else {}
    if "id" not in message:
        status = b"202 Accepted" if message else b"405 Method Not Allowed"
        writer.write(b"HTTP/1.1 %s\r\ncontent-length: 0\r\n\r\n" % status)
        return
    results = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "boundless", "version": "1"},
        },
        "tools/list": {"tools": []},
        "resources/list": {"resources": []},
        "resources/templates/list": {"resourceTemplates": []},
    }
    found = results.get(message["method"])
    answer = {"error": {"code": -32601, "message": "no"}} if found is None else {"result": found}
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode()
    pieces = 1024 if message["method"] == "resources/read" else 0
    length_sent = pieces << 20 or len(body)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % length_sent)
    for _ in range(pieces):
        writer.write(b"x" * (1 << 20))
        await writer.drain()
    if not pieces:
        writer.write(body)


async def test_a_server_cannot_answer_for_another_one():
    """The URI of another server in an answer leads to the server that gave it, and to no other."""
    async with hostile("plain", "other") as ex:
        found = await ex.read_resource("toolexec://bad/foreign://x")
        [part] = found.contents
        assert part.uri == "toolexec://bad/toolexec://other/secret://x"
        assert (await ex.read_resource(part.uri)).text == "mine: toolexec://other/secret://x"
        for uri in ("foreign://x", "toolexec://none/foreign://x", "toolexec://bad", "toolexec:///bad/x", ""):
            with pytest.raises(NotOfferedError):
                await ex.read_resource(uri)


async def test_definitions_are_bounded_and_cleaned():
    """Names that would be the same are kept apart, what is listed twice or too long is left out, and nothing hides."""
    async with hostile("plain") as ex:
        prompts = await ex.list_prompts()
        assert [prompt.own_name for prompt in prompts] == ["a b", "a-b"]
        assert prompts[0].name == "bad:a-b"
        assert prompts[1].name.startswith("bad:a-b-")
        assert prompts[0].description == "Read this"
        assert [resource.own_uri for resource in await ex.list_resources()] == ["huge://"]
        [status] = [status for status in ex.backend_statuses() if status.name == "bad"]
        assert {"prompt a b", "resource long://"} <= status.skipped.keys()


@pytest.mark.parametrize("uri", ["file:///a", "x", "toolexec://a/b", "a b\n", "é://ü", "//", "/"])
def test_a_uri_can_be_read_back(uri: str):
    """A URI made of a server and its own URI gives back both, whatever that is."""
    assert split_uri(gateway_uri("my.server-1", uri)) == ("my.server-1", uri)


def test_templates_are_fitted_in_linear_time():
    """A URI fits where the fixed parts are there in order; a template that is made to be slow is not."""
    assert fits_template("user://{name}/profile", "user://ann/profile")
    assert not fits_template("user://{name}/profile", "user://ann/profile/x")
    assert not fits_template("a{x}a", "a")
    assert fits_template("x://{+a}b{+c}d", "x://1b2d")
    assert not fits_template("{+a}x" * 1000 + "y", "x" * 16_000)


@pytest.mark.parametrize(
    ("params", "asks"),
    [
        ({"message": "Log in", "requestedSchema": {"properties": {"apiKey": {"type": "string"}}}}, True),
        (
            {"message": "?", "requestedSchema": {"properties": {"a": {"type": "string", "title": "Your password"}}}},
            True,
        ),
        ({"message": "Give me your password", "requestedSchema": {"properties": {"a": {"type": "string"}}}}, True),
        ({"message": "?", "requestedSchema": {"properties": {"a": {"type": "string", "format": "password"}}}}, True),
        ({"message": "Reset the password?", "requestedSchema": {"properties": {"sure": {"type": "boolean"}}}}, False),
        ({"message": "?", "requestedSchema": {"properties": {"spin": {"type": "string"}}}}, False),
        ({"message": "Open this", "mode": "url", "url": "https://example.com/password"}, False),
    ],
)
def test_a_form_for_a_secret_is_known(params: dict[str, object], asks: bool):
    """Fields, and the message of a form with a field for text, are looked at; a URL is where secrets belong."""
    assert (asks_for_secret(params) is not None) == asks


@pytest.mark.parametrize(
    "word",
    ["p a s s w o r d", "P.A.S.S.W.O.R.D", "pass--word", "passw0rd", "pa\u200bss\u2060word", "\uff50\uff41ssword"]
    + [
        "p\u0430ssw\u043erd",
        "pa\u0301ssword",
        "P I N",
        "Contrase\u00f1a",
        "\u043f\u0430\u0440\u043e\u043b\u044c",
        "\u5bc6\u7801",
    ],
)
@pytest.mark.parametrize("place", ["name", "title", "description", "message", "within"])
def test_a_secret_is_known_however_it_is_written(word: str, place: str):
    """Characters between letters, letters that look alike, what is not seen, and a field within another hide nothing."""
    field: dict[str, object] = {"type": "string"}
    properties: dict[str, object] = {word if place == "name" else "answer": field}
    if place in ("title", "description"):
        field[place] = f"Your {word}, please"
    elif place == "within":
        properties = {"a": {"type": "object", "properties": {word: field}}}
    message = f"Type your {word} here" if place == "message" else "?"
    assert asks_for_secret({"message": message, "requestedSchema": {"type": "object", "properties": properties}})


@pytest.mark.parametrize(
    ("message", "field", "asks"),
    [
        ("Type your 4-digit PIN", {"type": "integer"}, True),
        ("How many tokens may it be?", {"type": "integer", "description": "a count of tokens"}, False),
        ("A b c or d?", {"type": "string"}, False),
        ("Your password?", {"type": ["string", "null"]}, True),
        ("Which kind of password?", {"type": "string", "enum": ["long", "short"]}, False),
        (
            "?",
            {"type": "integer", "description": "your number (do not give us your phone number, pin, or such)"},
            False,
        ),
        ("?", {"type": "integer", "description": "Do not enter your name, but your pin"}, True),
        ("?", {"type": "string", "description": "Never share your password with others."}, True),
        ("Where is option 1 of 5?", {"type": "string", "title": "x 1 2 3"}, False),
    ],
)
def test_a_number_may_be_a_secret_too(message: str, field: dict[str, object], asks: bool):
    """A PIN is one, and a count of tokens is none; what is chosen from a list is none either."""
    params = {"message": message, "requestedSchema": {"properties": {"answer": field}}}
    assert (asks_for_secret(params) is not None) == asks
