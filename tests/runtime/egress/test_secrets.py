"""Secrets are found in all their spellings, in parts of any size."""

from __future__ import annotations

import base64
import random

import pytest

from toolexec.backend.secrets.resolver import SecretResolver
from toolexec.errors import SecretError
from toolexec.model.redaction import Redactor
from toolexec.runtime.egress import resolve_with
from toolexec.runtime.egress.secrets import KnownSecrets, Masked, SecretNotThereError

SECRET = 'pa"ss/wörd+=42'


def masked(known: KnownSecrets, parts: list[bytes]) -> bytes:
    hiding = Masked(known)
    return b"".join([*(hiding.feed(part) for part in parts), hiding.finish()])


def test_spellings() -> None:
    """As it is, percent-encoded, in JSON, in hex, and in the middle of something in base64."""
    known = KnownSecrets()
    known.add(SECRET)
    data = SECRET.encode()
    for before in range(4):
        coded = base64.b64encode(b"x" * before + data + b"tail")
        hidden = known.mask().hide(coded)
        assert len(hidden) == len(coded)
        assert hidden.count(b"*") >= len(data) * 4 // 3 - 3
    for text in (data, data.hex().encode(), b"pa%22ss%2Fw%C3%B6rd%2B%3D42", b'pa\\"ss/w\\u00f6rd+=42'):
        assert known.mask().hide(b"<" + text + b">") == b"<" + b"*" * len(text) + b">"


def test_parts() -> None:
    """However a body is cut, the same comes out, and nothing is kept back without need."""
    known = KnownSecrets()
    known.add(SECRET)
    known.add("another-secret")
    whole = (SECRET + " another-secre another-secret" + SECRET[:5]).encode() * 3
    expected = known.mask().hide(whole)
    dice = random.Random(1)
    for _ in range(50):
        cuts = sorted(dice.sample(range(len(whole)), 6))
        parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
        assert masked(known, parts) == expected
    hiding = Masked(known)
    assert hiding.feed(b"data: event\n\n") == b"data: event\n\n"
    assert hiding.feed(b"x another-sec") == b"x "


def test_nothing_to_hide() -> None:
    """Without secrets bytes stay what they are; the oldest of very many are forgotten at last."""
    known = KnownSecrets()
    assert not known.mask()
    assert masked(known, [b"a", b"b"]) == b"ab"
    for number in range(300):
        known.add(f"secret-{number:05}")
        known.add("secret-00000")
    assert known.mask().hide(b"secret-00000") == b"*" * 12
    assert known.mask().hide(b"secret-00001") == b"secret-00001"


@pytest.mark.parametrize("value", ["", "42", "secret7", "  secret7  "])
def test_short_secrets_are_refused(value: str) -> None:
    """Refuses secrets that do not stand out from other text."""
    known = KnownSecrets()
    with pytest.raises(SecretNotThereError, match="at least 8"):
        known.add(value)
    assert not known.mask()


@pytest.mark.anyio
async def test_resolving() -> None:
    """References are those of configurations."""
    resolve = resolve_with(SecretResolver(environment={"TOKEN": "value-of-token"}, redact=Redactor()))
    assert await resolve("env:TOKEN") == "value-of-token"
    with pytest.raises(SecretError):
        await resolve("env:NOT_THERE")
