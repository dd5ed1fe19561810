"""Settings of authentication that make no sense, or are dangerous."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import pytest

from toolexec.errors import ConfigurationError
from toolexec.server.auth import ApiKey, AuthSettings, JwtSettings
from toolexec.server.auth.credentials import hash_key

HASH = hash_key("x" * 20)
JWT = JwtSettings(issuer="i", jwks_url="https://i.example/keys", audience="a")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"id": ""}, "1 to 128 printable characters"),
        ({"id": "a\nb"}, "1 to 128 printable characters"),
        ({"id": "x" * 129}, "1 to 128 printable characters"),
        ({"sha256": "abc"}, "64 hexadecimal digits; `toolexec keys new ann`"),
        ({"sha256": "g" * 64}, "64 hexadecimal digits"),
        ({"sha256": HASH + "\n"}, "64 hexadecimal digits"),
        ({"sha256": hash_key("")}, "that of the empty text"),
        ({"expires": "tomorrow"}, "must be a date such as"),
    ],
)
def test_api_keys(settings: dict[str, Any], problem: str) -> None:
    """A key's entry is refused when it could never work, or for everybody."""
    with pytest.raises(ConfigurationError, match=problem):
        ApiKey(**{"id": "ann", "sha256": HASH} | settings)


def test_when_a_key_expires() -> None:
    """A date, or a moment, in UTC unless it says otherwise; TOML's own dates are fine."""
    moment = datetime(2027, 1, 31, tzinfo=UTC).timestamp()
    for expires in (
        "2027-01-31",
        "2027-01-31T01:00:00+01:00",
        "2027-01-31 00:00",
        date(2027, 1, 31),
        datetime(2027, 1, 31),
    ):
        assert ApiKey(id="a", sha256=HASH, expires=expires).expires_at() == moment
    assert ApiKey(id="a", sha256=HASH).expires_at() == math.inf
    assert HASH not in repr(ApiKey(id="a", sha256=HASH))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"issuer": ""}, "needs the issuer"),
        ({"jwks_url": ""}, "either jwks_url or jwks_file"),
        ({"jwks_file": "keys.json"}, "either jwks_url or jwks_file"),
        ({"jwks_url": "http://issuer.example/keys"}, "must begin with https"),
        ({"jwks_url": "https://user:pass@issuer.example"}, "without a password"),
        ({"jwks_url": "https://[::1"}, "must be an address"),
        ({"jwks_url": "keys.json"}, "must be an address"),
        ({"algorithms": ("none",)}, "'none' is not accepted"),
        ({"algorithms": ("RS256", "HS256")}, "'HS256' is not accepted"),
        ({"algorithms": ()}, "there are none"),
        ({"leeway": -1}, "0 to 300 seconds"),
        ({"leeway": math.nan}, "leeway must be a number, not nan"),
        ({"id_claim": ""}, "id_claim must name"),
    ],
)
def test_tokens(settings: dict[str, Any], problem: str) -> None:
    """Nothing that would let others make tokens is accepted."""
    with pytest.raises(ConfigurationError, match=problem):
        JwtSettings(**{"issuer": "i", "jwks_url": "https://i.example/keys"} | settings)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"api_keys": (ApiKey(id="a", sha256=HASH), ApiKey(id="a", sha256="a" * 64))}, "the same id"),
        ({"api_keys": (ApiKey(id="a", sha256=HASH), ApiKey(id="b", sha256=HASH.upper()))}, "the same sha256"),
        ({"jwt": JwtSettings(issuer="i", jwks_url="https://i.example/keys")}, "needs an audience"),
        ({"resource_url": "http://tools.example.com"}, "must begin with https"),
        ({"authorization_servers": ("https://i.example",)}, "need jwt"),
        ({"authorization_servers": ("https://i.example",), "jwt": JWT}, "and resource_url"),
        ({"authorization_servers": ('https://i.example"',), "jwt": JWT}, "must be an address"),
        ({"max_failures": 0}, "1 or more"),
        ({"required_scopes": ('a"b',)}, "words without"),
        ({"required_scopes": ("a b",)}, "words without"),
    ],
)
def test_both_together(settings: dict[str, Any], problem: str) -> None:
    """Refuses contradicting settings at the start."""
    with pytest.raises(ConfigurationError, match=problem):
        AuthSettings(**settings)


def test_what_tokens_are_meant_for() -> None:
    """The audience that is set, else the server's own address."""
    assert AuthSettings(jwt=JWT, resource_url="https://t.example/mcp").audience == "a"
    own = JwtSettings(issuer="i", jwks_url="http://localhost:1/keys")
    assert AuthSettings(jwt=own, resource_url="https://t.example/mcp").audience == "https://t.example/mcp"
    assert not AuthSettings().on
    assert AuthSettings(jwt=JWT).on
