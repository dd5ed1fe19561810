"""Settings of the HTTP server that make no sense, or would leave it open."""

from __future__ import annotations

import math
from typing import Any

import pytest

from toolexec import lazy
from toolexec.errors import ConfigurationError, MissingExtraError
from toolexec.server import http as package
from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import HttpSettings, build_app
from toolexec.server.http.replies import is_loopback, split_host
from toolexec.server.http.settings import check_exposure

from .conftest import Serve, small_server

KEYS = (ApiKey(id="ann", sha256=hash_key("k" * 20)),)


@pytest.mark.parametrize(
    ("http", "auth", "problem"),
    [
        ({"host": "0.0.0.0"}, {}, "would let anybody run your tools; add API keys"),
        ({"host": "192.0.2.7"}, {}, "listening on 192.0.2.7 without authentication"),
        ({"host": "tools.example.com"}, {}, "without authentication"),
        ({"host": "::"}, {}, "without authentication"),
        ({"behind_proxy": True}, {}, "serving behind a proxy without authentication"),
        ({"host": "0.0.0.0"}, {"api_keys": KEYS}, "without TLS would show every key"),
        ({"host": "0.0.0.0", "tls_cert": "c"}, {"api_keys": KEYS}, "needs allowed_hosts"),
        ({"behind_proxy": True}, {"api_keys": KEYS}, "needs allowed_hosts"),
        ({"host": "0.0.0.0", "tls_cert": "c"}, {"api_keys": KEYS, "allow_anonymous": True}, "take it away"),
        ({"behind_proxy": True}, {"allow_anonymous": True}, "without authentication"),
    ],
)
async def test_a_server_that_would_be_open(
    serve: Serve, http: dict[str, Any], auth: dict[str, Any], problem: str
) -> None:
    """An open server does not start, however it is made, and the message names the fix."""
    with pytest.raises(ConfigurationError, match=problem):
        build_app(small_server(), HttpSettings(**http), AuthSettings(**auth))
    with pytest.raises(ConfigurationError, match=problem):
        await serve(HttpSettings(port=0, **http), AuthSettings(**auth))


@pytest.mark.parametrize(
    ("http", "auth"),
    [
        ({}, {}),
        ({"host": "localhost"}, {"allow_anonymous": True}),
        ({"host": "[::1]"}, {}),
        ({"host": "192.0.2.7", "tls_cert": "c"}, {"api_keys": KEYS}),
        ({"host": "0.0.0.0", "tls_cert": "c", "allowed_hosts": ("t.example",)}, {"api_keys": KEYS}),
        ({"host": "0.0.0.0", "behind_proxy": True}, {"api_keys": KEYS, "resource_url": "https://t.example/mcp"}),
    ],
)
def test_a_server_that_is_safe(http: dict[str, Any], auth: dict[str, Any]) -> None:
    """This machine only; or with keys, and TLS or a proxy."""
    check_exposure(HttpSettings(**http), AuthSettings(**auth))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"host": ""}, "host must be an address"),
        ({"port": 65536}, "port must be 0 to 65535"),
        ({"port": -1}, "port must be 0 to 65535"),
        ({"path": "mcp"}, "a path must begin with /"),
        ({"path": "/"}, "a path must begin with /"),
        ({"path": "/mcp/"}, "a path must begin with /"),
        ({"path": "//mcp"}, "a path must begin with /"),
        ({"path": "/a?b"}, "a path must begin with /"),
        ({"path": "/health"}, "is taken by the server itself"),
        ({"path": "/.well-known/x"}, "is taken by the server itself"),
        ({"sse": True, "sse_path": "/mcp"}, "must differ"),
        ({"tls_key": "k"}, "tls_key needs tls_cert"),
        ({"allowed_hosts": ("*",)}, "allowed_hosts must be names"),
        ({"allowed_hosts": ("*.example.com",)}, "allowed_hosts must be names"),
        ({"allowed_hosts": ("https://example.com",)}, "allowed_hosts must be names"),
        ({"allowed_origins": ("*",)}, "allowed_origins must be origins"),
        ({"allowed_origins": ("https://*.example.com",)}, "allowed_origins must be origins"),
        ({"allowed_origins": ("https://example.com/",)}, "allowed_origins must be origins"),
        ({"allowed_origins": ("null",)}, "allowed_origins must be origins"),
        ({"trusted_proxies": ("*",)}, "trusted_proxies must be addresses"),
        ({"max_body_bytes": 0}, "max_body_bytes must be 1 or more"),
        ({"max_connections": 0}, "max_connections must be 1 or more"),
        ({"header_timeout": 0}, "header_timeout must be above 0"),
        ({"body_timeout": math.nan}, "body_timeout must be a number, not nan"),
        ({"session_idle": math.inf}, "session_idle must be a number, not inf"),
        ({"shutdown_grace": 61}, "shutdown_grace must be 0 to 60"),
    ],
)
def test_values_that_make_no_sense(settings: dict[str, Any], problem: str) -> None:
    """Each is refused with what it must be."""
    with pytest.raises(ConfigurationError, match=problem):
        HttpSettings(**settings)


def test_loopback_is_what_only_this_machine_reaches() -> None:
    """Names and addresses that look like it are not it."""
    for host in ("127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LOCALHOST", "app.localhost"):
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "192.168.0.1", "localhost.example", "127.0.0.1.example", "", "2130706433"):
        assert not is_loopback(host)


def test_hosts_are_taken_apart() -> None:
    """Into a name in lower case and a port."""
    assert split_host("Tools.Example.com:8443") == ("tools.example.com", 8443)
    assert split_host("[::1]") == ("::1", None)
    for wrong in ("", "a b", "a:b", "a:99999", "a@b", "http://a", "a:1:2", "::1"):
        assert split_host(wrong) is None


def test_the_extra_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings need nothing, all the rest needs `serve`."""

    def missing(name: str) -> Any:
        raise ModuleNotFoundError("no uvicorn", name="uvicorn")

    monkeypatch.delitem(vars(package), "Health", raising=False)  # looked up before
    monkeypatch.setattr(lazy, "import_module", missing)
    with pytest.raises(MissingExtraError, match="serving over HTTP needs the 'serve' extra"):
        _ = package.Health
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


def test_a_mistake_of_our_own_is_no_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a mistake is shown as what it is."""

    def broken(name: str) -> Any:
        raise ModuleNotFoundError("gone", name="toolexec.gone")

    monkeypatch.delitem(vars(package), "Metrics", raising=False)
    monkeypatch.setattr(lazy, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="gone"):
        _ = package.Metrics
