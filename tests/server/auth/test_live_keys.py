"""Keys that are replaced while a server runs."""

from __future__ import annotations

import pytest

from toolexec.errors import ConfigurationError
from toolexec.server.auth import ApiKey, AuthSettings, LiveKeys
from toolexec.server.auth.credentials import BadCredentialError, caller_of, hash_key

ANN, BOB = (ApiKey(id=name, sha256=hash_key(name)) for name in ("ann", "bob"))


def test_only_the_new_keys_are_accepted() -> None:
    """The IDs of removed and changed keys are reported."""
    keys, received = LiveKeys(AuthSettings(api_keys=(ANN, BOB))), []
    keys.on_removed(received.append)
    changed = ApiKey(id="bob", sha256=BOB.sha256, roles=("admin",))
    assert keys.replace([changed]) == {"ann", "bob"}
    assert received == [{"ann", "bob"}]
    assert keys.identify("bob").caller.roles == ("admin",)
    assert "bob" in keys
    assert "ann" not in keys
    with pytest.raises(BadCredentialError):
        keys.identify("ann")


def test_keys_that_contradict_each_other_change_nothing() -> None:
    """All or nothing."""
    keys = LiveKeys(AuthSettings(api_keys=(ANN,)))
    with pytest.raises(ConfigurationError, match="same id"):
        keys.replace([BOB, BOB])
    assert keys.identify("ann").caller.id == "ann"
    assert len(keys) == 1


def test_a_caller_whose_key_has_expired_is_none_any_more() -> None:
    """Calls under way of a key go on until the moment from which it is refused, and no longer."""
    over = ApiKey(id="ann", sha256=ANN.sha256, expires="2020-01-31")
    lasts = ApiKey(id="bob", sha256=BOB.sha256, expires="2999-01-31")
    keys = LiveKeys(AuthSettings(api_keys=(over, lasts)))
    assert keys.present(caller_of(over)) is None
    assert keys.present(caller_of(lasts)) == caller_of(lasts)


def test_a_caller_whose_key_is_not_known() -> None:
    """A run that goes on after a restart may be of a caller whose key was taken out meanwhile."""
    assert LiveKeys(AuthSettings(api_keys=(BOB,))).present(caller_of(ANN)) is None
