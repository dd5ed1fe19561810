"""Bodies that are too long, too late, too deep or of another kind."""

from __future__ import annotations

import asyncio
import json
import ssl

import pytest
from tests.waiting import until

from toolexec.server.http import HttpSettings, Metrics
from toolexec.server.http.bodies import refusal_of

from .conftest import INITIALIZE, JSON_HEADERS, Certificate, Serve

HEAD = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\n"
JSON = b"content-type: application/json\r\n"


async def test_a_declared_length_is_believed(serve: Serve) -> None:
    """A body that says that it is too long is refused before any of it is read."""
    server = await serve(HttpSettings(port=0, max_body_bytes=1000))
    for length in (b"1001", b"9" * 18):
        answer = await server.raw(HEAD + JSON + b"content-length: " + length + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in answer


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize(
    ("header", "status"), [({}, 413), ({"content-type": "text/plain"}, 415), ({"host": "evil.example"}, 421)]
)
async def test_a_client_reads_its_answer_although_it_still_sends(
    serve: Serve, certificate: Certificate, encrypted: bool, header: dict[str, str], status: int
) -> None:
    """A client that sends its whole body before it reads gets the refusal, not a connection that is reset."""
    tls = {"tls_cert": certificate.cert, "tls_key": certificate.key} if encrypted else {}
    server = await serve(HttpSettings(port=0, **tls))
    trusting = ssl.create_default_context(cafile=certificate.cert) if encrypted else False
    for _ in range(3):
        body, headers = b"x" * (6 << 20), {**JSON_HEADERS, **header}
        answer = await server.request("POST", content=body, headers=headers, verify=trusting)
        assert answer.status_code == status


async def test_a_client_that_sends_for_ever_is_cut_off(serve: Serve) -> None:
    """After its answer a client may send no more than two bodies of the longest kind."""
    server = await serve(HttpSettings(port=0, max_body_bytes=1000))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(HEAD + JSON + b"content-length: 1000000000\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 413 ")  # to the end: nothing follows the answer

    async def is_cut_off() -> bool:
        try:
            writer.write(b"x" * 1000)
            await writer.drain()
        except ConnectionError:
            return True
        return False

    await until(is_cut_off)
    writer.close()


async def test_a_body_in_chunks_is_counted(serve: Serve) -> None:
    """Without a length it is refused as soon as it is too long."""
    server = await serve(HttpSettings(port=0, max_body_bytes=1000))
    chunk = b"1f4\r\n" + b"x" * 500 + b"\r\n"
    answer = await server.raw(HEAD + JSON + b"transfer-encoding: chunked\r\n\r\n", chunk, chunk, chunk)
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_a_body_that_just_fits(serve: Serve) -> None:
    """The limit itself is allowed."""
    body = json.dumps(INITIALIZE).encode()
    server = await serve(HttpSettings(port=0, max_body_bytes=len(body)))
    assert (await server.request("POST", content=body, headers=JSON_HEADERS)).status_code == 200
    assert (await server.request("POST", content=body + b" ", headers=JSON_HEADERS)).status_code == 413


async def test_a_body_that_dawdles(serve: Serve) -> None:
    """Gives such a body up, even when a byte arrives now and then; and the server goes on."""
    metrics = Metrics()
    server = await serve(HttpSettings(port=0, body_timeout=0.3), metrics=metrics)
    drops = [b"x"] * 12
    answer = await server.raw(HEAD + JSON + b"content-length: 100\r\n\r\n", *drops, pause=0.1)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")  # empty: the end came before it was read
    assert b'toolexec_http_rejected_total{reason="body_timeout"} 1.0' in metrics.text()
    assert (await server.post(INITIALIZE)).status_code == 200


async def test_a_client_that_goes_away_within_its_body(serve: Serve) -> None:
    """That is noted and nothing more."""
    metrics = Metrics()
    server = await serve(metrics=metrics)
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(HEAD + JSON + b"content-length: 100\r\n\r\nabc")
    await writer.drain()
    await asyncio.sleep(0.1)
    writer.transport.abort()
    await until(lambda: b'{reason="disconnected"} 1.0' in metrics.text())


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/json-seq"},
        {"content-type": ""},
        {"content-encoding": "gzip"},
    ],
)
async def test_what_is_not_json(serve: Serve, headers: dict[str, str]) -> None:
    """Another type, or a compressed body, is refused unread."""
    server = await serve()
    assert (await server.request("POST", content=b"{}", headers={**JSON_HEADERS, **headers})).status_code == 415


async def test_the_type_may_name_its_encoding(serve: Serve) -> None:
    """As some clients do."""
    server = await serve()
    assert (await server.post(INITIALIZE, {"content-type": "application/json; charset=utf-8"})).status_code == 200


@pytest.mark.full
@pytest.mark.parametrize("era", [{}, {"mcp-protocol-version": "2026-07-28"}])
@pytest.mark.parametrize("bomb", [b"[" * 100_000, b'{"a":' * 50_000, b"[" * 101 + b"]" * 101])
async def test_json_that_nests_too_deeply(serve: Serve, bomb: bytes, era: dict[str, str]) -> None:
    """Refuses such a document before a parser sees it."""
    server = await serve()
    answer = await server.request("POST", content=bomb, headers={**JSON_HEADERS, **era})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32700)
    assert "nested more than 100 levels" in answer.json()["error"]["message"]


@pytest.mark.full
@pytest.mark.parametrize("era", [{}, {"mcp-protocol-version": "2026-07-28"}])
@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"nul", b'{"a":NaN}', b"9" * 10_000, b'"' * 9999, b"[1,2]"])
async def test_garbage(serve: Serve, body: bytes, era: dict[str, str]) -> None:
    """Each is refused as a mistake of the client, and the server goes on."""
    server = await serve()
    answer = await server.request("POST", content=body, headers={**JSON_HEADERS, **era})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] < 0
    assert (await server.post(INITIALIZE)).status_code == 200


@pytest.mark.parametrize(
    ("document", "deep"),
    [
        ('[[1],{"a":[1]}]', False),
        ("[[[[1]]]]", True),
        ('{"a":"[[[[[[[[[["}', False),
        (r'{"a":"\"[[[[[[[["}', False),
        (r'["\\",[[[1]]]]', True),
        ('"[[[[[[[', False),
        ("[],[],[],[],[]", False),
    ],
)
def test_depth_is_that_of_the_structure(document: str, deep: bool) -> None:
    """Brackets within strings do not count, whatever is escaped in them."""
    assert (refusal_of(document.encode(), 3, 1000) == "json_depth") is deep


def test_looking_for_depth_takes_linear_time() -> None:
    """Quotes without an end are no way to keep the server busy."""
    assert refusal_of(b"[[[[" + rb"\"" * 2_000_000, 3, 1000) == "json_depth"
    assert refusal_of(rb'"\"' * 1_000_000 + b"[[[[", 3, 1000) is None
    assert refusal_of(b'[[["' + rb"\"" * 2_000_000 + b"[[[[", 3, 1000) is None


@pytest.mark.parametrize(
    ("document", "many"),
    [
        ("[1,2,3]", False),
        ("[1,2,3,4,5]", True),
        ("[[],[],[]]", True),
        ('{"a":{},"b":1}', False),
        ('["1,2,3,4,5,6,[,[,[,{"]', False),
        (r'["\\",1,2,3,4]', True),
        ("1,2,3", False),
    ],
)
def test_values_are_those_of_the_structure(document: str, many: bool) -> None:
    """Commas and brackets within strings are text, however many there are."""
    assert (refusal_of(document.encode(), 100, 4) == "json_values") is many


@pytest.mark.parametrize("era", [{}, {"mcp-protocol-version": "2026-07-28"}])
async def test_json_with_too_many_values(serve: Serve, era: dict[str, str]) -> None:
    """Refuses it before a parser sees it, and says what to do; a long text is one value."""
    server = await serve(HttpSettings(port=0, max_json_values=2000))
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"values": [1] * 2000}}).encode()
    answer = await server.request("POST", content=body, headers={**JSON_HEADERS, **era})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32700)
    assert "more than 2000 values; send less at once" in answer.json()["error"]["message"]
    text = json.dumps({**INITIALIZE, "comment": "1," * 2000}).encode()
    assert (await server.request("POST", content=text, headers={**JSON_HEADERS})).status_code == 200
