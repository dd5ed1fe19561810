"""Addresses of servers: what they say, and which are refused."""

from __future__ import annotations

import pytest

from toolexec.errors import ConfigurationError
from toolexec_valkey import ValkeyAddress


def test_what_an_address_says() -> None:
    """Host, port, database, user, password, TLS and parameters come from the URL; the password is in no repr."""
    found = ValkeyAddress.parse("valkeys://me:p%2Fw@state.example.com:7000/3?prefix=ours:&ca=/etc/ca.pem&cert=a&key=b")
    assert (found.host, found.port, found.database) == ("state.example.com", 7000, 3)
    assert (found.username, found.password, found.tls) == ("me", "p/w", True)
    assert (found.prefix, found.ca, found.cert, found.key) == ("ours:", "/etc/ca.pem", "a", "b")
    assert "p/w" not in repr(found)


@pytest.mark.parametrize("url", ["valkey://localhost", "redis://127.0.0.1:1/0", "redis://[::1]", "rediss://far.test"])
def test_plain_ones_stay_on_this_machine(url: str) -> None:
    """A server of this machine needs no TLS, another one does."""
    assert ValkeyAddress.parse(url).tls is url.startswith("rediss")


@pytest.mark.parametrize(
    "url",
    [
        "valkey://far.test",
        "valkey://10.0.0.1?insecure=0",
        "http://localhost",
        "valkey://",
        "valkey://localhost:port",
        "valkey://localhost/name",
        "valkey://localhost/-1",
        "valkey://localhost?secret-word=1",
        "valkey://localhost?ca=a&ca=b",
        "valkey://localhost#1",
        "valkey://localhost?ca=/etc/ca.pem",
        "valkey://localhost?cert=/etc/me.pem",
        "valkeys://localhost?ca=",
        "valkeys://localhost?key=/etc/key.pem",
    ],
)
def test_what_is_refused(url: str) -> None:
    """Other addresses are refused, and not quoted: they may have a password."""
    with pytest.raises(ConfigurationError, match="state_url cannot be used") as caught:
        ValkeyAddress.parse(url.replace("://", "://:hidden@"))
    assert "hidden" not in str(caught.value)
    assert "secret-word" not in str(caught.value)


def test_a_plain_one_elsewhere_is_a_choice() -> None:
    """`insecure=1` has a server of another machine be spoken to without TLS."""
    assert not ValkeyAddress.parse("valkey://far.test?insecure=1").tls
