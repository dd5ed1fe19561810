"""Requests over HTTP: where they may go, what comes back, and what each failure says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.backend.providers.service import Service
from tests.waiting import until

from toolexec.errors import (
    BackendBusyError,
    BackendUnavailableError,
    ConfigurationError,
    ConnectionLostError,
    InputValidationError,
    RemoteToolError,
    ToolTimeoutError,
)
from toolexec.net import HTTPClient, HTTPRequest

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client() -> AsyncIterator[HTTPClient]:
    """A client of short patience."""
    made = HTTPClient(timeout=10)
    yield made
    await made.aclose()


async def test_request_and_response(client: HTTPClient, service: Service) -> None:
    """Sends what is given, as it is written, and returns the whole response."""
    request = HTTPRequest(
        "POST", f"{service.url}/a%2Fb?q=1&q=%C3%A9", [("X-One", "1"), ("x-one", "gr\u00fc\u00df")], b'{"a": 1}'
    )
    response = await client.send(request)
    assert response.status == 200
    assert response.headers["content-type"] == "application/json"
    assert response.url == request.url
    [seen] = service.seen
    assert (seen.method, seen.path, seen.query, seen.json) == ("POST", "/a%2Fb", "q=1&q=%C3%A9", {"a": 1})
    assert seen.headers["x-one"].startswith("1")
    assert seen.headers["content-length"] == "8"
    assert seen.headers["host"] == service.url.removeprefix("http://")
    assert seen.headers["user-agent"].startswith("toolexec/")


async def test_status_is_an_answer(client: HTTPClient, service: Service) -> None:
    """An error status raises nothing."""
    response = await client.send(HTTPRequest("DELETE", f"{service.url}/status/503"))
    assert (response.status, response.headers["retry-after"]) == (503, "7")


async def test_many_at_once(service: Service) -> None:
    """Three hundred requests share thirty connections."""
    client = HTTPClient(timeout=60, max_connections=30)
    try:
        found = await asyncio.gather(
            *(client.send(HTTPRequest("GET", f"{service.url}/n/{number}")) for number in range(300))
        )
    finally:
        await client.aclose()
    assert {response.status for response in found} == {200}
    assert sorted(service.paths()) == sorted(f"/n/{number}" for number in range(300))


@pytest.mark.parametrize("kind", ["gzip", "members", "deflate", "raw"])
async def test_encodings(client: HTTPClient, service: Service, kind: str) -> None:
    """Decodes what it asks for."""
    response = await client.send(HTTPRequest("GET", f"{service.url}/encoded/{kind}"))
    assert response.body.startswith(b'{"kind": "')
    assert len(response.body) > 1000


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("br", "was not asked for"),
        ("twice", "was not asked for"),
        ("wrong", "cannot be decoded"),
        ("cut", "its end is missing"),
        ("bomb-gzip", "300 times"),
        ("bomb-deflate", "300 times"),
    ],
)
async def test_bodies_that_cannot_be_read(client: HTTPClient, service: Service, kind: str, reason: str) -> None:
    """Refuses a body that is not what its header says, or that grows without measure."""
    with pytest.raises(RemoteToolError, match=reason) as failure:
        await client.send(HTTPRequest("GET", f"{service.url}/encoded/{kind}"))
    assert failure.value.details["status"] == 200
    assert not failure.value.retryable


async def test_bomb_is_never_in_memory(service: Service) -> None:
    """The limit holds for decoded bytes while they arrive, also where the ratio is allowed."""
    client = HTTPClient(max_response_bytes=100_000)
    try:
        with pytest.raises(RemoteToolError, match="longer than 100000 bytes"):
            await client.send(HTTPRequest("GET", f"{service.url}/encoded/bomb-gzip"))
        with pytest.raises(RemoteToolError, match="longer than 100000 bytes"):
            await client.send(HTTPRequest("GET", f"{service.url}/large?size={50 << 20}"))
        assert (await client.send(HTTPRequest("GET", f"{service.url}/fine"))).status == 200
    finally:
        await client.aclose()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/reset", ConnectionLostError),
        ("/close", ConnectionLostError),
        ("/half", ConnectionLostError),
        ("/half-chunk", ConnectionLostError),
        ("/garbage", ConnectionLostError),
        ("/headers", ConnectionLostError),
    ],
)
async def test_lost_connections(client: HTTPClient, service: Service, path: str, kind: type[Exception]) -> None:
    """A request that was sent and not answered may have been acted on: retryable, but it did begin."""
    with pytest.raises(kind) as failure:
        await client.send(HTTPRequest("GET", service.raw + path))
    assert failure.value.retryable  # type: ignore[attr-defined]
    assert failure.value.outcome != "not_sent"  # type: ignore[attr-defined]
    assert service.paths() == [path]


@pytest.mark.parametrize("path", ["/hang", "/drip"])
async def test_deadline(service: Service, path: str) -> None:
    """One time limit holds for all of it, however slowly bytes arrive, and the connection is not used again."""
    client = HTTPClient(timeout=0.3)
    try:
        with pytest.raises(ToolTimeoutError) as failure:
            await client.send(HTTPRequest("GET", service.raw + path))
        assert failure.value.outcome != "not_sent"
        assert failure.value.timeout == 0.3
        assert (await client.send(HTTPRequest("GET", f"{service.url}/fine"))).status == 200
    finally:
        await client.aclose()


async def test_no_free_connection(service: Service) -> None:
    """A request that waited for a connection until its end has never begun."""
    client = HTTPClient(timeout=0.5, max_connections=1)
    first = asyncio.ensure_future(client.send(HTTPRequest("GET", f"{service.raw}/hang")))
    try:
        await until(lambda: service.seen)
        second = HTTPClient.send(client, HTTPRequest("POST", f"{service.raw}/hang"))
        client._timeout = 0.05
        with pytest.raises(BackendBusyError) as failure:
            await second
        assert failure.value.outcome == "not_sent"
        with pytest.raises(ToolTimeoutError):
            await first
    finally:
        await client.aclose()
    assert service.paths() == ["/hang"]


async def test_cancelled_requests_free_their_connections(service: Service) -> None:
    """Cancelling many requests leaves the pool as good as new."""
    client = HTTPClient(max_connections=5)
    try:
        for _ in range(5):
            tasks = [asyncio.ensure_future(client.send(HTTPRequest("GET", f"{service.raw}/hang"))) for _ in range(20)]
            await asyncio.sleep(0.02)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        found = await asyncio.gather(*(client.send(HTTPRequest("GET", f"{service.url}/x")) for _ in range(20)))
        assert {response.status for response in found} == {200}
    finally:
        await client.aclose()


async def test_refused_connection(client: HTTPClient) -> None:
    """A refused connection and an unknown name have sent nothing."""
    for url in ("http://127.0.0.1:1/x", "http://no-such-host.invalid/"):
        with pytest.raises(BackendUnavailableError) as failure:
            await client.send(HTTPRequest("POST", url))
        assert failure.value.outcome == "not_sent"
        assert failure.value.retryable


@pytest.mark.parametrize(
    "headers",
    [[("X-A", "1\r\nX-B: 2")], [("X-A", "1\n")], [("X-A", "\0")], [("X-A: 1\r\nX-B", "2")], [("X A", "1")], [("", "1")]]
    + [[("Host", "evil.test")], [("Content-Length", "0")], [("transfer-encoding", "chunked")], [("X-A", "\x01")]],
    ids=str,
)
async def test_header_injection(client: HTTPClient, service: Service, headers: list[tuple[str, str]]) -> None:
    """Refuses headers that could add others or change the framing, before anything is sent."""
    with pytest.raises(InputValidationError) as failure:
        await client.send(HTTPRequest("GET", f"{service.url}/x", headers))
    assert failure.value.outcome == "not_sent"
    assert service.seen == []


@pytest.mark.parametrize(
    "url",
    ["/relative", "ftp://a.test/x", "http://", "http://user:pw@a.test/", "http://a.test:0/", "http://a.test:99999/"]
    + ["http://a.test/a b", "http://a.test/\r\nX: 1", "http://a.test\\@b.test/", "http://[::1/", "http://a b/", "file:///etc/passwd"],
)  # fmt: skip
async def test_what_is_not_a_url(client: HTTPClient, url: str) -> None:
    """Refuses what readers of URLs may understand differently."""
    with pytest.raises(InputValidationError):
        await client.send(HTTPRequest("GET", url))


@pytest.mark.parametrize("method", ["GET / HTTP/1.1\r\nX: 1\r\n\r\n", "CONNECT", "", "G T"])
async def test_what_is_not_a_method(client: HTTPClient, service: Service, method: str) -> None:
    """Refuses a method that is more than one word, or opens a tunnel."""
    with pytest.raises(InputValidationError):
        await client.send(HTTPRequest(method, f"{service.url}/x"))
    assert service.seen == []


@pytest.mark.parametrize(
    "wrong",
    [{"timeout": 0}, {"max_response_bytes": 0}, {"max_redirects": -1}, {"hosts": ["a b"]}, {"hosts": "a.test"}]
    + [{"ca_file": "/no/such/file.pem"}, {"timeuot": 1}],
    ids=str,
)
def test_settings(wrong: dict[str, Any]) -> None:
    """Refuses settings that cannot work."""
    with pytest.raises(ConfigurationError):
        HTTPClient(**wrong)


# -- where it may go --------------------------------------------------------------------------------------------------


def _names(**addresses: str) -> Any:
    asked: list[str] = []

    async def look_up(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return addresses[host.split(".")[0]].split()

    look_up.asked = asked  # type: ignore[attr-defined]
    return look_up


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "::1", "fd00::1", "::ffff:127.0.0.1", "0.0.0.0", "64:ff9b::7f00:1"],
)  # fmt: skip
async def test_names_of_private_addresses(address: str) -> None:
    """A name whose address is private is not reached; the address is not asked for twice."""
    find = _names(inside=address)
    client = HTTPClient(look_up=find)
    with pytest.raises(BackendUnavailableError, match=r"inside\.test is not reached") as failure:
        await client.send(HTTPRequest("GET", "http://inside.test/"))
    assert failure.value.outcome == "not_sent"
    assert not failure.value.retryable
    assert find.asked == ["inside.test"]


async def test_private_names_on_request(service: Service) -> None:
    """`allow_private` reaches names of private addresses, with one look-up for each connection."""
    find = _names(inside="127.0.0.1", meta="169.254.169.254")
    client = HTTPClient(look_up=find, allow_private=True)
    port = service.url.rpartition(":")[2]
    try:
        assert (await client.send(HTTPRequest("GET", f"http://inside.test:{port}/x"))).status == 200
        assert find.asked == ["inside.test"]
        assert service.seen[0].headers["host"] == f"inside.test:{port}"
        with pytest.raises(BackendUnavailableError, match="for this network or machine only"):
            await client.send(HTTPRequest("GET", "http://meta.test/"))
    finally:
        await client.aclose()


async def test_second_address_is_tried(service: Service) -> None:
    """Where one address does not answer the next one does; private ones among them are left out."""
    client = HTTPClient(look_up=_names(two="127.0.0.2 127.0.0.1"), allow_private=True)
    port = service.url.rpartition(":")[2]
    try:
        assert (await client.send(HTTPRequest("GET", f"http://two.test:{port}/x"))).status == 200
    finally:
        await client.aclose()


async def test_hosts(service: Service) -> None:
    """Only hosts of the list are reached, on their ports; a private address in the list is allowed."""
    authority = service.url.removeprefix("http://")
    client = HTTPClient(hosts=[authority, "api.example.com"], look_up=_names())
    try:
        assert (await client.send(HTTPRequest("GET", f"{service.url}/x"))).status == 200
        for url in (f"{service.raw}/x", "https://api.example.com:8443/", "https://example.com/", "http://localhost/"):
            with pytest.raises(BackendUnavailableError, match="is not one of the hosts") as failure:
                await client.send(HTTPRequest("GET", url))
            assert not failure.value.retryable
    finally:
        await client.aclose()


async def test_written_addresses_of_metadata() -> None:
    """An address of the cloud's metadata is refused, also where it is written."""
    for client in (HTTPClient(), HTTPClient(hosts=["169.254.169.254"]), HTTPClient(allow_private=True)):
        with pytest.raises(BackendUnavailableError, match="not reached"):
            await client.send(HTTPRequest("GET", "http://169.254.169.254/latest/meta-data"))


async def test_localhost(service: Service) -> None:
    """`localhost` is this machine where the caller writes it, whatever a resolver says."""
    port = service.url.rpartition(":")[2]
    client = HTTPClient()
    fooled = HTTPClient(look_up=_names(localhost="10.0.0.1"))
    try:
        assert (await client.send(HTTPRequest("GET", f"http://localhost:{port}/x"))).status == 200
        with pytest.raises(BackendUnavailableError, match="not one of this machine"):
            await fooled.send(HTTPRequest("GET", f"http://localhost:{port}/x"))
    finally:
        await client.aclose()


# -- redirects --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_redirects_are_followed(client: HTTPClient, service: Service, code: int) -> None:
    """GET follows a redirect of the same origin, with its headers."""
    request = HTTPRequest("GET", f"{service.url}/go?code={code}&to=/there%3Fa=1", [("Authorization", "Bearer x")])
    response = await client.send(request)
    assert response.url == f"{service.url}/there?a=1"
    assert service.paths() == ["/go", "/there"]
    assert service.seen[1].headers["authorization"] == "Bearer x"


async def test_redirects_of_other_methods(client: HTTPClient, service: Service) -> None:
    """A redirected POST is an answer: sending it again elsewhere is not for the client to decide."""
    response = await client.send(HTTPRequest("POST", f"{service.url}/go?code=307&to=/there", (), b"x"))
    assert (response.status, response.headers["location"]) == (307, "/there")
    assert service.paths() == ["/go"]


async def test_redirect_to_another_host(service: Service) -> None:
    """A host that is not in the list is not reached by a redirect; one that is gets no credentials."""
    authority = service.url.removeprefix("http://")
    port = authority.rpartition(":")[2]
    client = HTTPClient(hosts=[authority, f"localhost:{port}"])
    headers = [("Authorization", "Bearer x"), ("Cookie", "a=1"), ("X-Api-Key", "k"), ("Accept", "application/json")]
    try:
        with pytest.raises(RemoteToolError, match="is not one of the hosts") as failure:
            await client.send(HTTPRequest("GET", f"{service.url}/go?to={service.raw}/close"))
        assert failure.value.outcome != "not_sent"
        response = await client.send(HTTPRequest("GET", f"{service.url}/go?to=http://localhost:{port}/there", headers))
    finally:
        await client.aclose()
    assert response.status == 200
    assert service.paths() == ["/go", "/go", "/there"]
    sent = service.seen[2].headers
    assert sent["accept"] == "application/json"
    assert not {"authorization", "cookie", "x-api-key"} & sent.keys()


@pytest.mark.parametrize(
    "to",
    ["http://127.0.0.1:1/", "http://10.0.0.1/", "http://169.254.169.254/", "http://localhost:1/", "http://inside.test/"]
    + ["file:///etc/passwd", "http://user@a.test/", "gopher://a.test/", "http://[::1", "http://a.test:x/"],
)
async def test_redirects_that_are_refused(service: Service, to: str) -> None:
    """Private addresses, other schemes and what is not a URL are not followed, and nothing is sent there."""
    client = HTTPClient(look_up=_names(inside="127.0.0.1"))
    try:
        with pytest.raises(RemoteToolError, match="a redirect is not followed") as failure:
            await client.send(HTTPRequest("GET", f"{service.url}/go?to={to}"))
    finally:
        await client.aclose()
    assert failure.value.outcome != "not_sent"
    assert service.paths() == ["/go"]


async def test_redirect_to_a_connection_that_is_open(service: Service) -> None:
    """A connection that another request has made does not lead around the rule."""
    client = HTTPClient()
    port = service.url.rpartition(":")[2]
    try:
        assert (await client.send(HTTPRequest("GET", f"{service.url}/x"))).status == 200
        with pytest.raises(RemoteToolError, match="not followed"):
            await client.send(HTTPRequest("GET", f"http://localhost:{port}/go?to={service.url}/secret"))
    finally:
        await client.aclose()
    assert "/secret" not in service.paths()


async def test_endless_redirects(client: HTTPClient, service: Service) -> None:
    """A loop of redirects ends."""
    with pytest.raises(RemoteToolError, match="more than 5 times"):
        await client.send(HTTPRequest("GET", f"{service.url}/loop"))
    assert len(service.seen) == 6


async def test_closed(service: Service) -> None:
    """A closed client sends nothing."""
    client = HTTPClient()
    await client.aclose()
    await client.aclose()
    with pytest.raises(BackendUnavailableError, match="closed"):
        await client.send(HTTPRequest("GET", f"{service.url}/x"))
    assert service.seen == []


async def test_proxies_of_the_environment(
    client: HTTPClient, service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither proxies nor passwords are taken from the environment."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    (tmp_path / "netrc").write_text("default login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert (await client.send(HTTPRequest("GET", f"{service.url}/x"))).status == 200
    assert "authorization" not in service.seen[0].headers
