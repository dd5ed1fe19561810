"""API keys: which are accepted."""

from __future__ import annotations

import pytest

from toolexec.server.auth import ApiKey
from toolexec.server.auth.credentials import ApiKeys, BadCredentialError, hash_key, new_key

from .conftest import Clock


def test_a_known_key(clock: Clock) -> None:
    """A known key identifies the caller as configured."""
    key = new_key()
    entry = ApiKey(id="ann", sha256=hash_key(key).upper(), roles=("ops",), scopes=("read",), tenant="acme")
    keys = ApiKeys([entry, ApiKey(id="bob", sha256=hash_key("other key"))], clock)
    caller = keys.identify(key).caller
    assert (caller.id, caller.roles, caller.scopes, caller.tenant, caller.method) == (
        "ann",
        ("ops",),
        ("read",),
        "acme",
        "api_key",
    )
    assert keys.identify("other key").caller.id == "bob"


@pytest.mark.parametrize("key", ["", "x", "\udcff\xff", "é" * 99])
def test_an_unknown_key(key: str) -> None:
    """Whatever it is made of."""
    with pytest.raises(BadCredentialError, match="the API key is unknown"):
        ApiKeys([ApiKey(id="ann", sha256=hash_key("known"))]).identify(key)


def test_a_key_that_expires(clock: Clock) -> None:
    """Such a key is accepted until that moment and not in it."""
    keys = ApiKeys([ApiKey(id="ann", sha256=hash_key("known"), expires="1970-01-01T00:20:00")], clock)
    clock.now = 1199.9
    assert keys.identify("known").expires == 1200
    clock.now = 1200
    with pytest.raises(BadCredentialError, match="expired"):
        keys.identify("known")


def test_new_keys_are_long_and_never_the_same() -> None:
    """With a prefix that scanners know, and nothing that a shell or a header would take for something else."""
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(key.startswith("txk_") and len(key) == 47 and "." not in key for key in made)
