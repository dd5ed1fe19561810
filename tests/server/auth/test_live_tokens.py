"""What callers with tokens may do by now, which are not the tokens that their calls began with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.server.auth.conftest import AUDIENCE, ISSUER, Clock

from toolexec.model.origin import Caller
from toolexec.server.auth import JwtSettings
from toolexec.server.auth.live_tokens import LiveTokens

SETTINGS = JwtSettings(issuer=ISSUER, audience=AUDIENCE, jwks_url="https://issuer.example/keys", leeway=5)


def ann(at: float, *roles: str, scopes: str = "read", lasts: float = 60, **claims: Any) -> Caller:
    """Return a caller with a token that was issued then."""
    facts = {"iss": ISSUER, "iat": at, "exp": at + lasts, **claims}
    return Caller(id="ann", roles=roles, scopes=tuple(scopes.split()), method="jwt", claims=facts)


def test_a_token_holds_until_it_expires(clock: Clock) -> None:
    """A call under way goes on until its caller's token is refused, clocks that differ allowed for, and after that where
    the caller has come with another one that holds."""
    tokens, first = LiveTokens(SETTINGS, clock), ann(1000, "staff")
    clock.now = 1064
    assert tokens.present(first) is first
    clock.now = 1065
    assert tokens.present(first) is None
    tokens.note(ann(1060, "staff"))
    tokens.note(first)  # an older one changes nothing
    assert tokens.present(first) is first
    clock.now = 1125
    assert tokens.present(first) is None


def test_the_newest_token_has_the_roles(clock: Clock) -> None:
    """Roles are those of the newest token of the same caller and client; scopes are never more than those that the call
    began with, and a token with fewer of them says nothing of it."""
    tokens, first = LiveTokens(SETTINGS, clock), ann(990, "staff", scopes="read write")
    for other in (
        ann(995, scopes="read"),
        ann(995, scopes="read write", azp="another client"),
        replace(ann(995, scopes="read write"), tenant="another"),
        replace(ann(995, scopes="read write"), id="bob"),
    ):
        tokens.note(other)
        assert tokens.present(first) is first
    tokens.note(ann(996, "guest", scopes="write read more"))
    present = tokens.present(first)
    assert present is not None
    assert (present.roles, present.scopes) == (("guest",), ("read", "write"))


def test_tokens_of_no_issuer(clock: Clock) -> None:
    """Tokens that the settings do not accept any more, as they have another issuer or no issuer, give no rights."""
    assert LiveTokens(None, clock).present(ann(1000)) is None
    assert LiveTokens(SETTINGS, clock).present(ann(1000, iss="https://other.example")) is None
    assert LiveTokens(SETTINGS, clock).present(ann(1000, exp="never")) is None


def test_few_tokens_are_kept(clock: Clock) -> None:
    """One caller has room for 20 sets of scopes: the one that was used least recently makes room."""
    tokens, over = LiveTokens(SETTINGS, clock), ann(1, scopes="s0")
    for number in range(21):
        tokens.note(ann(1000, scopes=f"s{number}"))
    assert tokens.present(over) is None
    assert tokens.present(replace(over, scopes=("s1",))) is not None
