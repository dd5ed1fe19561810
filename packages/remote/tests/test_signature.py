"""Signatures: known answers, and everything that must not pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from toolexec.errors import ConfigurationError, SandboxDeniedError
from toolexec.remote import SigningKey
from toolexec_remote.signature import (
    Credentials,
    KeyRing,
    ReplayCache,
    Target,
    read_timestamp,
    sign,
    signed_headers,
    timestamp,
)

NOW = 1_769_851_800.0  # 2026-01-31T09:30:00Z
NANOSECONDS = 1_769_851_800_000_000_000
KEY = SigningKey(id="a", token="token-of-sixteen-characters", secret="another-secret-of-the-key")
TARGET = Target("ab" * 32, "POST", "/v1/execute", "r1")
PLAIN = SigningKey(id="b", token="one-more-token-of-the-ring")


@pytest.mark.parametrize(
    ("secret", "stamp", "body", "signature"),
    [
        (
            "correct horse battery staple",
            "2026-01-31T09:30:00Z",
            "",
            "1dv/4CmKNM5MWdQnWhEI5AH5+SbRSl4sh32wGlBy40M=",
        ),
        (
            "correct horse battery staple",
            "2026-01-31T09:30:00.5Z",
            '{"request":{"code":"return 1","limits":{}}}',
            "Vzm7BGPUCr1Tw4+bXEW2Ke1wUGp+lVG99ErDGQ3yNL8=",
        ),
        (
            "tëst-secret-0123456789",
            "2026-01-31T09:30:00.123456789Z",
            '{"request":{"language":"python","code":"1 \\u003c 2","limits":{"max_tool_calls":5}}}',
            "8eUHfR5vdD1RUh4h/WX+nIU9AaCxKNoqHR4WLYYirNI=",
        ),
    ],
    ids=["empty", "half-a-second", "escaped"],
)
def test_signatures_have_known_values(secret: str, stamp: str, body: str, signature: str) -> None:
    """The values come from `openssl dgst -sha256 -hmac`."""
    assert sign(secret, stamp, TARGET, body.encode()) == signature


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (0, "2026-01-31T09:30:00Z"),
        (500_000_000, "2026-01-31T09:30:00.5Z"),
        (120_000_000, "2026-01-31T09:30:00.12Z"),
        (123_456_789, "2026-01-31T09:30:00.123456789Z"),
        (1, "2026-01-31T09:30:00.000000001Z"),
        (100, "2026-01-31T09:30:00.0000001Z"),
    ],
)
def test_timestamps_are_written_as_go_writes_them(more: int, text: str) -> None:
    """The zeros at the end of the fraction are left out, and the fraction when it is zero."""
    assert timestamp(NANOSECONDS + more) == text
    assert read_timestamp(text) == pytest.approx(NOW + more / 1e9, abs=1e-6)


def test_timestamps_of_other_zones_are_understood() -> None:
    """RFC 3339 allows an offset."""
    assert read_timestamp("2026-01-31T10:30:00+01:00") == NOW


@pytest.mark.parametrize("text", ["", "now", "2026-01-31", "2026-13-31T09:30:00Z", "1769851800", "2026-01-31T09:30:00"])
def test_other_strings_are_no_timestamps(text: str) -> None:
    """A signature over one of these has no time that could be checked."""
    assert read_timestamp(text) is None


def sent(key: SigningKey, body: bytes = b"{}", more: float = 0.0, **changed: str) -> Credentials:
    headers = signed_headers(key, TARGET, body, NANOSECONDS + int(more * 1e9))
    return Credentials.of({**headers, **{name.replace("_", "-"): value for name, value in changed.items()}})


def ring(*keys: SigningKey) -> KeyRing:
    return KeyRing(keys or (KEY, PLAIN))


def test_a_signed_request_is_that_of_its_key() -> None:
    """With a secret of its own, or with the token as the secret; the header with the key's ID may be missing."""
    for key in (KEY, PLAIN):
        assert ring().verify(sent(key), TARGET, b"{}", NOW, ReplayCache()) is key
        assert ring().verify(sent(key, X_Toolruntime_Key=""), TARGET, b"{}", NOW, ReplayCache()) is key


@pytest.mark.parametrize(
    ("credentials", "body", "code"),
    [
        (Credentials(), b"{}", "unauthenticated"),
        (sent(SigningKey(id="a", token="a-token-that-is-not-known")), b"{}", "unauthenticated"),
        (sent(KEY, Authorization="Basic dG9rZW46"), b"{}", "unauthenticated"),
        (sent(KEY, X_Toolruntime_Key="b"), b"{}", "unauthenticated"),
        (sent(KEY), b"{ }", "signature_invalid"),
        (sent(KEY, X_Toolruntime_Signature=""), b"{}", "signature_invalid"),
        (sent(KEY, X_Toolruntime_Signature="é" * 500), b"{}", "signature_invalid"),
        (sent(KEY, X_Toolruntime_Timestamp="2026-01-31T09:30:01Z"), b"{}", "signature_invalid"),
        (sent(KEY, more=-301), b"{}", "signature_stale"),
        (sent(KEY, more=301), b"{}", "signature_stale"),
    ],
    ids=["none", "token", "scheme", "other-key", "body", "no-signature", "odd", "time", "old", "future"],
)
def test_everything_else_is_refused(credentials: Credentials, body: bytes, code: str) -> None:
    """The error says which part was wrong, and that nothing was run."""
    with pytest.raises(SandboxDeniedError) as caught:
        ring().verify(credentials, TARGET, body, NOW, ReplayCache())
    assert (caught.value.code, caught.value.outcome == "not_sent") == (code, True)


def test_a_stale_signature_says_by_how_much() -> None:
    """The sender learns that a clock is wrong, and which way."""
    with pytest.raises(SandboxDeniedError, match="400 s behind") as caught:
        ring().verify(sent(KEY, more=-400), TARGET, b"{}", NOW, ReplayCache())
    assert caught.value.details["skew"] == -400
    with pytest.raises(SandboxDeniedError, match="400 s ahead"):
        ring().verify(sent(KEY, more=400), TARGET, b"{}", NOW, ReplayCache())


@pytest.mark.parametrize(
    "change",
    [
        {"incarnation": "cd" * 32},
        {"method": "GET"},
        {"path": "/v1/execute/capacity"},
        {"run": "r2"},
        {"last_event": "r1:1"},
        {"run": "r1\n"},
    ],
    ids=str,
)
def test_a_signature_is_for_one_process_one_method_and_one_path(change: dict[str, str]) -> None:
    """Whatever else is asked with it, elsewhere or here, is refused."""
    with pytest.raises(SandboxDeniedError) as caught:
        ring().verify(sent(KEY), replace(TARGET, **change), b"{}", NOW, ReplayCache())
    assert caught.value.code == "signature_invalid"


def test_a_request_counts_once() -> None:
    """The same signature is refused for as long as it could be in time."""
    cache = ReplayCache()
    for now, more in ((NOW, 0.0), (NOW + 1, 1.0)):
        ring().verify(sent(KEY, more=more), TARGET, b"{}", now, cache)
    for now in (NOW, NOW + 299):
        with pytest.raises(SandboxDeniedError) as caught:
            ring().verify(sent(KEY), TARGET, b"{}", now, cache)
        assert caught.value.code == "signature_replayed"


def test_a_wrong_request_does_not_use_up_the_signature() -> None:
    """A body that was changed on the way cannot keep the right one out."""
    cache = ReplayCache()
    with pytest.raises(SandboxDeniedError):
        ring().verify(sent(KEY), TARGET, b"{ }", NOW, cache)
    assert ring().verify(sent(KEY), TARGET, b"{}", NOW, cache) is KEY


def test_the_cache_is_bounded_and_forgets_the_old() -> None:
    """When it is full it refuses what is new, until the old signatures count no longer."""
    cache = ReplayCache(most=2)
    assert cache.claim("a", NOW + 10, NOW)
    assert cache.claim("b", NOW + 20, NOW)
    assert not cache.claim("c", NOW + 20, NOW)
    assert cache.claim("c", NOW + 30, NOW + 11)


def test_one_tenant_leaves_room_in_the_cache_for_others() -> None:
    """However many requests it sends, those of another one are taken."""
    cache = ReplayCache(most=100)
    assert sum(cache.claim(f"bob-{number}", NOW + 10, NOW, "bob") for number in range(200)) == 80
    assert cache.claim("ann-1", NOW + 20, NOW, "ann")
    assert not cache.claim("bob-200", NOW + 20, NOW, "bob")
    assert cache.claim("bob-200", NOW + 30, NOW + 11, "bob")


def test_keys_are_changed_without_a_pause() -> None:
    """Both keys count for a while; then the older one has expired."""
    old = SigningKey(id="2025", token="the-token-of-last-year!", tenant="ann", expires=NOW + 10)
    new = SigningKey(id="2026", token="the-token-of-this-year!", tenant="ann")
    both = ring(old, new)
    assert both.verify(sent(old), TARGET, b"{}", NOW, ReplayCache()).account == "ann"
    assert both.verify(sent(new), TARGET, b"{}", NOW, ReplayCache()).account == "ann"
    with pytest.raises(SandboxDeniedError, match="expired"):
        both.verify(sent(old, more=11), TARGET, b"{}", NOW + 11, ReplayCache())
    late = sent(old, more=11)
    with pytest.raises(SandboxDeniedError, match="expired"):  # over a connection that was opened before
        both.check(old, late.timestamp, late.signature, TARGET, b"{}", NOW + 11, ReplayCache())


def test_the_keys_of_a_ring_can_be_replaced() -> None:
    """The new ones count at once, and the old ones no longer; a wrong set changes nothing."""
    keys = ring(KEY)
    keys.replace([PLAIN])
    with pytest.raises(ConfigurationError):
        keys.replace([KEY, KEY])
    assert keys.verify(sent(PLAIN), TARGET, b"{}", NOW, ReplayCache()) is PLAIN
    with pytest.raises(SandboxDeniedError):
        keys.verify(sent(KEY), TARGET, b"{}", NOW, ReplayCache())


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "", "token": "x" * 20},
        {"id": "a b", "token": "x" * 20},
        {"id": "a", "token": "short"},
        {"id": "a", "token": "x" * 20, "secret": "short"},
        {"id": "a", "token": "ü" * 20},
    ],
    ids=["no-id", "odd-id", "token", "secret", "letters"],
)
def test_weak_keys_are_refused(fields: dict[str, Any]) -> None:
    """A key has an ID, and secrets of some length."""
    with pytest.raises(ConfigurationError):
        SigningKey(**fields)


def test_keys_of_a_ring_differ() -> None:
    """Otherwise it would be unknown whose run it is."""
    with pytest.raises(ConfigurationError):
        ring(KEY, SigningKey(id="a", token="some-other-token-of-it"))
    with pytest.raises(ConfigurationError):
        ring(KEY, SigningKey(id="c", token=KEY.token))


def test_a_key_hides_its_secrets() -> None:
    """A log has none of them."""
    assert KEY.token not in repr(KEY)
    assert KEY.secret not in repr(KEY)
