"""Certificates of clients: to whom they are shown, and what is said of those that cannot be used."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.net.certificates import PASSWORD, Certificates, make_certificates

from toolexec import Exec
from toolexec.config.build import build
from toolexec.config.load import load_settings
from toolexec.config.template import shown_providers
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.net import HTTPClient, HTTPRequest

pytestmark = pytest.mark.anyio


@dataclass
class Secure:
    """A server called `localhost` that asks clients for a certificate; `shown` are their names, "" for none."""

    url: str = ""
    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
    shown: list[str] = field(default_factory=list)


@pytest.fixture
def files(tmp_path: Path) -> Certificates:
    """Make the certificates."""
    return make_certificates(tmp_path)


@asynccontextmanager
async def secure(files: Certificates, *, needed: bool = True) -> AsyncGenerator[Secure]:
    """Run a server, which turns those away that show none where one is *needed*."""
    found = Secure()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        certificate: Any = writer.get_extra_info("peercert") or {}
        with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                found.shown.append(next((value for _, value in certificate.get("subjectAltName", ())), ""))
                writer.write(found.answer)
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(files.ca))
    context.load_cert_chain(files.server)
    context.verify_mode = ssl.CERT_REQUIRED if needed else ssl.CERT_OPTIONAL
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    found.url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()


def identity(files: Certificates) -> dict[str, Any]:
    """Return the settings of the client."""
    return {
        "ca_file": str(files.ca),
        "cert_file": str(files.client),
        "key_file": str(files.key),
        "key_password": PASSWORD,
    }


async def test_a_server_that_asks_for_a_certificate(files: Certificates) -> None:
    """The certificate is shown, with a key that is encrypted; without one the server refuses."""
    async with secure(files) as server:
        client, other = HTTPClient(**identity(files)), HTTPClient(ca_file=files.ca)
        try:
            assert (await client.send(HTTPRequest("GET", server.url))).body == b"ok"
            with pytest.raises(ToolExecError):
                await other.send(HTTPRequest("GET", server.url))
        finally:
            await client.aclose()
            await other.aclose()
        assert server.shown == ["ann"]


async def test_a_redirect_shows_it_to_none_of_the_others(files: Certificates) -> None:
    """Only the origins that are named see who the client is."""
    async with secure(files) as server, secure(files, needed=False) as other:
        server.answer = f"HTTP/1.1 302 There\r\nLocation: {other.url}/\r\nContent-Length: 0\r\n\r\n".encode()
        settings: dict[str, Any] = identity(files) | {"cert_origins": [server.url], "allow_private": True}
        client = HTTPClient(**settings)
        try:
            assert (await client.send(HTTPRequest("GET", server.url))).body == b"ok"
        finally:
            await client.aclose()
        assert (server.shown, other.shown) == (["ann"], [""])


@pytest.mark.parametrize("password", ["", "not-the-password"])
async def test_a_key_that_cannot_be_used(files: Certificates, password: str) -> None:
    """The error says which, and not with what; nothing is asked at a terminal."""
    with pytest.raises(
        ConfigurationError, match=r"the certificate in .*client\.pem and .*key\.pem cannot be used"
    ) as caught:
        given: dict[str, Any] = identity(files) | {"key_password": password}
        HTTPClient(**given)
    assert "key_password" in caught.value.message or "password is not right" in caught.value.message
    assert "not-the-password" not in caught.value.message


@pytest.mark.parametrize("kind", ["http", "openapi"])
async def test_providers_show_it(files: Certificates, kind: str) -> None:
    """Both kinds of provider take the settings; mutual TLS of a document needs nothing more."""
    document: Any = {
        "openapi": "3.1.0",
        "info": {"title": "it", "version": "1"},
        "components": {"securitySchemes": {"mtls": {"type": "mutualTLS"}}},
        "security": [{"mtls": []}],
        "paths": {"/it": {"get": {"operationId": "it", "responses": {"200": {"description": "it"}}}}},
    }
    async with secure(files) as server, Exec(gate=None) as ex:
        if kind == "http":
            [status] = await ex.add_http("api", server.url, tools={"it": {"path": "/it"}}, **identity(files))
        else:
            [status] = await ex.add_openapi("api", document, base_url=server.url, **identity(files))
        assert (await ex.run_tool("api:it", {})).value == "ok"
        assert server.shown == ["ann"]
        assert "missing_credentials" not in status.info
        assert PASSWORD not in str(status.to_dict())


async def test_a_document_is_read_with_it(files: Certificates) -> None:
    """The server that has the document asks for the certificate, too."""
    async with secure(files) as server, Exec(gate=None) as ex:
        await ex.add_openapi("api", f"{server.url}/openapi.json", allow_private=True, **identity(files))
        assert server.shown == ["ann"]


async def test_a_file_of_settings(files: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count from the file that names them, and the password is a reference."""
    monkeypatch.setenv("KEY_PASSWORD", PASSWORD)
    async with secure(files) as server:
        (tmp_path / "toolexec.toml").write_text(
            f'[providers.api]\nkind = "http"\nbase_url = "{server.url}"\ntools.it.path = "/it"\nca_file = "ca.pem"\n'
            'cert_file = "client.pem"\nkey_file = "key.pem"\nkey_password = "${KEY_PASSWORD}"\n'
        )
        loaded = load_settings([str(tmp_path / "toolexec.toml")])
        assert shown_providers(loaded)["api"]["key_password"] == "${KEY_PASSWORD}"
        async with build(loaded).ex as ex:
            assert (await ex.run_tool("api:it", {})).value == "ok"
        assert server.shown == ["ann"]


@pytest.mark.parametrize(
    ("setting", "secret"),
    [
        ('key_password = "a-literal-secret"', "a-literal-secret"),
        ('proxy = "http://me:a-literal-secret@proxy:3128"', "a-literal-secret"),
        ('proxy_auth = { username = "me", password = "a-literal-secret" }', "a-literal-secret"),
    ],
)
def test_literal_secrets_of_a_file_are_not_shown(tmp_path: Path, setting: str, secret: str) -> None:
    """Neither what shows the settings nor what is wrong with them has a secret that is written out there."""
    (tmp_path / "client.pem").touch()
    (tmp_path / "toolexec.toml").write_text(
        '[providers.api]\nkind = "http"\nbase_url = "https://api.test"\ntools.it.path = "/it"\n'
        f'cert_file = "client.pem"\n{setting}\n'
    )
    try:
        shown = str(shown_providers(load_settings([str(tmp_path / "toolexec.toml")])))
    except ConfigurationError as error:
        shown = error.message
    assert "api" in shown
    assert secret not in shown
