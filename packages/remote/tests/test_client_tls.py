"""The remote backend over TLS: whom it believes, and how it shows who it is."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from packages.remote.tests.here import remote_to, serving, use_names
from packages.remote.tests.tools import Workshop
from tests.engines.certificates import make_certificates

from toolexec.errors import ConfigurationError, SandboxUnavailableError

ONE = "return tools.shop.count(item=1)"


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """Make an authority, and certificates of a server and a client."""
    directory = tmp_path / "certificates"
    make_certificates(directory)
    return directory


@pytest.mark.parametrize("protocol", ["duplex", "post"])
async def test_both_sides_show_their_certificates(tmp_path: Path, certificates: Path, protocol: str) -> None:
    """With the authority and a certificate of its own the client is let in; without either it is not."""
    shop = Workshop()
    given = {
        "tls_cert": str(certificates / "server-cert.pem"),
        "tls_key": str(certificates / "server-key.pem"),
        "client_ca": str(certificates / "ca.pem"),
    }
    trusts = {"ca_file": str(certificates / "ca.pem")}
    shows = {"client_cert": str(certificates / "cert.pem"), "client_key": str(certificates / "key.pem")}
    async with serving(tmp_path / "state", **given) as endpoint:
        assert endpoint.startswith("https://")
        async with remote_to(endpoint, protocol=protocol, **trusts, **shows) as backend:
            assert (await backend.execute(shop.request(ONE))).raise_for_error().value == 1
        async with remote_to(endpoint, protocol=protocol, **shows) as backend:
            assert not (await backend.check()).ok
            with pytest.raises(SandboxUnavailableError):
                await backend.execute(shop.request(ONE, timeout=0.3))
        async with remote_to(endpoint, protocol=protocol, **trusts) as backend:
            state = await backend.check()
            assert not state.ok
            assert endpoint in state.reason
    assert shop.calls == {1: 1}


async def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """A file that is not there is a mistake of the settings, and in the reason of the check."""
    async with remote_to("https://127.0.0.1:9/v1/execute", ca_file=str(tmp_path / "none.pem")) as backend:
        state = await backend.check()
        assert not state.ok
        assert "certificates of the remote runtime cannot be read" in state.reason
        with pytest.raises(SandboxUnavailableError) as caught:
            await backend.execute(Workshop().request(ONE, timeout=0.3))
        assert isinstance(caught.value.__cause__, ConfigurationError)
        assert not caught.value.retryable


@pytest.mark.parametrize("protocol", ["duplex", "post"])
async def test_a_certificate_must_have_the_name_that_was_looked_up(
    tmp_path: Path, certificates: Path, protocol: str
) -> None:
    """Endpoints that a name of DNS leads to are reached by address, and must show the certificate of the name."""

    async def look_up(_: str, __: int) -> list[str]:
        return ["127.0.0.1"]

    shop = Workshop()
    own = {"tls_cert": str(certificates / "server-cert.pem"), "tls_key": str(certificates / "server-key.pem")}
    trusts = {"ca_file": str(certificates / "ca.pem"), "protocol": protocol}
    async with serving(tmp_path / "state", **own) as endpoint:
        port = urlsplit(endpoint).port
        for name, is_right in (("localhost", True), ("other.localhost", False)):
            async with remote_to(f"dns+https://{name}:{port}/v1/execute", **trusts) as backend:
                use_names(backend, look_up)
                state = await backend.check()
                assert state.ok is is_right, state.reason
                if is_right:
                    assert (await backend.execute(shop.request(ONE))).raise_for_error().value == 1
                    continue
                with pytest.raises(SandboxUnavailableError, match=r"127\.0\.0\.1"):
                    await backend.execute(shop.request(ONE, timeout=0.3))
    assert shop.calls == {1: 1}
