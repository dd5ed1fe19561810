"""Digest authentication against a server that checks it."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.net.digest_server import digest_server

from toolexec.errors import Outcome, RemoteToolError
from toolexec.net import HTTPClient, HTTPRequest
from toolexec.net.auth import Digest

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("qop", ["auth", "auth-int", "auth-int,auth"])
@pytest.mark.parametrize("algorithm", ["MD5", "MD5-sess", "SHA-256", "SHA-256-sess"])
async def test_the_challenge_of_a_server(algorithm: str, qop: str) -> None:
    """The first request is made twice, its body too; further ones answer the challenge that is known, each with a digest of its own."""
    async with digest_server() as server:
        server.algorithm, server.qop = algorithm, qop
        client, auth = HTTPClient(), Digest("me", "pass-word")
        target = "/a%20b/c%2Fd?q=1&q=%C3%A9"
        try:
            for _ in range(3):
                response = await client.send(HTTPRequest("POST", server.url + target, (), b"body", auth))
                assert response.status == 200
                assert response.credentials
        finally:
            await client.aclose()
        assert [bool(value) for _, value in server.heads] == [False, True, True, True]
        assert {seen for seen, _ in server.heads} == {target}
        assert len({value for _, value in server.heads}) == 4
        assert server.bodies == [b"body"] * 4


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_the_body_is_covered(method: str) -> None:
    """With `auth-int` another body than the one that was sent is refused; no body counts as an empty one."""
    async with digest_server() as server:
        server.qop = "auth-int"
        client, auth = HTTPClient(), Digest("me", "pass-word")
        try:
            for body in (b"", b"one", b"another"):
                response = await client.send(HTTPRequest(method, server.url + "/a", (), body, auth))
                assert response.status == 200
        finally:
            await client.aclose()
        assert "qop=auth-int" in server.heads[-1][1]
        server.counts.clear()
        assert server.accepts(method, "/a", server.heads[-1][1], b"another")
        server.counts.clear()
        assert not server.accepts(method, "/a", server.heads[-1][1], b"forged")


async def test_a_response_that_is_read_as_it_arrives() -> None:
    """The answer to the challenge is sent before the block begins, and the response says what was added."""
    async with digest_server() as server:
        client, auth = HTTPClient(), Digest("me", "pass-word")
        try:
            for _ in range(2):
                async with client.open(HTTPRequest("POST", server.url, (), b"body", auth)) as response:
                    assert response.status == 200
                    assert response.credentials == (server.heads[-1][1],)
                    whole = await response.read()
                assert whole.credentials == response.credentials
                assert json.loads(whole.body) == {"authorization": server.heads[-1][1]}
            async with client.open(HTTPRequest("GET", server.url, auth=Digest("me", "another"))) as response:
                assert response.status == 401
        finally:
            await client.aclose()
        assert [bool(value) for _, value in server.heads] == [False, True, True, False, True]


async def test_many_requests_and_a_nonce_that_expires() -> None:
    """Requests at the same time are all accepted, and so they are after the server has taken another nonce."""
    async with digest_server() as server:
        client, auth = HTTPClient(), Digest("me", "pass-word")
        try:
            for server.nonce in ("nonce-1", "nonce-2"):
                requests = [
                    client.send(HTTPRequest("GET", f"{server.url}/{number}", auth=auth)) for number in range(10)
                ]
                assert {each.status for each in await asyncio.gather(*requests)} == {200}
        finally:
            await client.aclose()


async def test_a_password_that_is_wrong() -> None:
    """The second refusal is the answer; there is no third request."""
    async with digest_server() as server:
        client = HTTPClient()
        try:
            response = await client.send(HTTPRequest("GET", server.url, auth=Digest("me", "another")))
        finally:
            await client.aclose()
        assert response.status == 401
        assert len(server.heads) == 2


async def test_a_challenge_that_cannot_be_answered() -> None:
    """The call is refused, and the error says why."""
    async with digest_server() as server:
        client = HTTPClient()
        try:
            for server.qop, server.algorithm in [("other", "MD5"), ("auth", "SHA-1"), ("auth-int", "SHA-1")]:
                with pytest.raises(
                    RemoteToolError, match="the digest that the server asks for cannot be computed"
                ) as caught:
                    await client.send(HTTPRequest("GET", server.url, auth=Digest("me", "pass-word")))
                assert caught.value.outcome is Outcome.REFUSED
        finally:
            await client.aclose()


async def test_a_redirect_takes_no_digest_elsewhere() -> None:
    """On the same origin the digest is made for the new path; another origin gets none, whatever it asks for."""
    async with digest_server() as server, digest_server() as other:
        client, auth = HTTPClient(allow_private=True), Digest("me", "pass-word")
        try:
            server.location = f"{other.url}/there"
            response = await client.send(HTTPRequest("GET", f"{server.url}/here", auth=auth))
            assert (response.status, response.url) == (401, f"{other.url}/there")
            assert other.heads == [("/there", "")]
        finally:
            await client.aclose()
