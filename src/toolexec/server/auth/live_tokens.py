"""What the tokens of callers say now: a call under way goes by the newest that its caller has come with."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from toolexec.model.json_value import JSONObject
from toolexec.model.origin import Caller
from toolexec.server.auth.settings import JwtSettings

_FOREVER: Final = 2**52
_MOST_CALLERS: Final = 10_000
_MOST_TOKENS: Final = 20
_Whose: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True, order=True)
class _Proof:
    """A token that was accepted: when it was issued, until when it is good, and the roles in it. The newest is the
    greatest; of two of one second, the one that lasts longer, or came last."""

    issued: float
    expires: float
    roles: tuple[str, ...] = field(compare=False)


class LiveTokens:
    """The tokens that callers have come with, of the issuer of *settings*; without these no token is good. The newest
    of each caller, client and set of scopes counts, of the last 10,000 callers. *clock* gives the seconds since 1970.
    """

    def __init__(self, settings: JwtSettings | None, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._known: OrderedDict[_Whose, OrderedDict[frozenset[str], _Proof]] = OrderedDict()

    def note(self, caller: Caller) -> None:
        """Know of a token that was accepted just now."""
        whose, scopes, proof = _whose(caller), frozenset(caller.scopes), self._proof(caller)
        known = self._known.setdefault(whose, OrderedDict())
        self._known.move_to_end(whose)
        known[scopes] = max(proof, known.get(scopes, proof))
        known.move_to_end(scopes)
        if len(known) > _MOST_TOKENS:
            known.popitem(last=False)
        if len(self._known) > _MOST_CALLERS:
            self._known.popitem(last=False)

    def present(self, caller: Caller) -> Caller | None:
        """Return the caller of a call under way with the roles of its newest token; None where none is good any more.

        Beside its own one, those of the same client count that have its scopes, too: one with fewer may be meant for
        less. The caller never gets a scope that its own token does not have.
        """
        if self._settings is None or caller.claims.get("iss") != self._settings.issuer:
            return None
        own, scopes = self._proof(caller), frozenset(caller.scopes)
        known = self._known.get(_whose(caller), {})
        proofs = [*(proof for others, proof in known.items() if others >= scopes), own]
        if all(proof.expires <= self._clock() for proof in proofs):
            return None
        roles = max(proofs).roles
        return caller if roles == caller.roles else replace(caller, roles=roles)

    def _proof(self, caller: Caller) -> _Proof:
        claims, leeway = caller.claims, self._settings.leeway if self._settings is not None else 0.0
        expires = expires_at(claims, leeway)
        issued = claims.get("iat")
        if not isinstance(issued, int | float) or isinstance(issued, bool):
            issued = expires
        return _Proof(issued, expires, caller.roles)


def expires_at(claims: JSONObject, leeway: float) -> float:
    """Return from when on a token with these claims is refused, in seconds since 1970; 0 where they do not say it."""
    try:
        return min(int(claims["exp"]), _FOREVER) + leeway
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0.0


def _whose(caller: Caller) -> _Whose:
    """Return whose token it is, and which client has it: clients of one person may be given other roles."""
    claims = caller.claims
    return caller.tenant, caller.id, str(claims.get("client_id") or claims.get("azp") or "")
