"""A real server over TLS: whose certificate is taken, which certificate a client shows, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from tests.net.certificates import PASSWORD, Certificates, make_certificates

from toolexec.errors import ConfigurationError, StateError
from toolexec_valkey import ValkeyState

if TYPE_CHECKING:
    from packages.valkey.tests.conftest import Server


@pytest.fixture
def files(tmp_path: Path) -> Certificates:
    """Make an authority with certificates; the client's key has no password."""
    made = make_certificates(tmp_path)
    key = load_pem_private_key(made.key.read_bytes(), PASSWORD.encode())
    (tmp_path / "plain.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return made


async def refused(url: str) -> str:
    """Return why a store cannot be used; a record must not have been kept at any time."""
    store = ValkeyState(url)
    try:
        with pytest.raises(StateError) as caught:
            await store.put("session", "one", "a", 60)
    finally:
        await store.aclose()
    assert "a-pass" not in str(caught.value)
    assert "localhost" not in str(caught.value)
    return str(caught.value)


@pytest.mark.full
async def test_its_own_authority(valkey: Server, files: Certificates) -> None:
    """Records go over TLS to a server whose certificate the named authority has signed, for its name."""
    valkey.with_tls(files.server, files.ca)
    store = ValkeyState(valkey.tls_url("localhost", f"ca={files.ca}"))
    await store.put("session", "one", "a", 60)
    assert await store.get("session", "one") == "a"
    assert await store.swap("session", "one", "a", "b", 60)
    await store.aclose()


@pytest.mark.full
async def test_a_certificate_that_is_not_to_be_trusted(valkey: Server, files: Certificates, tmp_path: Path) -> None:
    """A certificate of an unknown authority, one for another name, and a port without TLS are refused, and the record
    is not sent in another way."""
    valkey.with_tls(files.server, files.ca)
    (tmp_path / "other").mkdir()
    other = make_certificates(tmp_path / "other")
    assert "its certificate is refused" in await refused(valkey.tls_url("localhost", f"ca={other.ca}"))
    assert "its certificate is refused" in await refused(valkey.tls_url("localhost", "prefix=a:"))
    assert "it is for another name" in await refused(valkey.tls_url("127.0.0.1", f"ca={files.ca}"))
    valkey.tls_port = valkey.port
    await refused(valkey.tls_url("localhost", f"ca={files.ca}"))
    store = ValkeyState(valkey.url)
    assert await store.get("session", "one") is None
    await store.aclose()


@pytest.mark.full
async def test_a_client_certificate(valkey: Server, files: Certificates, tmp_path: Path) -> None:
    """A server that wants a certificate of its clients gets the one that the address names; without one it refuses."""
    valkey.with_tls(files.server, files.ca, clients="yes")
    await refused(valkey.tls_url("localhost", f"ca={files.ca}"))
    mine = f"ca={files.ca}&cert={files.client}&key={tmp_path / 'plain.pem'}"
    store = ValkeyState(valkey.tls_url("localhost", mine))
    await store.put("session", "one", "a", 60)
    assert await store.get("session", "one") == "a"
    await store.aclose()


def test_files_that_cannot_be_used(files: Certificates, tmp_path: Path) -> None:
    """Files that are missing, no certificates, or a key with a password are refused at the start, and not quoted."""
    (tmp_path / "no.pem").write_text("secret-word")
    for query in (
        "ca=/nowhere/hidden.pem",
        f"ca={tmp_path / 'no.pem'}",
        f"ca={files.ca}&cert={files.client}",
        f"ca={files.ca}&cert={files.client}&key={files.key}",
    ):
        with pytest.raises(ConfigurationError, match="state_url cannot be used") as caught:
            ValkeyState(f"valkeys://:hidden@localhost?{query}")
        assert "hidden" not in str(caught.value)
        assert "secret-word" not in str(caught.value)
