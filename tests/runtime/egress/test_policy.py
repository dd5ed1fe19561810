"""Which hosts a policy lets code reach, and what is no policy."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from toolexec.errors import ConfigurationError
from toolexec.net.address import NotAllowedAddressError, look_up
from toolexec.net.hosts import plain_host, read_authority
from toolexec.runtime.egress import Authority, Egress, Secret, environment
from toolexec.runtime.egress.address import connect, refusal
from toolexec.runtime.egress.policy import Origin

HOSTS = ("api.example.com", "*.pypi.org:443", "files.test:8080", "10.0.0.1", "[::1]:80", "bücher.example")


@pytest.mark.parametrize(
    ("host", "port", "allowed"),
    [
        ("api.example.com", 443, True),
        ("api.example.com", 80, True),
        ("api.example.com", 8443, False),
        ("x.api.example.com", 443, False),
        ("pypi.org", 443, False),
        ("a.pypi.org", 443, True),
        ("a.b.pypi.org", 443, True),
        ("a.pypi.org", 80, False),
        ("evilpypi.org", 443, False),
        ("files.test", 8080, True),
        ("files.test", 80, False),
        ("10.0.0.1", 443, True),
        ("10.0.0.2", 443, False),
        ("::1", 80, True),
        ("::1", 443, False),
        ("xn--bcher-kva.example", 443, True),
    ],
)
def test_hosts(host: str, port: int, allowed: bool) -> None:
    """Names are whole names, or all below one; a port that is not said is one of the usual two."""
    assert Egress(hosts=HOSTS).allows(host, port) is allowed


@pytest.mark.parametrize(
    ("host", "port", "allowed"),
    [
        ("a.example.com", 443, True),
        ("admin.example.com", 443, False),
        ("admin.example.com", 8443, False),
        ("x.admin.example.com", 443, True),
        ("a.internal.example.com", 443, False),
        ("a.b.internal.example.com", 8443, False),
        ("internal.example.com", 443, True),
        ("files.example.com", 443, True),
        ("files.example.com", 8443, False),
        ("other.test", 443, False),
    ],
)
def test_exceptions(host: str, port: int, allowed: bool) -> None:
    """An exception counts before everything else, wherever it is in the list, and on all ports unless it has one."""
    hosts = ("!admin.example.com", "*.example.com", "*.example.com:8443", "!*.internal.example.com")
    assert Egress(hosts=(*hosts, "!files.example.com:8443")).allows(host, port) is allowed


def test_exceptions_from_nothing_are_refused() -> None:
    """A list of exceptions allows no host, which is not what its author means; nor does an invalid one."""
    with pytest.raises(ConfigurationError, match="none is allowed"):
        Egress(hosts=("!a.test", "!b.test"))
    for host in ("!", "!!a.test", "!http://a.test", "! a.test"):
        with pytest.raises(ConfigurationError, match="is not a host"):
            Egress(hosts=("*", host))
    assert not Egress(hosts=("10.0.0.1", "!10.0.0.1")).allows("10.0.0.1", 443)
    assert not Egress(hosts=("*", "!10.0.0.1")).names_address("10.0.0.1")


def test_every_name_is_no_address() -> None:
    """`*` means names; addresses have to be listed one by one."""
    policy = Egress(hosts=("*", "*:8080"))
    assert policy.allows("a.test", 443)
    assert policy.allows("a.test", 8080)
    assert not policy.allows("a.test", 22)
    assert not policy.allows("10.0.0.1", 443)
    assert not policy.allows("::1", 443)


@pytest.mark.parametrize(
    "host",
    ["", "*.", "*x.test", "a.*.test", "*.*", "http://a.test", "a.test/", "a.test:0", "a.test:65536", "a.test:x", "a b", "-a.test"]
    + ["a..test", "*.10.0.0.1", "::1", "[::1", "[::1]x", "[a]", "[10.0.0.1]", "a" * 64 + ".test", "u@a.test", "fe80::1%1", "\ud800.test"],
)  # fmt: skip
def test_what_is_no_host(host: str) -> None:
    """Refuses an invalid host when the policy is made, not when code asks."""
    with pytest.raises(ConfigurationError):
        Egress(hosts=(host,))
    with pytest.raises(ConfigurationError):
        Secret(ref="env:X", hosts=(host,))


@pytest.mark.parametrize(
    "wrong",
    [
        {"hosts": "a.test"},
        {"max_connections": 0},
        {"max_request_bytes": 0},
        {"idle_seconds": 0},
        {"header_seconds": float("nan")},
        {"secrets": {"short": Secret(ref="env:X", hosts=("a.test",))}},
        {"secrets": {"with space": Secret(ref="env:X", hosts=("a.test",))}},
        {"secrets": dict.fromkeys(("PLACEHOLDER", "PLACEHOLDER_2"), Secret(ref="env:X", hosts=("a.test",)))},
    ],
)
def test_what_is_no_policy(wrong: dict[str, Any]) -> None:
    """Bounds of nothing, and placeholders that could be mistaken."""
    with pytest.raises(ConfigurationError):
        Egress(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"ref": ""}, {"hosts": ()}, {"hosts": "a.test"}, {"where": ()}, {"where": ("cookie",)}]
)
def test_what_is_no_secret(wrong: dict[str, Any]) -> None:
    """One needs a place where it is kept, hosts, and parts of requests."""
    with pytest.raises(ConfigurationError):
        Secret(**{"ref": "env:X", "hosts": ("a.test",)} | wrong)


def test_where_secrets_go() -> None:
    """To their own hosts, with TLS, in the parts they are for."""
    policy = Egress(hosts=("*",), secrets={"PLACEHOLDER": Secret(ref="env:X", hosts=("*.a.test:443",))})
    assert policy.secrets_for(Origin("https", "x.a.test", 443), "headers").keys() == {"PLACEHOLDER"}
    assert not policy.secrets_for(Origin("https", "x.a.test", 443), "body")
    assert not policy.secrets_for(Origin("https", "a.test", 443), "headers")
    assert not policy.secrets_for(Origin("http", "x.a.test", 443), "headers")


def test_authorities() -> None:
    """Strings become hosts and ports in one way only."""
    assert read_authority("A.Test.:80", 1) == ("a.test", 80)
    assert read_authority("[0:0::1]:80", 1) == ("::1", 80)
    assert read_authority("[::1]", 1) == ("::1", 1)
    assert read_authority("a.test:", 1) is None
    assert read_authority("a.test:+1", 1) is None
    assert read_authority("::1:80", 1) is None
    assert plain_host("fe80::1%eth0") is None
    assert (Origin("https", "::1", 443).authority, Origin("http", "a.test", 81).authority) == ("[::1]", "a.test:81")


PUBLIC = ("93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822")
PRIVATE = ("127.0.0.1", "::1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "fd12::1", "::ffff:10.0.0.1", "100.64.0.1", "64:ff9b::a00:1", "2002:a00:1::")  # fmt: skip
NEVER = (
    ("169.254.169.254", "169.254.1.1", "fe80::1", "fe80::1%2", "224.0.0.1", "ff02::1", "0.0.0.0", "::", "255.255.255.255")
    + ("100.100.100.200", "168.63.129.16", "fd00:ec2::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "240.0.0.1", "nonsense")
)  # fmt: skip


def test_addresses() -> None:
    """Private ones have to be allowed, and some are refused even then, unless they are listed themselves."""
    strict, loose = Egress(hosts=("*",)), Egress(hosts=("*",), allow_private=True)
    for address in PUBLIC:
        assert refusal(strict, address) == refusal(loose, address) == "", address
    for address in PRIVATE:
        assert refusal(strict, address), address
        assert refusal(loose, address) == "", address
    for address in NEVER:
        assert refusal(strict, address), address
        assert refusal(loose, address), address
    listed = Egress(hosts=("169.254.169.254", "[fd12::1]:80"))
    assert refusal(listed, "169.254.169.254") == refusal(listed, "fd12:0::1") == ""


@pytest.mark.anyio
async def test_connecting() -> None:
    """The first address that answers counts; a look-up that takes too long ends; the system's own is asked by default."""
    import asyncio
    import socket

    assert "127.0.0.1" in await look_up("127.0.0.1", 80)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        async def two(host: str, _: int) -> list[str]:
            return ["10.0.0.1", "127.0.0.2", "127.0.0.1"]

        async def none(host: str, _: int) -> list[str]:
            return []

        async def slow(host: str, _: int) -> list[str]:
            await asyncio.sleep(60)
            return []

        policy = Egress(hosts=("127.0.0.1", "127.0.0.2"), connect_seconds=5)
        connection = await connect(policy, "a.test", port, two)
        assert connection.getpeername() == ("127.0.0.1", port)
        connection.close()
        with pytest.raises(OSError, match="no address"):
            await connect(policy, "a.test", port, none)
        with pytest.raises(NotAllowedAddressError):
            await connect(Egress(), "a.test", port, two)
        with pytest.raises(OSError, match="within"):
            await connect(Egress(connect_seconds=0.05), "a.test", port, slow)


@pytest.mark.anyio
async def test_certificates() -> None:
    """Certificates are made once for each host, and verify."""
    authority = Authority()
    first = await authority.context("a.test")
    assert await authority.context("a.test") is first
    assert await authority.context("10.0.0.1") is not first
    assert b"PRIVATE" not in authority.ca_pem
    assert ssl.create_default_context(cadata=authority.ca_pem.decode()).get_ca_certs()
    assert repr(authority) == "Authority()"


def test_variables() -> None:
    """Programs find the proxy by either spelling, and its certificate by all the names that there are."""
    found = environment(3128, "/x/ca.pem")
    assert found["HTTPS_PROXY"] == found["https_proxy"] == "http://127.0.0.1:3128"
    assert "127.0.0.1" in found["NO_PROXY"]
    assert {name for name, value in found.items() if value == "/x/ca.pem"} >= {
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "CURL_CA_BUNDLE",
    }
